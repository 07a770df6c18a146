"""Branches and loops in which samples differ: each branch runs only on the samples that take it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ensemble._backend import asarray_like, base_of, is_array, needs_gradient
from ensemble._check import integer, message, require, require_callable, require_one_library, samples_text
from ensemble._containers import filled, mapped, parts_of
from ensemble._keywords import explains_calls
from ensemble._typing import Namespace
from ensemble.scalar.divergence.masks import truth_values
from ensemble.scalar.ensemble import Ensemble, from_samples, packed, wrap
from ensemble.scalar.labels import labelled, labels_of_numbers
from ensemble.scalar.namespace import set_of
from ensemble.scalar.sample_set import SampleSet

__all__ = ["LoopResult", "cond", "per_sample", "while_loop"]


Step = Callable[[Any], Any]


# -- nested values -----------------------------------------------------------------------------------------------------


def _joined(f: Callable[[list[Any]], Any], values: list[Any], function: str) -> Any:
    """`f` of the values at each place of several nested values of one structure."""
    nests = [parts_of(value) for value in values]
    if all(nest is None for nest in nests):
        return f(values)
    parts = [nest or {} for nest in nests]
    alike = all(
        nest is not None and type(value) is type(values[0]) and nest.keys() == parts[0].keys()
        for nest, value in zip(nests, values, strict=True)
    )
    if not alike:
        seen = ", ".join(sorted({type(value).__name__ for value in values}))
        raise ValueError(message(function, "results", "be built alike in every branch and sample", f"parts of {seen}"))
    return filled(values[0], [_joined(f, [part[key] for part in parts], function) for key in parts[0]])


def ensembles_in(value: Any) -> list[Ensemble]:
    parts = parts_of(value)
    if parts is None:
        return [value] if isinstance(value, Ensemble) else []
    return [found for part in parts.values() for found in ensembles_in(part)]


def count_of(function: str, *values: Any) -> int:
    """The number of samples of all ensembles among nested `values`."""
    counts = {x.n_samples for x in ensembles_in(list(values))} - {1}
    seen = " and ".join(str(n) for n in sorted(counts))
    require(len(counts) < 2, function, "operands", "have one number of samples, or be shared", f"{seen} samples")
    return counts.pop() if counts else 1


# -- gather and scatter ------------------------------------------------------------------------------------------------


class Gather:
    """Samples at `chosen` of any ensemble; shared data passes as it is. Sample sets are cut once each."""

    def __init__(self, chosen: np.ndarray) -> None:
        self.chosen = chosen
        self._sets: dict[int, tuple[SampleSet, SampleSet]] = {}

    def __call__(self, x: Any) -> Any:
        if not isinstance(x, Ensemble) or x.is_shared:
            return x
        base = base_of(x.samples)
        samples = base.take(x.samples, asarray_like(self.chosen, x.samples), axis=-1)
        gathered = wrap(packed(samples), self._set(x.sample_set) if self.chosen.size > 1 else None)
        return labelled(gathered, labels_of_numbers(x))

    def _set(self, whole: SampleSet | None) -> SampleSet | None:
        if whole is None:
            return None
        if id(whole) not in self._sets:
            self._sets[id(whole)] = (whole, whole.take(self.chosen))
        return self._sets[id(whole)][1]


def _scattered(
    values: list[Any], places: list[np.ndarray], n_samples: int, sample_set: SampleSet | None, function: str
) -> Any:
    """One value for all samples from the results of the groups of samples at `places`."""
    numeric = [v for v in values if isinstance(v, Ensemble | bool | int | float | complex) or is_array(v)]
    if len(numeric) < len(values):
        same = not numeric and all(value is values[0] or value == values[0] for value in values)
        advice = "Return arrays, numbers or ensembles, in dicts, lists or tuples."
        require(same, function, "results without numbers", "be equal in all branches", values, advice)
        return values[0]
    arrays = [v for v in values if isinstance(v, Ensemble) or (is_array(v) and not isinstance(v, np.generic))]
    like = arrays[0] if arrays else np.empty(0)
    require_one_library(function, "results", *(v.samples if isinstance(v, Ensemble) else v for v in arrays))
    base = base_of(like.samples if isinstance(like, Ensemble) else like)
    # Python's numbers take the dtype of the arrays next to them.
    numbers = [v for v in values if not any(v is array for array in arrays)]
    numbers = [v.item() if isinstance(v, np.generic) else v for v in numbers] if arrays else []
    dtype = base.result_type(*(v.dtype for v in arrays), *numbers) if arrays else None
    columns = []
    for value, place in zip(values, places, strict=True):
        if isinstance(value, Ensemble):
            samples = value.samples
        else:
            samples = base.asarray(value, dtype=dtype if not is_array(value) else None)[..., None]
        fits = samples.shape[-1] in (1, place.size)
        advice = "A branch must use its arguments, not ensembles from outside."
        seen = f"{samples.shape[-1]} for {place.size} samples"
        require(fits, function, "a result", "have the samples that its branch was given", seen, advice)
        columns.append(base.broadcast_to(samples, (*samples.shape[:-1], place.size)))
    shape = np.broadcast_shapes(*(tuple(column.shape[:-1]) for column in columns))
    columns = [base.broadcast_to(column, (*shape, column.shape[-1])) for column in columns]
    dtype = base.result_type(*(column.dtype for column in columns))
    joined = base.concat([base.astype(column, dtype, copy=False) for column in columns], axis=-1)
    back = np.empty(n_samples, dtype=np.int64)
    back[np.concatenate(places)] = np.arange(n_samples)
    return wrap(packed(base.take(joined, base.asarray(back), axis=-1)), sample_set if n_samples > 1 else None)


def one_set(*values: Any) -> SampleSet | None:
    return set_of(*ensembles_in(list(values)))


# -- the three ways ----------------------------------------------------------------------------------------------------


@explains_calls("cond")
def cond(m: Any, f: Callable[..., Any], g: Callable[..., Any], *args: Any) -> Any:
    """Evaluate ``f(*args)`` in the samples where `m` holds and ``g(*args)`` in the others.

    The samples that take a branch are gathered, the branch runs on them alone, and the results are put back in order:
    neither branch gets a sample that did not choose it, and a branch without samples is not called.

    Parameters
    ----------
    m : bool Ensemble, shape (), or a plain bool
    f, g : callables
        They get `args`, each ensemble cut to the samples of the branch, and return values of one structure: arrays,
        numbers or ensembles, in dicts, lists or tuples.
    *args : any
        Ensembles in nested dicts, lists and tuples are found, too.

    Returns
    -------
    What `f` and `g` return, with ensembles of all samples

    Raises
    ------
    ValueError
        If `m` has an axis, the results have different structures, or a branch returns other samples than it was given.

    Examples
    --------
    >>> import numpy as np
    >>> x = Ensemble(np.array([4.0, -1.0, 9.0]))
    >>> xp = x.__array_namespace__()
    >>> cond(x > 0.0, xp.sqrt, lambda x: 0.0 * x, x).samples
    array([ 2., -0.,  3.])
    """
    require_callable(f, "cond", "f")
    require_callable(g, "cond", "g")
    holds = truth_values(m, "cond")
    n_samples, sample_set = max(count_of("cond", m, *args), holds.size), one_set(m, *args)
    if holds.all():
        return f(*args)
    if not holds.any():
        return g(*args)
    require(holds.size == n_samples, "cond", "m", f"have {n_samples} samples, as the arguments", holds.size)
    places = [np.flatnonzero(holds), np.flatnonzero(~holds)]
    values = [
        branch(*(mapped(Gather(place), arg) for arg in args)) for branch, place in zip((f, g), places, strict=True)
    ]
    return _joined(lambda pair: _scattered(pair, places, n_samples, sample_set, "cond"), values, "cond")


class LoopResult(NamedTuple):
    """What `while_loop` returns: the last state, and the iterations of each sample, shape (n_samples,)."""

    state: Any
    iterations: np.ndarray


@explains_calls("while_loop")
def while_loop(
    active: Step, body: Step, state: Any, compact_below: float = 0.5, *, max_iterations: int | None = None
) -> LoopResult:
    """Repeat ``state = body(state)`` in each sample as long as ``active(state)`` holds there.

    A sample that is done is frozen: its state stays as it was when `active` first failed, whatever the others do. When
    less than `compact_below` of the samples computed are still active, these are gathered into a smaller ensemble.

    Parameters
    ----------
    active : callable
        ``active(state)``: a bool ensemble of shape (), or a plain bool.
    body : callable
        ``body(state)``: the next state, of the structure of `state`. Frozen samples may still be
        computed; their results are dropped.
    state : Ensemble, array or number, nested in dicts, lists or tuples
    compact_below : float in [0, 1], dimensionless
        0: never gather; 1: as soon as one sample is done, so that `body` never gets a finished sample.
    max_iterations : int, optional
        Stop there, with samples still active.

    Returns
    -------
    LoopResult
        ``(state, iterations)``.

    Raises
    ------
    ValueError
        If `compact_below` is outside [0, 1], or a state has another structure than the one before.

    Examples
    --------
    >>> x = Ensemble(np.array([1.0, 10.0, 100.0]))
    >>> state, iterations = while_loop(lambda x: x > 1.0, lambda x: x / 2.0, x)
    >>> state.samples, iterations
    (array([1.     , 0.625  , 0.78125]), array([0, 4, 7]))
    """
    require(0.0 <= compact_below <= 1.0, "while_loop", "compact_below", "be in [0, 1]", compact_below)
    limit = None if max_iterations is None else integer(max_iterations, "while_loop", "max_iterations", minimum=0)
    require_callable(active, "while_loop", "active")
    require_callable(body, "while_loop", "body")
    holds = truth_values(active(state), "while_loop")
    n_samples = max(count_of("while_loop", state), holds.size)
    sample_set = one_set(state)
    iterations = np.zeros(n_samples, dtype=np.int64)
    ids = np.arange(n_samples)  # the samples computed, in the order of `state`
    finished: list[tuple[np.ndarray, Any]] = []
    running, steps = np.broadcast_to(holds, ids.shape), 0
    while running.any() and (limit is None or steps < limit):
        if (not running.all() and running.sum() < compact_below * ids.size) or (
            compact_below == 1.0 and not running.all()
        ):
            finished.append((ids[~running], mapped(Gather(np.flatnonzero(~running)), state)))
            state = mapped(Gather(np.flatnonzero(running)), state)
            ids, running = ids[running], np.ones(int(running.sum()), dtype=bool)
        state = _frozen(running, body(state), state)
        iterations[ids[running]] += 1
        steps += 1
        running = running & truth_values(active(state), "while_loop")
    state = _combined_state(finished, ids, state, n_samples, sample_set)
    return LoopResult(state, iterations)


def _combined_state(
    finished: list[tuple[np.ndarray, Any]], ids: np.ndarray, state: Any, n_samples: int, sample_set: SampleSet | None
) -> Any:
    """The state of all samples, in order, from those taken out early and those that ran to the end."""
    if not finished:
        return state
    places = [*(place for place, _ in finished), ids]
    states = [*(value for _, value in finished), state]
    return _joined(lambda v: _scattered(v, places, n_samples, sample_set, "while_loop"), states, "while_loop")


def _frozen(running: np.ndarray, new: Any, old: Any) -> Any:
    """`new` where samples run, `old` where they are done."""
    if running.all():
        return _joined(lambda pair: pair[0], [new, old], "while_loop")

    def pick(pair: list[Any]) -> Any:
        value, before = pair
        if value is before:
            return value
        places = [np.flatnonzero(running), np.flatnonzero(~running)]
        parts = [Gather(places[0])(value), Gather(places[1])(before)]
        return _scattered(parts, places, running.size, one_set(value, before), "while_loop")

    return _joined(pick, [new, old], "while_loop")


def per_sample(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of plain values so that it takes ensembles: a loop over the samples.

    Parameters
    ----------
    f : callable
        It gets plain arrays and numbers (a 0-d ensemble becomes a number of Python) and may branch, loop and call any
        library. It returns arrays or numbers, in dicts, lists or tuples; anything else must be equal in all samples.

    Returns
    -------
    callable
        With the arguments of `f`, ensembles allowed anywhere in nested dicts, lists and tuples. Without an ensemble
        among them it is `f` itself. Types are kept: a float32 result stays float32, a bool a bool.

    Raises
    ------
    ValueError
        If the samples give results of different build or shape. An exception of `f` gets a note with its sample.

    Examples
    --------
    >>> @per_sample
    ... def collatz_steps(n):
    ...     steps = 0
    ...     while n != 1:
    ...         n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    ...     return steps
    >>> collatz_steps(Ensemble(np.array([1, 6, 7]))).samples
    array([ 0,  8, 16])
    """
    require_callable(f, "per_sample", "f")
    name = getattr(f, "__name__", "per_sample")

    @functools.wraps(f)
    def looped(*args: Any, **options: Any) -> Any:
        nest = (args, options)
        found = ensembles_in(list(args)) + ensembles_in(options)
        if not found:
            return f(*args, **options)
        n_samples = count_of(name, *found)
        results = []
        for s in range(n_samples):
            chosen, named = mapped(functools.partial(_plain_sample, s=s), nest)
            try:
                results.append(f(*chosen, **named))
            except Exception as error:
                error.add_note(f"{name}: in {samples_text([s])} of {n_samples}")
                raise
        sample_set = one_set(*found)
        base = base_of(found[0].samples)
        return _joined(lambda values: _stacked_results(base, values, sample_set, name), results, name)

    return looped


def _plain_sample(x: Any, s: int) -> Any:
    if not isinstance(x, Ensemble):
        return x
    plain = x.sample(s)
    if x.ndim:
        return plain
    base = base_of(x.samples)
    kinds = {"bool": bool, "int64": int, "float64": float, "complex128": complex}
    convert = next((kind for name, kind in kinds.items() if x.dtype == getattr(base, name)), None)
    # A number of Python has no derivative.
    return plain if convert is None or needs_gradient(plain) else convert(plain)


def _stacked_results(base: Namespace, values: list[Any], sample_set: SampleSet | None, name: str) -> Any:
    first = values[0]
    if not is_array(first) and not isinstance(first, int | float | complex):
        require(all(v == first for v in values), name, "a result without numbers", "be equal in all samples", values)
        return first
    columns = [v if is_array(v) and not isinstance(v, np.generic) else base.asarray(v) for v in values]
    shapes = {tuple(column.shape) for column in columns}
    seen = ", ".join(str(shape) for shape in sorted(shapes))
    require(len(shapes) == 1, name, "results", "have one shape in all samples", seen)
    dtype = base.result_type(*(column.dtype for column in columns))
    columns = [base.astype(column, dtype, copy=False) for column in columns]
    return from_samples(columns, sample_set if len(columns) > 1 else None)
