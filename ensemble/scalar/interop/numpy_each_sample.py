"""NumPy's functions on every sample by itself: those that only compute, and those that write to an argument."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._backend import is_array
from ensemble._check import kind_of, message, samples_text
from ensemble.scalar._memory import follow, refill
from ensemble.scalar.divergence.policy import failure
from ensemble.scalar.ensemble import Ensemble, as_array
from ensemble.scalar.interop.methods import read_only
from ensemble.scalar.interop.ufuncs import refuse_value, unsupported
from ensemble.scalar.lift.each_sample import SCALARS, stacked_results
from ensemble.scalar.namespace import EnsembleNamespace, samples_of, set_of
from ensemble.scalar.plain_arrays import stack_of
from ensemble.scalar.sample_set import common_set

__all__ = ["EACH_SAMPLE", "is_only_read", "on_each_sample", "signature_of", "written_arguments"]

NAMES = (
    "angle append apply_along_axis apply_over_axes argmax argmin argpartition argsort argwhere around array_equal "
    "array_equiv array_split atleast_1d atleast_2d atleast_3d average bincount block choose clip column_stack compress "
    "concatenate convolve corrcoef correlate cov cross cumprod cumsum cumulative_prod cumulative_sum delete diag "
    "diagflat diagonal diff digitize dot dsplit dstack ediff1d "
    "einsum extract fill_diagonal fix flatnonzero fliplr flipud geomspace gradient histogram histogram2d "
    "histogram_bin_edges hsplit hstack i0 in1d inner "
    "insert interp intersect1d isin iscomplex isneginf isposinf isreal ix_ kron lexsort linspace logspace max mean "
    "median min "
    "nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod "
    "nanquantile nanstd nansum nanvar outer packbits pad partition percentile piecewise place poly polyadd polyder "
    "polydiv polyfit polyint polymul polysub polyval prod ptp put put_along_axis putmask quantile ravel real_if_close "
    "repeat resize roll rollaxis "
    "roots rot90 round searchsorted select setdiff1d setxor1d sinc sort sort_complex split stack std sum take "
    "take_along_axis tensordot "
    "trace trapezoid trim_zeros union1d unique unpackbits unwrap vander var vdot vsplit vstack linalg.cond "
    "linalg.eigh linalg.eigvalsh linalg.lstsq "
    "linalg.matrix_rank linalg.multi_dot linalg.norm linalg.pinv linalg.qr linalg.svd linalg.tensorinv "
    "linalg.tensorsolve fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft fft.fft2 fft.ifft2 fft.rfft2 "
    "fft.irfft2 fft.fftn fft.ifftn fft.rfftn fft.irfftn"
)

EACH_SAMPLE = frozenset(NAMES.split())
"""Functions that only compute: what they give for an ensemble is what they give for each sample, stacked."""

WRITE_TO = {
    np.put: "a",
    np.putmask: "a",
    np.place: "arr",
    np.put_along_axis: "arr",
    np.fill_diagonal: "a",
}
"""Functions that change an argument, by its name."""


@functools.cache
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@functools.cache
def _first_written(function: Callable[..., Any]) -> float:
    """The place of the first argument that says what is written to; infinity where none of them has a place."""
    try:
        parameters = signature_of(function).parameters.values()
    except (TypeError, ValueError):  # no signature is known
        return math.inf
    by_place = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return min((by_place.index(name) for name in ("out", "copy") if name in by_place), default=math.inf)


MAY_WRITE = frozenset(("out", "copy", "overwrite_input"))


def is_only_read(function: Any, arguments: Any, options: Any) -> bool:
    """Whether the call certainly changes no argument."""
    named = options and not MAY_WRITE.isdisjoint(options)
    return not named and function not in WRITE_TO and len(arguments) <= _first_written(function)


def written_arguments(function: Any, arguments: Any, options: Any) -> dict[str, Any]:
    """The arguments that the call changes, by the names of NumPy's parameters."""
    if function in WRITE_TO:
        name = WRITE_TO[function]
        return {name: arguments[0] if arguments else options.get(name)}
    if options.keys().isdisjoint(("out", "copy")) and len(arguments) <= _first_written(function):
        return {}
    try:
        given = signature_of(function).bind(*arguments, **options).arguments
    except (TypeError, ValueError):  # no signature is known, or the call does not fit and the function raises the error
        given = options
    written: dict[str, Any] = {}
    if given.get("out") is not None:
        written["out"] = given["out"]
    if given.get("copy") is False and function is np.nan_to_num:
        written["x"] = given["x"]
    return written


def on_each_sample(
    ns: EnsembleNamespace, name: str, function: Any, arguments: Any, options: Any, written: dict[str, Any]
) -> Any:
    """`function` on the plain arrays of one sample after the other; nested lists may hold ensembles.

    What it writes to an argument is written when all samples are done, so that an error leaves every one as it was.
    """
    targets = _targets(name, written)
    if function is np.put and targets[0].is_value:
        return None  # NumPy makes an array of a scalar, and writes into that
    if function is np.nan_to_num and targets and targets[0].is_value:
        raise ValueError(message(name, "copy", "be True for a value without axes", False))
    for target in targets:
        refuse_value(name, target)
    calls = _Calls(name, function, arguments, options, targets)
    result = stacked_results(ns, name, _results(name, calls), set_of(*calls.found))
    for k, target in zip(calls.targets, targets, strict=True):
        _write(target, calls.rows[k], calls.n_samples, calls.found)
    if calls.gave_nothing:
        return None
    if calls.gave_target:
        return targets[0]
    for k, part in enumerate(result if isinstance(result, tuple) else (result,)):
        if k in calls.views:  # a view of each sample's own array: here there is nothing to write through to
            _follow_places(part, calls.views[k], calls.found)
        elif k in calls.arrays_without_axes:
            as_array(part)
    return result


class _Calls:
    """The calls of a function for each sample, and what is seen of their results.

    Attributes
    ----------
    found : list of Ensemble
        The ensembles among the arguments, each once.
    rows : list of lists of arrays
        The plain arrays of each of them, sample by sample: copies, which the calls may have written to.
    views : dict
        Results that are views of an argument, by number and sample: which argument, which entries.
    arrays_without_axes : set of int
        The results that NumPy gives as arrays without axes and not as scalars.
    gave_target, gave_nothing : bool
        Whether the result is the argument written to, or None.
    """

    def __init__(self, name: str, function: Any, arguments: Any, options: Any, targets: list[Ensemble]) -> None:
        self.name, self.function = name, function
        self.found: list[Ensemble] = []
        self.arguments = [_marked(x, self.found) for x in arguments]
        self.options = {key: _marked(x, self.found) for key, x in options.items()}
        self.targets = [next(k for k, x in enumerate(self.found) if x is target) for target in targets]
        self.n_samples = samples_of(name, *self.found)
        self.rows = [_rows(x, self.n_samples, k in self.targets) for k, x in enumerate(self.found)]
        columns = [self._column(part) for part in self.arguments]
        self.given: list[tuple[Any, ...]] = list(zip(*columns, strict=True)) if columns else [()] * self.n_samples
        self.varied = [key for key, part in self.options.items() if _has_places(part)]
        self.views: dict[int, dict[int, Any]] = {}
        self.arrays_without_axes: set[int] = set()
        self.gave_target = self.gave_nothing = False

    def all(self) -> list[Any]:
        """The function on all samples in turn, with as little around the calls as may be."""
        if self.varied or self.targets:
            return [self.call(s) for s in range(self.n_samples)]
        function = functools.partial(self.function, **self.options) if self.options else self.function
        results = list(itertools.starmap(function, self.given))
        if len(results) > 1:
            known: set[int] = set()
            parts = list(zip(*results, strict=True)) if all(type(r) is tuple for r in results) else [results]
            if all(self._are_new(part, known) for part in parts):
                return results
        return [self._seen(s, result) for s, result in enumerate(results)]

    def _are_new(self, results: Any, known: set[int]) -> bool:
        """Whether these are scalars, or arrays of which none is a view or an argument."""
        kinds = set(map(type, results))
        if kinds <= SCALARS or all(issubclass(kind, PLAIN_RESULTS) for kind in kinds):
            return True
        if kinds != ARRAYS or 0 in {r.ndim for r in results}:
            return False
        owners, bases = results, [r.base for r in results]
        if {*map(type, bases)} != NO_BASE:
            owners = [r if base is None else base for r, base in zip(results, bases, strict=True)]
            if not all(type(owner) is np.ndarray and owner.base is None for owner in owners):
                return False
        if not known:
            for row in self.rows:
                known |= {id(array) for array in row} | {id(getattr(array, "base", None)) for array in row}
        return known.isdisjoint(map(id, owners))

    def call(self, s: int) -> Any:
        """The function on sample `s`; an empty tuple for None."""
        named = self.options
        if self.varied:
            plain = [row[s] for row in self.rows]
            named = {**named, **{key: _filled(named[key], plain) for key in self.varied}}
        return self._seen(s, self.function(*self.given[s], **named))

    def _seen(self, s: int, result: Any) -> Any:
        """The result of sample `s`, of which is kept what kind of result it is."""
        if type(result) is np.ndarray and result.base is None and result.ndim:  # the common case
            for row in self.rows:
                if row[s] is result:
                    break
            else:
                return result
        for target in self.targets:
            self.gave_target |= result is self.rows[target][s]
        if result is None:
            self.gave_nothing = True
            return ()
        parts = result if isinstance(result, list | tuple) else [result]
        for k, part in enumerate(parts):
            if type(part) is np.ndarray:
                self._look_at(k, part, s)
            elif not (isinstance(part, PLAIN_RESULTS) or is_array(part)):
                raise unsupported(self.name, f"its result is {kind_of(result)}")
        return tuple(result) if isinstance(result, list) else result

    def _column(self, part: Any) -> list[Any]:
        if type(part) is _Place:
            return self.rows[part.number]
        if not _has_places(part):
            return [part] * self.n_samples
        if type(part) is dict:
            columns = zip(*(self._column(value) for value in part.values()), strict=True)
            return [dict(zip(part, values, strict=True)) for values in columns]
        return list(map(type(part), zip(*(self._column(value) for value in part), strict=True)))

    def _look_at(self, k: int, part: np.ndarray, s: int) -> None:
        if not part.ndim:
            self.arrays_without_axes.add(k)
        for number, row in enumerate(self.rows):
            array = row[s]
            if type(array) is np.ndarray and np.may_share_memory(part, array):
                self.views.setdefault(k, {})[s] = number, _places(part, array)


CONTAINERS = frozenset((dict, list, tuple))
ARRAYS = {np.ndarray}
NO_BASE = {type(None)}
PLAIN_RESULTS = (np.generic, bool, int, float, complex)


def _rows(x: Ensemble, n_samples: int, is_target: bool) -> list[Any]:
    """The plain array of each sample: copies, of samples in turn at once where the order of memory stays."""
    samples = x.samples
    if samples.shape[-1] == 1:
        own = n_samples if is_target else 1
        rows = [x.sample(0) if is_target or not x.is_value else x.sample(0)[()] for _ in range(own)]
        return rows if is_target else rows * n_samples
    if x.is_value and not is_target:
        return list(samples)
    if samples.ndim == 2 or (samples.ndim > 2 and samples.flags.c_contiguous):
        return list(stack_of(samples))
    return [x.sample(s) for s in range(n_samples)]


def _targets(name: str, written: dict[str, Any]) -> list[Ensemble]:
    targets = []
    for key, value in written.items():
        for target in value if isinstance(value, tuple) else (value,):
            if not isinstance(target, Ensemble):
                advice = "A plain array cannot hold samples; make an Ensemble of it first."
                raise TypeError(message(name, key, "be an Ensemble", kind_of(target), advice))
            targets.append(target)
    return targets


def _write(target: Ensemble, columns: list[np.ndarray], n_samples: int, found: list[Ensemble]) -> None:
    if target.is_shared and n_samples > 1:
        target._widen(n_samples)
    target.samples[...] = np.stack(columns, axis=-1)
    refill(target._memory_token)
    for x in found:
        target.sample_set = common_set(target.sample_set, x.sample_set)


def _places(part: np.ndarray, array: np.ndarray) -> np.ndarray | None:
    """The numbers of those entries of `array`, rows first, that its view `part` shows; None of another dtype."""
    if part.dtype != array.dtype:
        return None
    numbers = np.empty_like(array, dtype=np.int64)  # in the order of the memory of `array`
    numbers[...] = np.arange(array.size).reshape(array.shape)
    size = array.itemsize
    offset = (part.__array_interface__["data"][0] - array.__array_interface__["data"][0]) // size
    strides = tuple(stride // size * numbers.itemsize for stride in part.strides)
    return np.ndarray(part.shape, np.int64, numbers.ravel(order="K"), offset * numbers.itemsize, strides).copy()


def _follow_places(part: Ensemble, views: dict[int, Any], found: list[Ensemble]) -> None:
    """Make `part` show, read-only, the entries of the ensemble that each sample's result is a view of."""
    sources = {place for place, _ in views.values()}
    if len(sources) != 1 or len(views) != part.n_samples or any(numbers is None for _, numbers in views.values()):
        read_only(part)
        return
    x = found[sources.pop()]
    samples = x.samples

    def fill(memory: np.ndarray) -> None:
        for s, (_, numbers) in views.items():
            memory[..., s] = (
                samples[..., 0 if samples.shape[-1] == 1 else s].flat[numbers.ravel()].reshape(numbers.shape)
            )

    follow(x, part, fill)


def _results(name: str, calls: _Calls) -> list[Any]:
    """The result of each sample; NaN, and a warning, for samples whose matrix the method cannot treat."""
    n_samples = calls.n_samples
    results: list[Any] = []
    if not calls.targets:
        try:
            return calls.all()
        except np.linalg.LinAlgError:  # of which samples is found by calls of each
            pass
    failed: list[int] = []
    error: Exception | None = None
    for s in range(n_samples):
        try:
            results.append(calls.call(s))
        except np.linalg.LinAlgError as raised:
            if (other := failure(raised)) is not raised:
                raise other from None
            failed, error = [*failed, s], raised
            results.append(None)
    if error is None:
        return results
    good = next((result for result in results if result is not None), None)
    nan = None if good is None else _nan_like(good)
    if nan is None:
        raise error
    seen = f"a failure in {len(failed)} of {n_samples}, {samples_text(failed, of=n_samples)} ({error})"
    text = message(name, "x", "be fit for the method in every sample", seen, "The result of these samples is NaN.")
    warnings.warn(text, RuntimeWarning, stacklevel=5)
    return [nan if result is None else result for result in results]


def _nan_like(good: Any) -> Any:
    """`good` with NaN for its numbers, and 0 for an integer beside them, as a rank is; None where none are floats."""
    if isinstance(good, tuple):
        parts = [_nan_like(part) for part in good]
        if all(part is None for part in parts):
            return None
        parts = [np.zeros_like(mine) if part is None else part for part, mine in zip(parts, good, strict=True)]
        return type(good)(*parts) if hasattr(good, "_fields") else tuple(parts)
    array = np.asarray(good)
    return np.full(array.shape, np.nan, dtype=array.dtype) if array.dtype.kind in "fc" else None


class _Place:
    """Where an ensemble stood among the arguments."""

    def __init__(self, number: int) -> None:
        self.number = number


def _mark_of(x: Ensemble, found: list[Ensemble]) -> _Place:
    for number, known in enumerate(found):
        if known is x:
            return _Place(number)
    found.append(x)
    return _Place(len(found) - 1)


def _marked(value: Any, found: list[Ensemble]) -> Any:
    """`value` with a mark instead of every ensemble; these are gathered in `found`, each once."""
    if isinstance(value, Ensemble):
        return _mark_of(value, found)
    if type(value) not in CONTAINERS:
        return value
    if type(value) is dict:
        return {key: _marked(part, found) for key, part in value.items()}
    return type(value)(_marked(part, found) for part in value)


def _has_places(value: Any) -> bool:
    """Whether ensembles stood among nested arguments."""
    if type(value) not in CONTAINERS:
        return type(value) is _Place
    return any(map(_has_places, value.values() if type(value) is dict else value))


def _filled(value: Any, plain: Any) -> Any:
    if isinstance(value, _Place):
        return plain[value.number]
    if type(value) is dict:
        return {key: _filled(part, plain) for key, part in value.items()}
    return type(value)(_filled(part, plain) for part in value) if type(value) in (list, tuple) else value
