"""Uncertainty quantification: uncertain inputs, samplers, studies of many model runs, and their statistics."""

from ensemble.uq.store.source_digest import source_digest
from ensemble.uq.store.store import Store

__all__ = ["Store", "source_digest"]
