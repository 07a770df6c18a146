"""The array type: many samples with the interface of one array."""

from typing import TYPE_CHECKING, Any

from ensemble._names import no_attribute

# These fill the table of protocols.
from ensemble.scalar import _indexing  # noqa: F401
from ensemble.scalar.display import html, text  # noqa: F401
from ensemble.scalar.display.plotting import plot_histogram, plot_ribbon
from ensemble.scalar.divergence.branching import LoopResult, cond, per_sample, while_loop
from ensemble.scalar.divergence.masks import all_samples, any_sample, count_samples, divide, where
from ensemble.scalar.divergence.policy import DivergenceError, divergence
from ensemble.scalar.divergence.record import record_divergence
from ensemble.scalar.divergence.run import RunResult, run
from ensemble.scalar.ensemble import Ensemble, from_samples, shared
from ensemble.scalar.files import load, save
from ensemble.scalar.fuse import fuse
from ensemble.scalar.interop import advice, cupy, jax, numpy_functions, scipy_sparse, torch, ufuncs  # noqa: F401
from ensemble.scalar.lift import table  # noqa: F401
from ensemble.scalar.namespace import EnsembleNamespace, namespace
from ensemble.scalar.reductions import dot, norm
from ensemble.scalar.sample_set import SampleSet
from ensemble.scalar.statistics.moments import Moments
from ensemble.scalar.statistics.quantiles import ConfidenceInterval, sample_confidence_interval, sample_quantile
from ensemble.scalar.statistics.statistics import (
    probability,
    sample_corr,
    sample_cov,
    sample_max,
    sample_mean,
    sample_min,
    sample_std,
    sample_var,
)
from ensemble.scalar.support import support
from ensemble.scalar.traits import EnsembleTrait

if TYPE_CHECKING:
    xp: EnsembleNamespace

__all__ = [
    "ConfidenceInterval",
    "DivergenceError",
    "Ensemble",
    "EnsembleNamespace",
    "EnsembleTrait",
    "LoopResult",
    "Moments",
    "RunResult",
    "SampleSet",
    "all_samples",
    "any_sample",
    "cond",
    "count_samples",
    "divergence",
    "divide",
    "dot",
    "from_samples",
    "fuse",
    "load",
    "namespace",
    "norm",
    "per_sample",
    "plot_histogram",
    "plot_ribbon",
    "probability",
    "record_divergence",
    "run",
    "sample_confidence_interval",
    "sample_corr",
    "sample_cov",
    "sample_max",
    "sample_mean",
    "sample_min",
    "sample_quantile",
    "sample_std",
    "sample_var",
    "save",
    "shared",
    "support",
    "where",
    "while_loop",
    "xp",
]


def __getattr__(name: str) -> Any:
    """`xp`, the namespace over NumPy: made when it is first used."""
    if name != "xp":
        raise no_attribute("ensemble.scalar", name)
    import numpy

    globals()["xp"] = found = namespace(numpy)
    return found
