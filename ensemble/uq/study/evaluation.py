"""One group through a model: its outputs, and which of its samples failed and why."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import prototype
from ensemble._check import message, samples_text
from ensemble._errors import ProgramError, kept
from ensemble._sample_numbers import numbered_samples
from ensemble.scalar import DivergenceError, RunResult
from ensemble.scalar.divergence.swallowed import watched
from ensemble.uq.inputs.samples import UnknownInputError
from ensemble.uq.study.backend import BackendSamples
from ensemble.uq.study.outputs import (
    CallError,
    Outcome,
    OutputError,
    Raised,
    blank,
    check_layout,
    layout_of,
    named_outputs,
    non_finite,
)
from ensemble.uq.study.sample_clock import UNKNOWN, running_clock

__all__ = ["SampleError", "evaluate"]

ERRORS_OF_PROGRAMS = (ProgramError, CallError, UnknownInputError, NameError, ImportError, SyntaxError, DivergenceError)
"""Errors that do not depend on the choice of samples; one sample alone never raises `DivergenceError`."""


TRACE_LINES = 4
"""Last entries of a traceback that are shown: those of the model."""


class SampleError(RuntimeError):
    """Samples failed, and ``on_failure="raise"`` makes that an error."""


def evaluate(
    model: Callable[[Any], Any], samples: Any, on_failure: str, backend: str = "numpy", probe: Any = False
) -> Outcome:
    """Call the model once on `samples`; with "retry" once more on each failed sample alone.

    With `probe`, a model that raises the same error on all samples and on some of them alone raises it here; where
    `probe` is a sample that has succeeded before, if it raises it on that one, too.
    """
    start = time.perf_counter()
    if backend != "numpy":
        given, like = model, prototype(backend)
        model = lambda x: given(BackendSamples(x, like))
    outcome = _call(model, samples, on_failure)
    if probe and outcome.raised and not outcome.out_of_memory and (samples.n_samples > 1 or probe is not True):
        _raise_where_alone_too(model, samples, outcome.raised, probe)
    if on_failure == "retry" and samples.n_samples > 1 and np.any(outcome.failed):
        outcome = _retried(model, samples, outcome)
    if outcome.alike and outcome.error is not None:
        outcome.trace = "".join(traceback.format_exception(outcome.error)[-TRACE_LINES:])
    outcome.seconds = time.perf_counter() - start
    return outcome


def _call(model: Callable[[Any], Any], samples: Any, on_failure: str) -> Outcome:
    n = samples.n_samples
    samples.failures.clear()
    if (clock := running_clock.get()) is not None:
        clock.begin(0 if n == 1 else UNKNOWN, n)
    try:
        with numbered_samples(samples.ids), watched(sys._getframe()) as watch:
            returned = model(samples)
        watch.raise_first()
    except ERRORS_OF_PROGRAMS as error:
        if isinstance(error, DivergenceError) and on_failure == "retry" and n > 1:
            return _all_failed(n, error)
        if isinstance(error, DivergenceError):
            error.add_note("A model that branches on its samples runs inside en.run, or with on_failure='retry'.")
        raise
    except Exception as error:
        if on_failure == "raise":
            error.add_note(f"propagate: the model raised this on {samples_text(samples.ids)}.")
            raise
        return _all_failed(n, error)
    reasons: dict[int, str] = {}
    if samples.failures:
        reasons = {int(place): str(reason) for place, reason in samples.failures.items()}
    run = returned if isinstance(returned, RunResult) else None
    if run is not None:
        reasons = {int(place): reason_of(error) for place, error in run.errors.items()} | reasons
        returned = run.value if len(run.errors) < n else {}
    errors: dict[int, Exception] = dict(run.errors) if run is not None else {}
    errors |= {place: why.error for place, why in samples.failures.items() if isinstance(why, Raised)}
    outputs = named_outputs({} if returned is None else returned, n, "propagate")
    if run is not None:  # integers have no NaN: their type must not depend on whether a sample of the group failed
        outputs = {name: a.astype(np.float64) if a.dtype.kind in "biu" else a for name, a in outputs.items()}
    if not outputs and len(reasons) < n:
        advice = (
            "Return {'y': y}, or what en.run gives without .value, which is None where all samples of a group raise."
        )
        raise OutputError(message("propagate", "the model", "return at least one output", "none", advice))
    by_value: set[int] = set()
    for name, array in outputs.items():
        for place in non_finite(array):
            if place not in reasons:
                reasons[place] = f"output {name!r} is not finite"
                by_value.add(place)
    failed = np.zeros(n, bool)
    if reasons:
        failed[list(reasons)] = True
    if on_failure == "raise" and reasons:
        ids = [samples.ids[k] for k in sorted(reasons)]
        text = f"propagate: {len(ids)} of {n} samples of a group failed ({samples_text(ids)}; {reasons[min(reasons)]})."
        cause = errors.get(min(reasons))
        raise SampleError(f"{text} on_failure='mask' leaves them out, 'retry' runs each alone.") from cause
    outcome = Outcome(outputs, failed, reasons, non_finite=by_value)
    if len(errors) == n and len({reason_of(error) for error in errors.values()}) == 1:
        outcome.error, outcome.alike = kept(errors[0]), reason_of(errors[0])
    return outcome


def _all_failed(n: int, error: Exception) -> Outcome:
    failed, reasons = np.ones(n, bool), dict.fromkeys(range(n), reason_of(error))
    memory = isinstance(error, MemoryError)
    raised, alike = type(error).__qualname__, reason_of(error) if n == 1 else ""  # together says nothing of each
    return Outcome({}, failed, reasons, out_of_memory=memory, raised=raised, alike=alike, error=kept(error))


def reason_of(error: Exception) -> str:
    """Why a sample failed, by its exception."""
    return str(Raised(error))


def _raise_where_alone_too(model: Callable[[Any], Any], samples: Any, raised: str, proof: Any) -> None:
    """Raise what the model raises if that is `raised` for the first, middle and last sample alone, too."""
    last = samples.n_samples - 1
    errors: list[Exception] = []
    tried = [samples.take(np.array([place])) for place in sorted({0, last // 2, last})]
    for one in tried if proof is True else [*tried, proof]:
        try:
            with standing_at(UNKNOWN):
                _call(model, one, "raise")
        except Exception as found:
            if type(found).__qualname__ != raised:
                return
            errors = [found]
        else:
            return
    text = "propagate: so it does on all samples of the first call together, and on those that were tried alone."
    errors[0].add_note(f"{text} on_failure='mask' takes them for failed samples and goes on.")
    raise errors.pop()


def _retried(model: Callable[[Any], Any], samples: Any, first: Outcome) -> Outcome:
    """`first` with each of its failed samples run once more, alone."""
    outputs = {name: array.copy() for name, array in first.outputs.items()}
    failed, reasons, by_value = first.failed.copy(), dict(first.reasons), set(first.non_finite)
    n, alike, error = samples.n_samples, set[str](), first.error
    earlier: dict[int, list[str]] = {}
    for place in np.flatnonzero(first.failed):
        with standing_at(int(place)):
            alone = _call(model, samples.take(np.array([place])), "retry")
        if not first.raised:  # of a call that raised as a whole nothing is known of one sample
            earlier[int(place)] = [first.reasons[int(place)]]
        alike.add(alone.alike)
        error = error or alone.error
        by_value.discard(int(place))
        fits = not outputs or layout_of(outputs) == layout_of(alone.outputs)
        if alone.outputs and (fits or not alone.failed[0]):  # of a sample that fails again what does not fit is left
            if not outputs:
                outputs = {name: blank(shape, dtype, n) for name, (shape, dtype) in layout_of(alone.outputs).items()}
            _copy(alone.outputs, outputs, int(place))
        if alone.failed[0]:
            reasons[int(place)] = alone.reasons[0]
            by_value |= {int(place)} if alone.non_finite else set()
        else:
            failed[place] = False
            reasons.pop(int(place))
    same = alike.pop() if failed.all() and len(alike) == 1 else ""
    memory = first.out_of_memory
    error = error if same else None
    return Outcome(outputs, failed, reasons, earlier, by_value, out_of_memory=memory, alike=same, error=error)


def standing_at(place: int) -> contextlib.AbstractContextManager[None]:
    """Calls of one sample inside are of the sample at `place` of the group, for a time limit."""
    clock = running_clock.get()
    return contextlib.nullcontext() if clock is None else clock.at(place)


def _copy(alone: dict[str, np.ndarray], outputs: dict[str, np.ndarray], place: int) -> None:
    check_layout(layout_of(outputs), layout_of(alone), "propagate")
    for name, array in alone.items():
        outputs[name][..., place] = array[..., 0]
