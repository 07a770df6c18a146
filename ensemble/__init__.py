"""Many samples of a numerical model at once: ensemble arrays, sparse algebra, multigrid, finite elements."""

import importlib
from typing import TYPE_CHECKING, Any

from ensemble import scalar
from ensemble._names import no_attribute
from ensemble._version import __version__
from ensemble.scalar import (
    DivergenceError,
    Ensemble,
    EnsembleTrait,
    Moments,
    SampleSet,
    all_samples,
    any_sample,
    cond,
    count_samples,
    divergence,
    divide,
    dot,
    from_samples,
    fuse,
    load,
    namespace,
    norm,
    per_sample,
    plot_histogram,
    plot_ribbon,
    probability,
    record_divergence,
    run,
    sample_confidence_interval,
    sample_corr,
    sample_cov,
    sample_max,
    sample_mean,
    sample_min,
    sample_quantile,
    sample_std,
    sample_var,
    save,
    shared,
    support,
    where,
    while_loop,
)

if TYPE_CHECKING:
    from ensemble import apps, distributed, gallery, krylov, linalg, multigrid, ode, quadrature, uq
    from ensemble.scalar import xp
    from ensemble.uq import Categorical, Inputs, Outputs, fields, plan, propagate, sobol_indices, vectorize

__all__ = [
    "Categorical",
    "DivergenceError",
    "Ensemble",
    "EnsembleTrait",
    "Inputs",
    "Moments",
    "Outputs",
    "SampleSet",
    "__version__",
    "all_samples",
    "any_sample",
    "apps",
    "cond",
    "count_samples",
    "distributed",
    "divergence",
    "divide",
    "dot",
    "fields",
    "from_samples",
    "fuse",
    "gallery",
    "krylov",
    "linalg",
    "load",
    "multigrid",
    "namespace",
    "norm",
    "ode",
    "per_sample",
    "plan",
    "plot_histogram",
    "plot_ribbon",
    "probability",
    "propagate",
    "quadrature",
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
    "sobol_indices",
    "support",
    "uq",
    "vectorize",
    "where",
    "while_loop",
    "xp",
]

SUBPACKAGES = ("apps", "distributed", "gallery", "krylov", "linalg", "multigrid", "ode", "quadrature", "uq")
"""What is imported when it is first used: kernels, and with them Numba and SciPy."""

LATE = {
    "Categorical": "ensemble.uq",
    "Inputs": "ensemble.uq",
    "Outputs": "ensemble.uq",
    "fields": "ensemble.uq",
    "plan": "ensemble.uq",
    "propagate": "ensemble.uq",
    "sobol_indices": "ensemble.uq",
    "vectorize": "ensemble.uq",
}
"""Names that are imported when they are first used, and where from."""


def __getattr__(name: str) -> Any:
    if name == "xp":
        return scalar.xp
    if name in SUBPACKAGES:
        return importlib.import_module(f"ensemble.{name}")
    if name in LATE:
        return getattr(importlib.import_module(LATE[name]), name)
    raise no_attribute("ensemble", name)


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__path__"]
