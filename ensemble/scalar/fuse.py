"""`@fuse`: an elementwise function of ensembles in one pass over memory."""

from __future__ import annotations

import enum
import functools
import inspect
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import array_namespace, backend_of, is_array
from ensemble._check import kind_of, message
from ensemble._compile.trace.broadcast import Layout, layout_of
from ensemble._compile.trace.fingerprint import fingerprint, reads_arguments_only
from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.numbers import literals, reads_numbers
from ensemble._compile.trace.operations import DTYPES
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._containers import mapped
from ensemble._keywords import explains_calls
from ensemble._typing import Array, Namespace
from ensemble.scalar.ensemble import Ensemble, wrap
from ensemble.scalar.namespace import samples_of, set_of

if TYPE_CHECKING:
    from ensemble._compile.trace.fused import Compiled

__all__ = ["Fused", "fuse"]

PYTHON_NUMBERS = {bool: "pybool", int: "pyint", float: "pyfloat"}

CONSTANTS = (str, bytes, tuple, frozenset, type, type(None), np.dtype, enum.Enum, types.ModuleType, types.FunctionType)
"""Arguments that are static without being named: they cannot change between two calls."""

KNOWN = {np.dtype(name): name for name in DTYPES}
"""NumPy dtypes that are traced; arrays of every other dtype run the untraced function."""

NUMPY_SCALARS = {dtype.type: name for dtype, name in KNOWN.items()}


def constant_key(value: Any) -> tuple[Any, ...]:
    """What tells a static value from others: types, and signs of zeros, inside of tuples and sets, too."""
    kind = type(value)
    if kind in (float, complex):
        return kind, repr(value)
    if isinstance(value, tuple):
        return kind, tuple(constant_key(item) for item in value)
    if kind is frozenset:
        return kind, frozenset(constant_key(item) for item in value)
    if isinstance(value, np.generic):
        return kind, value.dtype.str, value.tobytes()
    return kind, value


KEPT = 256
"""Traces of one function that are kept: values that it reads from outside may change with every call."""


class Fused:
    """An elementwise function that `fuse` has wrapped; `original` is the function itself."""

    def __init__(self, function: Callable[..., Any], static: Iterable[str]) -> None:
        functools.update_wrapper(self, function)
        self.original = function
        self._name = getattr(function, "__name__", "fuse")
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters
        for parameter in parameters.values():
            advice = "Write each argument out."
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                seen = f"*{parameter.name}"
                raise TypeError(message("fuse", "function", "have a fixed list of arguments", seen, advice))
            if parameter.name == "out":
                raise TypeError(message("fuse", "function", "leave the name out to fuse", "an argument out"))
        static = (static,) if isinstance(static, str) else tuple(static)
        for name in static:
            if name not in parameters:
                raise ValueError(message("fuse", "static", f"name arguments of {self._name}", repr(name)))
        self._static = tuple(name in static for name in parameters if name != "xp")
        self._takes_xp = "xp" in parameters
        self._names = tuple(name for name in parameters if name != "xp")
        self._plain = all(parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY for name in self._names)
        self._compiled: dict[Any, Compiled] = {}
        self._alone = self._takes_functions = False  # alone: known to read nothing from outside

    @property
    def n_traces(self) -> int:
        """How many combinations of dtypes, static values and values read from outside are kept."""
        return len(self._compiled)

    @property
    def traces_as(self) -> Callable[..., Any]:
        """The function that is traced where another traced function calls this one."""
        return self.original

    def __repr__(self) -> str:
        return f"<fused {self._name}{self._signature}>"

    def __call__(self, *arguments: Any, out: Any = None, **keywords: Any) -> Any:
        if keywords or len(arguments) != len(self._names) or not self._plain:
            arguments, xp = self._bound(arguments, keywords)
            if xp is not None:
                return self._by_itself(arguments, out, xp)
        lifted = False
        for value in arguments:
            if type(value) is Ensemble:
                lifted = True
                break
        key, arrays = self._sorted(arguments, lifted)
        if key is None or not arrays:
            return self._by_itself(arguments, out)
        compiled = self._compiled.get(key) if self._alone else None
        if compiled is None:
            if not self._traceable(arrays):
                return self._by_itself(arguments, out)
            try:
                compiled = self._kept(key, arguments, arrays)
            except OverflowError:  # a number beyond the integers that it is compared with
                return self._by_itself(arguments, out)
        if compiled.constant:
            return self._by_itself(arguments, out)
        sample_set = set_of(*arguments) if lifted else None
        layout = self._layout(arguments, arrays)
        targets = None if out is None else self._targets(out, compiled, layout, lifted)
        try:
            results = compiled.run(layout, arrays, arguments, targets)
        except OverflowError:
            return self._by_itself(arguments, out)
        if out is not None:
            return self._filled(out, sample_set)
        if lifted:
            results = [wrap(result, sample_set) for result in results]
        return results[0] if compiled.single else compiled.graph.nest(results)

    # -- arguments -----------------------------------------------------------------------------------------------------

    def _bound(self, arguments: Any, keywords: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        """All arguments but `xp` in the order of the parameters, and `xp` where the caller gave one."""
        if self._takes_xp and "xp" not in keywords:
            given = self._signature.bind_partial(*arguments, **keywords)
            given.apply_defaults()
            missing = [name for name in self._names if name not in given.arguments]
            if missing:
                raise TypeError(message(self._name, missing[0], "be given", "nothing"))
            xp = given.arguments.get("xp")
        else:
            given = self._signature.bind(*arguments, **keywords)
            given.apply_defaults()
            xp = given.arguments.get("xp")
        return tuple(given.arguments[name] for name in self._names), xp

    def _sorted(self, arguments: Any, lifted: bool) -> tuple[tuple[Any, ...] | None, dict[int, Any]]:
        """The key of a trace, and the arrays by position with the sample axis last; no key: not for NumPy or CuPy."""
        key: list[Any] = []
        arrays: dict[int, Array] = {}
        for position, value in enumerate(arguments):
            kind = type(value)
            if self._static[position]:
                key.append(constant_key(value))
            elif kind is Ensemble:
                arrays[position] = value.samples
                key.append(value.samples.dtype)
            elif kind is np.ndarray:
                arrays[position] = value[..., None] if lifted else value
                key.append(value.dtype)
            elif kind in PYTHON_NUMBERS or kind in NUMPY_SCALARS:
                key.append(kind)
            elif kind is complex or isinstance(value, np.generic):
                return None, arrays
            elif is_array(value):
                arrays[position] = value[..., None] if lifted else value
                key.append(value.dtype)
            elif isinstance(value, CONSTANTS):
                key.append(constant_key(value))
            else:
                advice = "Pass its numbers as arguments, or name it in static= if it never changes."
                needed = "be ensembles, arrays, numbers or constants"
                raise TypeError(message(self._name, self._names[position], needed, f"a {kind.__name__}", advice))
        first = next(iter(arrays.values()), None)
        key.append(type(first))
        try:
            hash(tuple(key))
        except TypeError:
            seen = "one that cannot be hashed"
            raise TypeError(message(self._name, "static arguments", "be constants", seen)) from None
        return tuple(key), arrays

    def _traceable(self, arrays: dict[int, Array]) -> bool:
        """Whether a compiled kernel can take these arrays."""
        backend = backend_of(*arrays.values())
        if backend == "cuda":
            return all(str(array.dtype) in DTYPES for array in arrays.values())
        return backend == "numba" and all(array.dtype in KNOWN for array in arrays.values())

    def _kept(self, key: tuple[Any, ...], arguments: Any, arrays: dict[int, Array]) -> Compiled:
        """The kernel for arguments of these kinds and the values that the function reads from outside now.

        Where these cannot be compared (`fingerprint`), the function is traced at every call, and kernels are kept by
        their graph.
        """
        functions = [value for value in arguments if isinstance(value, types.FunctionType)]
        if functions:
            self._alone, self._takes_functions = False, True
        graph: Graph | None = None
        place: Any = key
        if not self._alone:
            seen = fingerprint(self.original, *functions)
            if seen is None:
                seen = graph = self._traced(arguments, arrays)
            place = (key, seen)
        found = self._compiled.get(place)
        if found is not None:
            if len(self._compiled) > KEPT // 2:
                self._compiled[place] = self._compiled.pop(place)  # used last: it stays longest
            return found
        if not self._takes_functions and reads_arguments_only(self.original):
            self._alone, place = True, key
        compiled = self._made(self._traced(arguments, arrays) if graph is None else graph, arguments, arrays)
        if len(self._compiled) >= KEPT:
            self._compiled.pop(next(iter(self._compiled)))
        self._compiled[place] = compiled
        return compiled

    def _traced(self, arguments: Any, arrays: dict[int, Array]) -> Graph:
        symbols = self._symbols(arguments, arrays)
        return trace(functools.partial(self._called, namespace=None), symbols, function=self._name)

    def _made(self, graph: Graph, arguments: Any, arrays: dict[int, Array]) -> Compiled:
        symbols = self._symbols(arguments, arrays)
        places = [k for k, symbol in enumerate(symbols) if isinstance(symbol, Scalar)]
        from ensemble._compile.trace.fused import Compiled  # and with it Numba

        functions = [value for value in arguments if isinstance(value, types.FunctionType)]
        kept = literals(self.original, *functions) if reads_numbers(self.original, *functions) else None
        return Compiled(graph, places, tuple(arrays), backend_of(*arrays.values()), kept)

    def _symbols(self, arguments: Any, arrays: dict[int, Array]) -> list[Any]:
        """Return the arguments that the function is traced with: symbols for numbers, and static values as they are."""
        symbols: list[Any] = []
        for position, value in enumerate(arguments):
            if position in arrays:
                symbols.append(Scalar(KNOWN[np.dtype(str(arrays[position].dtype))]))
            elif self._static[position] or not isinstance(value, bool | int | float | np.generic):
                symbols.append(value)
            else:
                symbols.append(Scalar(PYTHON_NUMBERS.get(type(value)) or NUMPY_SCALARS[type(value)]))
        return symbols

    def _called(self, values: Any, namespace: Namespace | None) -> Any:
        """The function itself on `values`, one per parameter; `xp` is theirs where it is not given."""
        by_name = dict(zip(self._names, values, strict=True))
        if self._takes_xp:
            arrays = [value for value in values if hasattr(value, "__array_namespace__")]
            if namespace is None:
                namespace = array_namespace(*arrays) if arrays else array_namespace(np.empty(0))
            by_name["xp"] = namespace
        given = self._signature.bind_partial()
        given.arguments.update({name: by_name[name] for name in self._signature.parameters})
        return self.original(*given.args, **given.kwargs)

    def _layout(self, arguments: Any, arrays: dict[int, Array]) -> Layout:
        try:
            return layout_of(tuple([(array.shape, array.strides, array.itemsize) for array in arrays.values()]))
        except ValueError:
            samples_of(self._name, *arguments)
            seen = " and ".join(str(tuple(arguments[position].shape)) for position in arrays)
            raise ValueError(message(self._name, "arguments", "have shapes that broadcast", f"shapes {seen}")) from None

    # -- results -------------------------------------------------------------------------------------------------------

    def _by_itself(self, arguments: Any, out: Any, xp: Namespace | None = None) -> Any:
        """The function called on the arguments as they are: libraries and dtypes that have no kernel."""
        result = self._called(arguments, xp)
        if out is None:
            return result
        given: list[Any] = []
        mapped(given.append, result)
        buffers: list[Any] = []
        mapped(buffers.append, out)
        for buffer, value in zip(buffers, given, strict=True):
            buffer[...] = value
        return self._filled(out, set_of(*arguments))

    def _targets(self, out: Any, compiled: Compiled, layout: Layout, lifted: bool) -> list[Any]:
        """The arrays that `out` names, one per result."""
        given: list[Any] = []

        def place(value: Any) -> int:
            given.append(value)
            return len(given) - 1

        if mapped(place, out) != compiled.graph.structure:
            seen = f"{len(given)} arrays"
            raise ValueError(message(self._name, "out", "be nested like the result", seen, "Name results alike."))
        kind: Any = Ensemble if lifted else np.ndarray if compiled.backend == "numba" else object
        needed = "an Ensemble" if lifted else "an array of the arguments' library"
        for value, dtype in zip(given, compiled.graph.dtypes, strict=True):
            if not isinstance(value, kind) or not hasattr(value, "dtype"):
                raise TypeError(message(self._name, "out", f"be {needed}", kind_of(value)))
            samples = value.samples if lifted else value
            if tuple(samples.shape) != layout.shape or str(samples.dtype) != dtype:
                seen = f"shape {tuple(samples.shape)}, {samples.dtype}"
                fitting = f"have shape {layout.shape} and dtype {dtype}{', samples last' if lifted else ''}"
                raise ValueError(message(self._name, "out", fitting, seen))
        return [value.samples if lifted else value for value in given]

    def _filled(self, out: Any, sample_set: Any) -> Any:
        def mark(value: Any) -> None:
            if type(value) is Ensemble:
                value.sample_set = sample_set

        mapped(mark, out)
        return out


@explains_calls("fuse")
def fuse(function: Callable[..., Any] | None = None, *, static: Iterable[str] = ()) -> Any:
    """Turn an elementwise function into one pass over memory.

    The function is called once with symbolic numbers for each combination of dtypes; what it computes becomes one
    compiled loop, kept on disk. Intermediate results never exist as arrays.

    Parameters
    ----------
    function : callable
        Arithmetic, comparisons, elementwise functions of ``x.__array_namespace__()`` or of NumPy, and Python loops over
        fixed ranges, on ensembles, plain arrays and numbers. An argument named `xp` that the caller leaves out is
        filled with the namespace.
    static : sequence of str, optional
        Arguments whose value shapes the function (a number of terms, a flag): each value is traced by itself. Arguments
        that are no arrays or numbers are static anyway. Other numbers enter when the function is called.

    Returns
    -------
    callable
        With the arguments of `function`, and ``out=``: ensembles (arrays where no argument is an ensemble) to write
        into, nested like the result. Shapes broadcast, shared ensembles and plain arrays too, without being widened.
        The result is nested as `function` nests it.

    Raises
    ------
    TypeError
        At the call: if the function takes the truth value of a traced number (``if``, ``and``, ``max``; write
        ``xp.where``) or uses a function that is not elementwise; the message lists those that are supported.
    ValueError
        At the call: if shapes or numbers of samples do not fit.

    Notes
    -----
    Arithmetic, `sqrt`, comparisons, `where`, `abs`, `maximum` and `minimum` give the bits of NumPy, operation by
    operation: nothing is reassociated or contracted (the sign bit of a NaN is open). `exp`, `expm1`, the logarithms,
    `sin`, `cos`, `tan`, `sinh`, `cosh`, `tanh` and `pow` are within one unit in the last place, the other functions are
    the C library's in float64; each is the same for every element and every number of samples. ``x ** n`` with a whole
    constant `n` up to 64 is repeated multiplication. There are no floating-point warnings.

    Values that the function reads from outside are part of its trace: it is traced anew where one has changed. Numbers
    among them are arguments of the compiled code, so that a changed one compiles nothing, and gives the bits that it
    gives as a constant; what decides which operations there are (the rounds of a loop, a whole exponent up to 64, a
    condition, the table of `interp`) is compiled anew. Globals and closures that hold numbers, text, small arrays and
    lists of them are compared in some microseconds; a function that reads anything else, as an object's attribute,
    is traced at every call, in a tenth of a millisecond. Functions of equal code share what is compiled. The 256 traces
    of a function and the 512 compiled codes that were used last are kept.

    NumPy arrays of bool, int32, int64, float32 and float64 take the compiled kernel, on all threads where there is
    enough to do; CuPy arrays take the same written out as CUDA C++. Other libraries and dtypes call the function
    itself.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.scalar import Ensemble, fuse
    >>> @fuse
    ... def limited(x, y, slope, xp):
    ...     return xp.where(x > y, slope * (x - y), 0.0)
    >>> x = Ensemble(np.array([[1.0, 2.0, 3.0]]))
    >>> limited(x, np.array([1.5]), 2.0).samples
    array([[0., 1., 3.]])
    """
    if function is None:
        return functools.partial(fuse, static=static)
    if not callable(function):
        raise TypeError(message("fuse", "function", "be callable", kind_of(function)))
    return Fused(function, static)
