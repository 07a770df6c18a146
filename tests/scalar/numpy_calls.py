"""Random calls of NumPy's functions, and their comparison with the calls of each sample alone."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass, field

import numpy as np

from ensemble.scalar import Ensemble

DTYPES = "?bBhHiIqQfdFD"
FLOATS = "fd"
SPECIAL_VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf]


@contextlib.contextmanager
def quiet():
    """Random values overflow: neither NumPy's warnings nor its errors count here."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@dataclass
class Own:
    """An ensemble among the arguments: its memory with the sample axis last, and how it is seen."""

    memory: np.ndarray
    steps: tuple = ()

    def ensemble(self):
        return self._seen(Ensemble(self.memory.copy()))

    def sample(self, s):
        return self._seen(self.memory[..., 0 if self.memory.shape[-1] == 1 else s].copy())

    def _seen(self, x):
        for kind, step in self.steps:
            x = x.transpose(step) if kind == "transpose" else x[step]
        return x

    @property
    def shape(self):
        return self.sample(0).shape

    @property
    def dtype(self):
        return self.memory.dtype


@dataclass
class Plain:
    """A plain array among the arguments."""

    memory: np.ndarray

    @property
    def shape(self):
        return self.memory.shape

    @property
    def dtype(self):
        return self.memory.dtype


class Draw:
    """Random arguments: arrays of any type and layout, with axes often as long as there are samples."""

    def __init__(self, rng):
        self.rng = rng
        self.finite = False  # whether to draw neither infinities nor NaN
        self.n_samples = int(rng.choice([1, 2, 3, 3, 3, 4]))

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def integer(self, low, high):
        return int(self.rng.integers(low, high))

    def shape(self, low=0, high=3):
        sizes = [self.n_samples, 3, 2, 4, 1, 5] + [0] * self.chance(0.15)
        return tuple(self.pick(sizes) for _ in range(self.integer(low, high + 1)))

    def values(self, shape, dtype):
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if self.chance(0.2):
                return self.rng.integers(limits.min, limits.max, size=shape, dtype=dtype, endpoint=True)
            return self.rng.integers(max(limits.min, -5), 6, size=shape).astype(dtype)
        x = self.rng.normal(size=shape)
        if dtype.kind == "c":
            x = x + 1j * self.rng.normal(size=shape)
        elif self.chance(0.25) and not self.finite:
            x = np.where(self.rng.random(shape) < 0.3, self.rng.choice(SPECIAL_VALUES, size=shape), x)
        elif self.chance(0.3):
            x = np.round(2 * x) / 2
        return np.asarray(x).astype(dtype)

    def own(self, shape, dtype=None):
        """An ensemble of this visible shape: samples in one of several layouts."""
        dtype = self.pick(DTYPES) if dtype is None else dtype
        n_samples = 1 if self.chance(0.12) else self.n_samples
        steps = []
        if len(shape) > 1 and self.chance(0.25):
            order = tuple(int(k) for k in self.rng.permutation(len(shape)))
            steps.append(("transpose", order))
            shape = tuple(shape[order.index(k)] for k in range(len(shape)))
        if shape and self.chance(0.15):
            steps.insert(0, ("index", slice(None, None, -1)))
        elif shape and self.chance(0.1):
            steps.insert(0, ("index", slice(None, None, 2)))
            shape = (2 * shape[0], *shape[1:])
        return Own(
            np.ascontiguousarray(self.values((*shape, n_samples), dtype)).reshape(*shape, n_samples), tuple(steps)
        )

    def plain(self, shape, dtype=None):
        x = self.values(shape, self.pick(DTYPES) if dtype is None else dtype)
        if shape and self.chance(0.2):
            return np.asarray(x).tolist()
        return Plain(np.asarray(x))

    def array(self, low=0, high=3, dtypes=DTYPES, shape=None, own=0.85):
        shape = self.shape(low, high) if shape is None else shape
        dtype = self.pick(dtypes)
        return self.own(shape, dtype) if self.chance(own) else Plain(np.asarray(self.values(shape, dtype)))

    def like(self, x, dtypes=DTYPES, own=0.5):
        """Something that broadcasts against `x`: an ensemble, an array, a list or a number."""
        shape = tuple(1 if self.chance(0.15) else n for n in np.shape(x) if True)
        if shape and self.chance(0.3):
            shape = shape[self.integer(1, len(shape) + 1) :]
        if self.chance(own):
            return self.own(shape, self.pick(dtypes))
        kind = self.integer(0, 4)
        if kind == 0:
            return self.number(dtypes)
        return self.plain(shape, self.pick(dtypes))

    def number(self, dtypes=DTYPES):
        kinds = {np.dtype(c).kind for c in dtypes}
        choices = []
        if kinds & set("iu"):
            choices += [self.integer(-3, 4) if "i" in kinds else self.integer(0, 4)]
        if "b" in kinds:
            choices += [bool(self.integer(0, 2))]
        if kinds & set("fc"):
            choices += [float(np.round(self.rng.normal(), 1)), self.pick([0.5, np.nan, np.inf, -0.0])]
        if "c" in kinds:
            choices += [complex(1, 2)]
        value = self.pick(choices)
        return (
            np.dtype(self.pick(dtypes)).type(abs(value))
            if self.chance(0.25) and value == value and abs(value) < 9
            else value
        )

    def mask(self, x):
        return self.like(x, "?")

    def axis(self, x):
        n = len(x.shape)
        if n == 0:
            return self.pick([0, -1])
        return self.integer(-n, n) if self.chance(0.95) else n

    def axes(self, x):
        n = len(x.shape)
        kind = self.integer(0, 4)
        if kind == 0:
            return None
        if kind < 3 or n == 0:
            return self.axis(x)
        return tuple(int(k) for k in self.rng.permutation(n)[: self.integer(0, n + 1)])

    def options(self, **given):
        """Some of the options, each with the probability 0.3; a function draws its value."""
        return {key: value() if callable(value) else value for key, value in given.items() if self.chance(0.3)}

    def output(self, f, args, kwargs):
        """An `out` that fits the result of the call, of some type."""
        with quiet():
            result = f(*of_sample(args, 0), **of_sample(kwargs, 0))
        own = np.asarray(result).dtype
        dtype = own.char if self.chance(0.6) else self.pick(DTYPES)
        if own.kind in "fc" and np.dtype(dtype).kind in "biu":  # NaN as an integer is whatever the loop makes of it
            dtype = own.char
        return self.own(np.shape(result), dtype)


def of_sample(tree, s):
    """The arguments of sample `s` alone."""
    if isinstance(tree, Own):
        return tree.sample(s)
    if isinstance(tree, Plain):
        return tree.memory.copy()
    if type(tree) is dict:
        return {key: of_sample(value, s) for key, value in tree.items()}
    return type(tree)(of_sample(value, s) for value in tree) if type(tree) in (list, tuple) else tree


def of_ensemble(tree):
    """The arguments of all samples together."""
    if isinstance(tree, Own):
        return tree.ensemble()
    if isinstance(tree, Plain):
        return tree.memory.copy()
    if type(tree) is dict:
        return {key: of_ensemble(value) for key, value in tree.items()}
    return type(tree)(of_ensemble(value) for value in tree) if type(tree) in (list, tuple) else tree


def leaves(tree, kind):
    if isinstance(tree, kind):
        return [tree]
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value, kind)]
    if isinstance(tree, list | tuple):
        return [leaf for value in tree for leaf in leaves(value, kind)]
    return []


@dataclass
class Call:
    """One call: a function, its arguments, and how near results have to be."""

    name: str
    function: object
    args: tuple
    kwargs: dict = field(default_factory=dict)
    exact: bool = True
    memory: bool = True
    signed_zeros: bool = True

    def __str__(self):
        return f"{self.name}(*{self.args}, **{self.kwargs})"


@dataclass
class Nearness:
    """How near inexact results have to be: the precision and the size of the operands."""

    eps: float
    size: float


def _nearness(call):
    """True where the call has to agree to the bit."""
    if call.exact:
        return True
    operands = leaves((call.args, call.kwargs), (Own, Plain))
    dtypes = [operand.dtype for operand in operands] + leaves((call.args, call.kwargs), np.dtype)
    eps = max((np.finfo(dtype).eps for dtype in dtypes if dtype.kind in "fc"), default=0.0)
    sizes = [np.abs(operand.memory[np.isfinite(operand.memory)].astype(complex)) for operand in operands]
    return Nearness(eps, max(1.0, *(size.max(initial=0.0) for size in sizes)))


class DifferenceError(AssertionError):
    """A sample's result is not that of the sample's own call."""


def compared(call):
    """Run the call on all samples together and on each alone.

    Returns
    -------
    str
        "equal"; "refused: ..." where the call on ensembles raises an error and NumPy's does not; "both raise".

    Raises
    ------
    DifferenceError
        Where a result, an argument written to, or the memory that they share is not as in the sample's own call.
    """
    owns = leaves((call.args, call.kwargs), Own)
    n_samples = max(own.memory.shape[-1] for own in owns)
    with quiet():
        expected, arguments, errors = [], [], []
        for s in range(n_samples):
            args, kwargs = of_sample((call.args, call.kwargs), s)
            try:
                expected.append(call.function(*args, **kwargs))
                arguments.append((args, kwargs))
            except Exception as error:
                errors.append(error)
        args, kwargs = of_ensemble((call.args, call.kwargs))
        try:
            got = call.function(*args, **kwargs)
        except Exception as error:
            if len(errors) == n_samples:
                return "both raise"
            if errors:
                return "some raise"
            return f"refused: {type(error).__name__}: {error}"
    if errors and all(isinstance(error, np.linalg.LinAlgError) for error in errors) and _is_nan_somewhere(got):
        return "some raise"  # a matrix that the method cannot treat is NaN, with a warning, beside other samples
    if errors:
        raise DifferenceError(f"NumPy raises {type(errors[0]).__name__}: {errors[0]}; got {got!r}")
    ensembles = leaves((args, kwargs), Ensemble)
    exact = _nearness(call)
    expected = _of_one_type(expected)
    for s in range(n_samples):
        try:
            _same(got, expected[s], s, exact, "the result", call.signed_zeros)
        except DifferenceError:
            # An ensemble without axes is a scalar to some functions, which tell it from an array without axes.
            if all(own.shape for own in owns) or call.kwargs.get("out") is not None:
                raise
            with quiet():
                alone = call.function(*_with_scalars(call.args, s), **_with_scalars(call.kwargs, s))
            _same(got, alone, s, exact, "the result", call.signed_zeros)
        own_arrays = leaves(arguments[s], np.ndarray)
        all_arrays = leaves((args, kwargs), Ensemble | np.ndarray)
        for k, (mine, theirs) in enumerate(zip(all_arrays, own_arrays, strict=True)):
            if isinstance(mine, Ensemble):
                _same(mine, theirs, s, exact, f"argument {k} after the call", call.signed_zeros)
        if call.memory:
            with quiet():  # NumPy warns of a flag that it is asked for
                _same_memory(
                    got, expected[s], ensembles, [a for a, m in zip(own_arrays, all_arrays) if isinstance(m, Ensemble)]
                )
    return "equal"


def _with_scalars(tree, s):
    """The arguments of sample `s` alone, scalars of NumPy for ensembles without axes."""
    if isinstance(tree, Own):
        return tree.sample(s)[()]
    if type(tree) is dict:
        return {key: _with_scalars(value, s) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_with_scalars(value, s) for value in tree)
    return of_sample(tree, s)


def _is_nan_somewhere(got):
    return any(x.dtype.kind in "fc" and np.any(np.isnan(x.samples)) for x in leaves(got, Ensemble))


def _of_one_type(results):
    """Where NumPy's dtype depends on the values (real or complex roots), that of all samples together."""
    if (
        not all(isinstance(result, np.ndarray | np.generic) for result in results)
        or len({r.dtype for r in results}) == 1
    ):
        return results
    return [result.astype(np.result_type(*results)) for result in results]


def _same(got, expected, s, exact, what, signed_zeros=True):
    if isinstance(got, Ensemble):
        if isinstance(expected, list | tuple | str) or expected is None:
            raise DifferenceError(f"{what}: an ensemble for {expected!r}")
        mine, theirs = got.samples[..., 0 if got.is_shared else s], np.asarray(expected)
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            raise DifferenceError(f"{what}: {mine.shape} {mine.dtype} for {theirs.shape} {theirs.dtype}")
        _same_values(mine, theirs, exact, f"{what}, sample {s}", signed_zeros)
    elif isinstance(got, list | tuple):
        if not isinstance(expected, list | tuple) or len(got) != len(expected):
            raise DifferenceError(f"{what}: {got!r} for {expected!r}")
        for mine, theirs in zip(got, expected, strict=True):
            _same(mine, theirs, s, exact, what, signed_zeros)
    elif isinstance(got, np.ndarray):
        _same_values(got, np.asarray(expected), True, what)
    elif not (
        got is expected
        or (type(got) is type(expected) and got == expected)
        or (isinstance(got, bool | int) and got == expected)
    ):
        raise DifferenceError(f"{what}: {got!r} for {expected!r}")


def _same_values(got, expected, exact, what, signed_zeros=True):
    if exact is True:
        same = got.shape == expected.shape and np.array_equal(got, expected, equal_nan=got.dtype.kind in "fc")
        if same and got.dtype.kind == "f" and signed_zeros:
            same = np.array_equal(np.signbit(got)[got == got], np.signbit(expected)[got == got])
    else:
        if got.dtype.kind == "c":
            # BLAS and NumPy's loops make other infinities and NaN of the products of complex infinities.
            finite = np.isfinite(expected)
            if not np.array_equal(finite, np.isfinite(got)):
                raise DifferenceError(f"{what}: {got!r} for {expected!r}")
            got, expected = got[finite], expected[finite]
            for part in (np.real, np.imag):
                _same_values(part(got), part(expected), exact, what)
            return
        # Sums in another order, of up to some hundred terms of the size of the largest operand.
        eps = max(exact.eps, np.finfo(got.dtype).eps if got.dtype.kind in "fc" else 0.0)
        finite = np.abs(expected[np.isfinite(expected)]).astype(float)
        scale = max(exact.size, finite.max(initial=0.0))
        same = np.allclose(got, expected, rtol=1e3 * eps, atol=1e3 * eps * scale, equal_nan=True)
    if not same:
        raise DifferenceError(f"{what}: {got!r} for {expected!r}")


def _same_memory(got, expected, ensembles, arrays):
    for mine, theirs in zip(leaves(got, Ensemble), leaves(expected, np.ndarray | np.generic), strict=False):
        for ensemble, array in zip(ensembles, arrays, strict=True):
            if mine is ensemble or mine.size == 0:
                continue
            ours = np.shares_memory(mine.samples, ensemble.samples)
            # An ensemble without axes is a value, as NumPy's scalars are; its samples are arrays without axes here.
            wanted = array.ndim > 0 and isinstance(theirs, np.ndarray) and np.shares_memory(theirs, array)
            writable = mine.samples.flags.writeable
            if wanted and not ours and writable:
                raise DifferenceError("a copy where NumPy gives a view")
            if ours and writable and (not wanted or not theirs.flags.writeable):
                raise DifferenceError("memory of an argument where NumPy gives a value or a read-only view")
