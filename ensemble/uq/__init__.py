"""Uncertainty quantification: uncertain inputs, samplers, studies of many model runs, and their statistics."""

from ensemble.uq.inputs.categorical import Categorical
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.inputs.mixture import Mixture
from ensemble.uq.inputs.samples import InputSamples
from ensemble.uq.inputs.vector import Vector
from ensemble.uq.samplers.monte_carlo import MonteCarlo
from ensemble.uq.samplers.quasi_random import Halton, Sobol
from ensemble.uq.samplers.sampler import Sampler

__all__ = ["Categorical", "Halton", "InputSamples", "Inputs", "Mixture", "MonteCarlo", "Sampler", "Sobol", "Vector"]
