"""`Target`: how narrow the confidence intervals of ``n="auto"`` have to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ensemble._check import integer, message, one_of, positive, require
from ensemble.uq.study.outputs import Layout
from ensemble.uq.study.study_result import UqResult, without_interval

__all__ = ["Target"]

FIRST_SAMPLES = 256
MOST_SAMPLES = 2**20


@dataclass(frozen=True)
class Target:
    """Relative and absolute half-widths by output, and most samples."""

    widths: dict[str, tuple[float, float]]
    max_n: int

    @classmethod
    def of(cls, n: Any, target: Any, max_n: Any) -> Self | None:
        """The target of a study of "auto" samples; None of one whose number is fixed."""
        if n != "auto":
            if isinstance(n, str):
                raise ValueError(message("propagate", "n", "be an integer or 'auto'", repr(n)))
            require(target is None and max_n is None, "propagate", "target and max_n", "go with n='auto'", f"n={n}")
            return None
        good = isinstance(target, Mapping) and bool(target)
        advice = "Write target={'y': 0.01}."
        require(good, "propagate", "target", "name an output and its relative half-width for n='auto'", target, advice)
        widths = {}
        for name, width in target.items():
            rtol, atol = width if isinstance(width, tuple) and len(width) == 2 else (width, 0.0)
            argument = f"target[{name!r}]"
            widths[name] = (
                positive(rtol, "propagate", argument, zero=True),
                positive(atol, "propagate", argument, zero=True),
            )
            require(max(widths[name]) > 0.0, "propagate", argument, "be above zero", width)
        most = MOST_SAMPLES if max_n is None else integer(max_n, "propagate", "max_n", minimum=2)
        return cls(widths, most)

    @property
    def first_n(self) -> int:
        """Samples to begin with."""
        return min(FIRST_SAMPLES, self.max_n)

    def check_sampler(self, sampler: Any) -> None:
        """Raise unless there are intervals, and further samples."""
        extendable = sampler.count() is None and sampler.extendable
        require(extendable, "propagate", "sampler", "have no end for n='auto'", repr(sampler))
        reason = without_interval(sampler)
        advice = "Use replicates, as sampler='sobol' does."
        require(not reason, "propagate", "sampler", "give confidence intervals for n='auto'", reason, advice)

    def check_outputs(self, layout: Layout) -> None:
        """Raise unless every output of the target is there and real."""
        for name in self.widths:
            one_of(name, layout, "propagate", "target")
            dtype = layout[name][1]
            if dtype.kind == "c":
                advice = "Return its real and imaginary part, or its modulus, as an output."
                wanted = "name real outputs, whose means have intervals"
                raise TypeError(message("propagate", "target", wanted, f"{name!r} of dtype {dtype}", advice))

    def is_met(self, result: UqResult) -> bool:
        """Whether every interval is narrow enough."""
        if result.no_interval():
            return False
        for name, (rtol, atol) in self.widths.items():
            low, high = result.confidence_interval(name)
            half = np.max(0.5 * (np.asarray(high) - low), initial=0.0)
            if not half <= rtol * np.max(np.abs(result.mean(name)), initial=0.0) + atol:
                return False
        return True
