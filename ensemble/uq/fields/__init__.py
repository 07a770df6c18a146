"""Random fields as inputs of a model."""

from ensemble.uq.fields.karhunen_loeve import KarhunenLoeve
from ensemble.uq.fields.samples import FieldSamples

__all__ = ["FieldSamples", "KarhunenLoeve"]
