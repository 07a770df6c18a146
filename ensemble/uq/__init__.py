"""Uncertainty quantification: uncertain inputs, samplers, studies of many model runs, and their statistics."""

from ensemble.uq import fields
from ensemble.uq.algorithms.algorithm_result import AlgorithmError
from ensemble.uq.algorithms.kalman_inversion import InversionResult, kalman_inversion
from ensemble.uq.algorithms.mcmc import McmcResult, mcmc
from ensemble.uq.algorithms.multilevel import MultilevelResult, multilevel
from ensemble.uq.algorithms.rare_events import SubsetResult, subset_simulation
from ensemble.uq.inputs.categorical import Categorical
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.inputs.mixture import Mixture
from ensemble.uq.inputs.observed import EmpiricalCopula, Kde
from ensemble.uq.inputs.samples import InputSamples
from ensemble.uq.inputs.truncated import Truncated, empirical
from ensemble.uq.inputs.vector import Vector
from ensemble.uq.report import page as _page  # noqa: F401 - it makes the page of UqResult.report
from ensemble.uq.report.html_report import Report
from ensemble.uq.runs.program import Program, RunFailedError
from ensemble.uq.runs.readers import FromFile
from ensemble.uq.samplers.latin_hypercube import LatinHypercube
from ensemble.uq.samplers.monte_carlo import MonteCarlo
from ensemble.uq.samplers.points import Points
from ensemble.uq.samplers.quadrature import Gauss, SparseGrid
from ensemble.uq.samplers.quasi_random import Halton, Sobol
from ensemble.uq.samplers.sampler import Sampler
from ensemble.uq.sensitivity.chaos import chaos
from ensemble.uq.sensitivity.chaos_expansion import ChaosExpansion
from ensemble.uq.sensitivity.gaussian_process import GaussianProcess, gaussian_process
from ensemble.uq.sensitivity.given_data import GivenDataIndices, given_data
from ensemble.uq.sensitivity.indices import MorrisEffects, ShapleyEffects, SobolIndices
from ensemble.uq.sensitivity.morris import morris
from ensemble.uq.sensitivity.shapley import shapley_effects
from ensemble.uq.sensitivity.sobol_indices import sobol_indices
from ensemble.uq.sensitivity.stored_indices import open_indices
from ensemble.uq.store.source_digest import source_digest
from ensemble.uq.store.store import Store
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.evaluation import SampleError
from ensemble.uq.study.groups import Group
from ensemble.uq.study.outputs import OutputError
from ensemble.uq.study.plan import Plan, plan
from ensemble.uq.study.propagate import propagate
from ensemble.uq.study.stored_study import open_study
from ensemble.uq.study.study_result import Probability, UqResult
from ensemble.uq.study.vectorize import VectorizedModel, vectorize

__all__ = [
    "AlgorithmError",
    "Categorical",
    "ChaosExpansion",
    "EmpiricalCopula",
    "FromFile",
    "Gauss",
    "GaussianProcess",
    "GivenDataIndices",
    "Group",
    "Halton",
    "InputSamples",
    "Inputs",
    "InversionResult",
    "Kde",
    "LatinHypercube",
    "McmcResult",
    "Mixture",
    "MonteCarlo",
    "MorrisEffects",
    "MultilevelResult",
    "OutputError",
    "Outputs",
    "Plan",
    "Points",
    "Probability",
    "Program",
    "Report",
    "RunFailedError",
    "SampleError",
    "Sampler",
    "ShapleyEffects",
    "Sobol",
    "SobolIndices",
    "SparseGrid",
    "Store",
    "SubsetResult",
    "Truncated",
    "UqResult",
    "Vector",
    "VectorizedModel",
    "chaos",
    "empirical",
    "fields",
    "gaussian_process",
    "given_data",
    "kalman_inversion",
    "mcmc",
    "morris",
    "multilevel",
    "open_indices",
    "open_study",
    "plan",
    "propagate",
    "shapley_effects",
    "sobol_indices",
    "source_digest",
    "subset_simulation",
    "vectorize",
]
