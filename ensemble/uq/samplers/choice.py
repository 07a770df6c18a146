"""Samplers by name."""

from __future__ import annotations

from typing import Any

from ensemble._check import integer, kind_of, message, one_of, require
from ensemble.uq.samplers.latin_hypercube import LatinHypercube
from ensemble.uq.samplers.monte_carlo import MonteCarlo
from ensemble.uq.samplers.quasi_random import Halton, Sobol
from ensemble.uq.samplers.sampled_inputs import SampledInputs
from ensemble.uq.samplers.sampler import Sampler

__all__ = ["SAMPLERS", "resolved_sampler"]

KINDS: tuple[type[Sampler], ...] = (
    MonteCarlo,
    LatinHypercube,
    Sobol,
    Halton,
)

SAMPLERS: dict[str, type[Sampler]] = {kind.name: kind for kind in KINDS}


def resolved_sampler(
    sampler: Any, inputs: SampledInputs, n: int | None, function: str = "Inputs.samples"
) -> tuple[Any, int]:
    """The sampler for these inputs and `n` samples, and the number of samples."""
    if isinstance(sampler, str):
        sampler = SAMPLERS[one_of(sampler, SAMPLERS, function, "sampler")]()
    if not callable(getattr(sampler, "points", None)):
        names = ", ".join(repr(name) for name in SAMPLERS)
        seen = kind_of(sampler)
        raise TypeError(message(function, "sampler", f"be a Sampler, or one of {names}", seen))
    if n is not None:
        n = integer(n, function, "n", minimum=1)
    resolved = sampler.for_inputs(inputs, n)
    count = resolved.count()
    advice = "Leave n out." if count else "A sampler without end needs it."
    wanted = "be an integer" if count is None else f"be {count}, the points of {sampler!r}"
    good = n is not None if count is None else n in (None, count)
    require(good, function, "n", wanted, n, advice)
    return resolved, int(n or count)
