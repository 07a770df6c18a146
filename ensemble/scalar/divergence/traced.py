"""`run` inside ``jax.jit``, ``grad`` and ``vmap``: there are no values yet by which samples could be grouped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import is_traced
from ensemble._check import message
from ensemble.scalar.divergence.policy import DECIDERS, Decider, policy_in_force
from ensemble.scalar.divergence.run_result import Group, RunResult
from ensemble.scalar.divergence.side_effects import refuse_lazy
from ensemble.scalar.ensemble import Ensemble

__all__ = ["result_of_traced", "traced_among"]


class _NoValues(BaseException):
    """Ends a call that needs a value; ``except Exception`` in the user's code does not catch it."""


class _Traced(Decider):
    """Stops wherever a value of a sample is needed."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def truth(self, values: np.ndarray) -> bool:
        raise self.refused(ValueError("samples differ"))

    def number(self, values: np.ndarray, kind: str) -> int:
        raise self.refused(ValueError("samples differ"))

    def refused(self, error: Exception) -> BaseException:
        self.error = self.error or error
        return _NoValues()

    def of_sample(self, operation: Callable[[Any], Any], x: Any, error: Exception) -> BaseException:
        return error  # by type and shape, which are known


def traced_among(found: list[Ensemble]) -> Ensemble | None:
    """The first of `found` whose values are not there yet."""
    return next((x for x in found if type(x.samples) is not np.ndarray and is_traced(x.samples)), None)


def _called_once(call: Callable[[], Any], x: Ensemble) -> Any:
    """What ``call()`` returns, for all samples at once.

    Raises
    ------
    TypeError
        If it needs a value of `x`, whether or not it catches that error.
    """
    decider = _Traced()
    token = policy_in_force.set(decider)
    DECIDERS.append(decider)
    value = None
    try:
        value = call()
    except _NoValues:
        pass
    except Exception:
        if decider.error is None:
            raise
    finally:
        DECIDERS.remove(decider)
        policy_in_force.reset(token)
    if decider.error is not None:
        kind = type(x.samples)
        seen = f"values that are traced ({kind.__module__}.{kind.__qualname__}), of which f needs one"
        advice = (
            "Call run outside jit, grad and vmap; inside, write np.where, en.where, en.cond or en.while_loop. "
            f"The operation: {decider.error}"
        )
        raise TypeError(message("run", "x", "hold values by which samples can be grouped", seen, advice))
    return value


def result_of_traced(call: Callable[[], Any], n_samples: int, x: Ensemble) -> RunResult:
    """The result of one call for all samples, `x` among them, none of which has a value yet."""
    ids = np.arange(n_samples)
    value = _called_once(call, x)
    refuse_lazy(value)
    groups: list[tuple[Group, ...]] = [(Group(ids, (), ids.size),)]
    return RunResult(value, {}, n_samples, 1, ids.size, "ensembles", {}, [(ids, value)], None, groups)
