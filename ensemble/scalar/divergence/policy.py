"""Divergence: what an ensemble means as one truth value or as one number.

Where all samples agree, their common value is taken. Where they do not, `DivergenceError` names the place, the samples
of each value, and what to write instead; `divergence` puts another rule in force for a block of code.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

import numpy as np

from ensemble._backend import is_of_tracing, to_numpy
from ensemble._check import one_of
from ensemble._typing import Array
from ensemble.scalar.divergence.swallowed import note_conversion, note_handler
from ensemble.scalar.protocol_table import PROTOCOLS

__all__ = ["Decider", "DivergenceError", "divergence"]

UNCHANGED = "ensemble.run takes unchanged code; ensemble.vectorize calls a function of plain numbers per sample."
"""What takes code that no sample may be asked to share."""

POLICIES = ("raise", "first", "any", "all", "majority")


class Decider:
    """A policy for every disagreement of samples, those on numbers and on shapes included."""

    def truth(self, values: np.ndarray) -> bool:
        """The truth value to continue with, where `values`, shape (n_samples,), differ."""
        raise NotImplementedError

    def number(self, values: np.ndarray, kind: str) -> int:
        """The sample whose number is used, where `values`, shape (n_samples,), differ."""
        raise NotImplementedError

    def refused(self, error: Exception) -> BaseException:
        """What to raise in place of `error`, where the samples cannot continue in one call."""
        raise NotImplementedError

    def of_sample(self, operation: Callable[[Any], Any], x: Any, error: Exception) -> BaseException:
        """What ``operation(value)`` raises for a sample of `x`; of an operation that depends on type and shape alone.

        Where it raises nothing, what to raise in place of `error`.
        """
        raise NotImplementedError

    def hear(self, error: BaseException, n_samples: int) -> None:
        """Take note of `error`, which an ensemble of `n_samples` raised in another thread."""


Policy = str | Callable[[np.ndarray], bool] | Decider

policy_in_force: ContextVar[Policy] = ContextVar("divergence", default="raise")

Recorder = Callable[[str, np.ndarray], None]

DECIDERS: list[Decider] = []
"""The deciders in force in any thread: a thread that unchanged code starts has the policy "raise"."""

records_in_force: ContextVar[tuple[Recorder, ...]] = ContextVar("records", default=())


class DivergenceError(Exception):
    """The samples of an ensemble do not agree where one value is needed.

    It is neither a `ValueError` nor a `TypeError`: an ``except (TypeError, ValueError)`` around ``float(x)`` is there
    for text that is no number, and does not catch it.

    Attributes
    ----------
    values : numpy.ndarray, shape (n_samples,), or None
        The truth value or number of each sample.
    expression : str
        The source text of the expression; empty where the source is not available.
    filename, lineno : str, int
        Its place.

    Examples
    --------
    >>> from ensemble.scalar import Ensemble
    >>> import numpy as np
    >>> try:
    ...     bool(Ensemble(np.array([1.0, -1.0, 3.0])) > 0.0)
    ... except DivergenceError as error:
    ...     print(error.values)
    [ True False  True]
    """

    def __init__(self, text: str, values: np.ndarray | None = None, place: tuple[str, str, int] = ("", "", 0)) -> None:
        super().__init__(text)
        self.values = values
        self.expression, self.filename, self.lineno = place

    def __reduce__(self) -> tuple[object, ...]:
        return DivergenceError, (str(self), self.values, (self.expression, self.filename, self.lineno))


@contextmanager
def divergence(policy: Policy) -> Iterator[None]:
    """Put `policy` in force wherever a truth value splits an ensemble inside the ``with`` block.

    Parameters
    ----------
    policy : {"raise", "first", "any", "all", "majority"} or callable
        "raise": `DivergenceError` (the rule outside any block). "first": sample 0 decides, for numbers too (the rule of
        Phipps et al. [1]_). "any", "all", "majority": whether it is True in any, in every or in more than half of the
        samples. A callable gets the truth values, bools of shape (n_samples,), and returns a bool or raises.

    Raises
    ------
    ValueError
        If `policy` is no such name.

    Notes
    -----
    The policy is a `contextvars.ContextVar`: each thread and task has its own. Only "first" and "raise" apply to
    numbers; under the others ``float(x)`` raises where samples differ. Inside ``run(f, ...)`` with its
    policy "split" every sample decides for itself, so a block there changes nothing.

    References
    ----------
    .. [1] Phipps, D'Elia, Edwards, Hoemmen, Hu, Rajamanickam (2017), SIAM J. Sci. Comput. 39(2), C162-C193, section 3.

    Examples
    --------
    >>> from ensemble.scalar import Ensemble
    >>> import numpy as np
    >>> x = Ensemble(np.array([1.0, -1.0, 3.0]))
    >>> with divergence("majority"):
    ...     print("positive" if x > 0.0 else "negative")
    positive
    """
    if not callable(policy):
        one_of(policy, POLICIES, "divergence", "policy")
    in_force = policy_in_force.get()
    token = policy_in_force.set(in_force if isinstance(in_force, Decider) else policy)
    try:
        yield
    finally:
        policy_in_force.reset(token)


def one_bool(samples: Array) -> bool:
    """The common truth value of `samples`, shape (n_samples,), or the one that the policy gives."""
    if samples.shape[0] == 1:
        return bool(samples[0]) if type(samples) is np.ndarray else bool(_read(samples)[0])
    values = _read(samples).astype(bool, copy=False)
    for record in records_in_force.get():
        record("bool", values)
    yes = int(np.count_nonzero(values))
    if yes in (0, values.size):
        return yes > 0
    policy = policy_in_force.get()
    if isinstance(policy, Decider):
        return policy.truth(values)
    if callable(policy):
        return bool(policy(values))
    match policy:
        case "first":
            return bool(values[0])
        case "any":
            return True
        case "all":
            return False
        case "majority":
            return 2 * yes > values.size
    raise split(
        "a truth value must be one bool",
        f"{yes} True among {values.size} samples ({_numbers(values)}), False for {_numbers(~values)}",
        f"Use xp.where, all_samples or any_sample; cond and while_loop run each branch on its own samples. {UNCHANGED}",
        values,
    )


def _read(samples: Array) -> np.ndarray:
    """The values of `samples`; the policy replaces the exception where there are none, as in ``jax.jit``."""
    return samples if type(samples) is np.ndarray else call_under_policy(to_numpy, samples)


def agreed(samples: Array) -> bool:
    """Whether all samples, last axis, hold the same values to the bit of their sign; NaN agrees with NaN."""
    if samples.shape[-1] == 1:
        return True
    values = _read(samples)
    if values.dtype.kind == "c":  # real and imaginary parts each have a sign and may be NaN
        values = np.stack([values.real, values.imag])
    first = values[..., :1]
    same = values == first
    if values.dtype.kind == "f":
        same |= (values != values) & (first != first)
        same &= (np.signbit(values) == np.signbit(first)) | (values != values)
    return bool(np.all(same))


def one_number(samples: Array, kind: str) -> Any:
    """The common number of `samples`, shape (n_samples,), as a 0-d array."""
    if samples.shape[0] == 1:
        return samples[0]
    policy, values = policy_in_force.get(), _read(samples)
    for record in records_in_force.get():
        record(kind, values)
    if policy == "first" or agreed(samples):
        return samples[0]
    if isinstance(policy, Decider):
        return samples[policy.number(values, kind)]
    shown = ", ".join(f"{value:.6g}" for value in values[:4]) + (", ..." if values.size > 4 else "")
    raise split(
        f"{'an' if kind == 'index' else 'a'} {kind} must be one number",
        f"{values.size} samples with {np.unique(values).size} different values ({shown})",
        "Use the function of the same name in x.__array_namespace__(), x.sample(i), sample_mean or per_sample. "
        f"{UNCHANGED}",
        values,
    )


def split(requirement: str, seen: str, advice: str, values: np.ndarray | None = None) -> BaseException:
    """The error to raise, with the expression in the caller's code and its place."""
    frame = caller()
    if (call := PROTOCOLS.what_to_call()) is not None:
        advice = call[1]
        seen = f"{seen} in {call[0]}" if call[0].startswith("a call") else seen
    expression, filename, lineno = place = place_of(frame)
    where = f" in `{expression}`" if expression else ""
    text = f"Ensemble: {requirement}; got {seen}{where} at {filename}:{lineno}. {advice}"
    error = DivergenceError(text, values, place)
    if not in_run():
        note_handler(error, frame)
    return failure(error, 1 if values is None else values.size)


def failure(error: Exception, n_samples: int = 1) -> BaseException:
    """What to raise where an operation on several samples failed with `error`, as one of them alone might not."""
    policy = policy_in_force.get()
    if isinstance(policy, Decider):
        return policy.refused(error)
    for decider in DECIDERS:
        decider.hear(error, n_samples)
    return error


def conversion_failure(error: TypeError, n_samples: int) -> BaseException:
    """`failure` of what no ensemble can be, though each sample may: a plain array, a key."""
    if not in_run():
        note_conversion(error, caller())
    return failure(error, n_samples)


def failure_of_sample(operation: Callable[[Any], Any], x: Any, error: Exception) -> BaseException:
    """`failure` of ``operation(x)``, which depends on type and shape alone: what one sample raises, where it does."""
    policy = policy_in_force.get()
    return policy.of_sample(operation, x, error) if isinstance(policy, Decider) else failure(error, x.n_samples)


def require_known(error: Exception) -> None:
    """Raise an `error` in `run` that is no sample's own: the samples' values are not known in a compiled function."""
    if is_of_tracing(error):
        error.add_note(
            "run: the samples' values are not known where a function is compiled or mapped (jax.jit, jax.vmap, "
            "torch.vmap), so that no sample can choose its path. Call run outside of it, or use xp.where; "
            "derivatives without compilation (jax.grad, jax.jacfwd, jax.hessian) are served."
        )
        raise error


def call_under_policy(f: Callable[..., Any], *arguments: Any) -> Any:
    """``f(*arguments)``; the policy replaces its exception, as one sample alone might not fail."""
    try:
        return f(*arguments)
    except Exception as error:
        if not isinstance(policy_in_force.get(), Decider):
            raise
        raise failure(error) from None  # no variable of this frame may name what is raised


def require_one_text(n_samples: int) -> None:
    """Raise in code that runs as if for one sample: a text or the bytes of an ensemble show every sample."""
    error = failure(ValueError("the text or the bytes of an ensemble"), n_samples)
    if in_run():
        raise error


def in_run() -> bool:
    """Whether the code runs as if for one sample."""
    return isinstance(policy_in_force.get(), Decider)


def as_scalars(samples: Array) -> bool:
    """Whether `samples` stand for a value without axes in code that runs as if for one sample."""
    return samples.ndim == 1 and isinstance(policy_in_force.get(), Decider)


def _numbers(values: np.ndarray, limit: int = 6) -> str:
    chosen = np.flatnonzero(values)
    shown = ", ".join(str(i) for i in chosen[:limit])
    return shown if chosen.size <= limit else f"{shown}, ... ({chosen.size} in all)"


def caller() -> FrameType:
    """The nearest frame outside this package's array layer and the array libraries."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_library_frame(frame):
        frame = frame.f_back
    return frame


def place_of(frame: FrameType) -> tuple[str, str, int]:
    """Expression, file and line that `frame` is at."""
    filename, lineno = frame.f_code.co_filename, frame.f_lineno
    line = linecache.getline(filename, lineno, frame.f_globals)
    expression = line.strip()
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    first, last, start, end = positions
    if first == last == lineno and start is not None and end is not None:
        # Columns count bytes of UTF-8, not characters.
        expression = line.encode()[start:end].decode(errors="replace").strip() or expression
    return expression, filename, lineno


def is_library_frame(frame: FrameType) -> bool:
    """Whether `frame` is the array layer's or an array library's."""
    libraries = "numpy.", "array_api_compat.", "array_api_strict.", "torch.", "jax.", "cupy."
    return str(frame.f_globals.get("__name__", "")).startswith(("ensemble.scalar.", *libraries))
