"""Copies of functions whose globals, closures and defaults hold the samples of a run, and whose `math` takes ensembles.

`run` calls `f` with some of the samples. An ensemble that is a global of `f`, in its closure or among its defaults has
all of them; ``math.sin(x)`` and ``isinstance(x, float)`` give another result than for one sample. So a run calls a copy
of `f` with the same code, in which these names are bound to other values.

Functions of the package of `f` that it names, as globals or in closures, are copied, too. Methods,
functions of other packages and what attributes hold stay as they are.
"""

from __future__ import annotations

import builtins
import functools
import math
import numbers
import types
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from ensemble._byte_code import NUMBERS, codes_in, enclosed, names_in, numbers_of, stored_outside
from ensemble._containers import mapped, parts_of
from ensemble.scalar.divergence.branching import ensembles_in
from ensemble.scalar.divergence.caught import judge
from ensemble.scalar.divergence.handler_code import HAS_EVENTS, catches, with_calls_before_handlers
from ensemble.scalar.divergence.python_float import PythonFloat, lifted
from ensemble.scalar.divergence.reachable import ARRAY_API_LIBRARIES, catches_elsewhere, package_of
from ensemble.scalar.ensemble import Ensemble

__all__ = ["CapturedValues"]

MAX_ENTRIES = 64
"""Entries of the largest container that is searched for ensembles."""

GLOBAL_WRITES = numbers_of("STORE_GLOBAL", "DELETE_GLOBAL")
MATCH_CLASS = NUMBERS["MATCH_CLASS"]
TYPES_OF_SAMPLES = (float, int, bool, complex, np.float64, np.float32, np.int64, np.bool, np.complex128, np.ndarray)
SCOPE_READERS = frozenset(("globals", "locals", "eval", "exec", "vars"))


def type_of_sample(x: Ensemble) -> type:
    """The type of one sample of `x`, as a function that runs alone gets it."""
    if isinstance(x, PythonFloat):
        return float
    samples = x.samples
    if type(samples) is not np.ndarray:
        return type(samples)
    return samples.dtype.type if samples.ndim == 1 else np.ndarray


def _isinstance(value: Any, kinds: Any) -> bool:
    if isinstance(kinds, tuple):
        return any(_isinstance(value, kind) for kind in kinds)
    kinds = type if isinstance(kinds, _Type) else kinds
    return issubclass(type_of_sample(value), kinds) if isinstance(value, Ensemble) else isinstance(value, kinds)


def _hasattr(value: Any, name: str) -> bool:
    return hasattr(type_of_sample(value) if isinstance(value, Ensemble) else value, name)


def _getattr(value: Any, name: str, *default: Any) -> Any:
    if not isinstance(value, Ensemble) or len(default) > 1 or hasattr(type_of_sample(value), name):
        return getattr(value, name, *default)
    if default:
        return default[0]
    raise AttributeError(f"{type_of_sample(value).__name__!r} object has no attribute {name!r}", name=name)


def _isscalar(value: Any) -> bool:
    if isinstance(value, Ensemble):
        return issubclass(type_of_sample(value), np.generic | numbers.Number)
    return np.isscalar(value)


class _Type:
    """``type``; of an ensemble, the type of one sample."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        alone = len(arguments) == 1 and isinstance(arguments[0], Ensemble)
        return type_of_sample(arguments[0]) if alone else type(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(type, name)


class _Module(types.ModuleType):
    """A module with some functions replaced."""

    def __init__(self, module: types.ModuleType, substitutes: dict[str, Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(substitutes)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


OF_MATH = {name: lifted(value) for name, value in vars(math).items() if callable(value) and name[0] != "_"}
SUBSTITUTES: dict[int, Any] = {
    id(math): _Module(math, OF_MATH),
    id(np): _Module(np, {"isscalar": _isscalar}),
    id(np.isscalar): _isscalar,
    id(isinstance): _isinstance,
    id(hasattr): _hasattr,
    id(getattr): _getattr,
    id(type): _Type(),
    **{id(getattr(math, name)): function for name, function in OF_MATH.items()},
}
"""The substitute of each function and module, by identity, in a run of several samples."""


class CapturedValues:
    """The ensembles that `f` captures, and whether it calls functions that need a substitute."""

    def __init__(self, f: Callable[..., Any], nest: Any, n_samples: int) -> None:
        self.n_samples = n_samples
        self.package = _package(f)
        self.needs_substitutes = self.has_handlers = self.has_other_handlers = self.records_warnings = False
        self.shows_types = False
        self.ensembles: list[Ensemble] = []
        self._others: dict[int, Any] = {}
        known: set[int] = set()
        self._collect(f, known)
        self.functions_given = [part for part in leaves_of(nest) if self.is_own(_function_in(part))]
        for part in self.functions_given:
            self._collect(part, known)
        if not HAS_EVENTS:
            self._note_handlers([nest, getattr(f, "__self__", None)])

    def call(self, f: Callable[..., Any], nest: Any, pick: Callable[[Any], Any], several: bool) -> Any:
        """`f` of its arguments, the pair `nest`, with the samples that `pick` takes of what it captures.

        For several samples, `several`, it has functions of ensembles. Functions among the arguments are treated as
        those that `f` finds by name.
        """
        if not self.ensembles and not (several and (self.needs_substitutes or self.has_handlers)):
            given, named = nest
            return f(*given, **named)
        copies = _Copies(self, pick, several)
        try:
            if self.functions_given:
                nest = mapped(lambda x: copies.of(x) if callable(x) and not isinstance(x, Ensemble) else x, nest)
            given, named = nest
            return copies.of(f)(*given, **named)
        finally:
            copies.forget()

    def is_own(self, value: Any) -> bool:
        """Whether `value` is a function of Python in the package of `f` that can be copied."""
        return (
            type(value) is FunctionType and _package(value) == self.package and self.package not in ARRAY_API_LIBRARIES
        )

    def found_in(self, value: Any) -> list[Ensemble]:
        """The ensembles of the samples of the run, or of shared data, that `value` is or, a small container, holds."""
        if isinstance(value, Ensemble):
            return [value] if value.n_samples in (1, self.n_samples) else []
        if type(value) in (list, tuple, dict) and len(value) <= MAX_ENTRIES:
            return [x for x in ensembles_in(value) if x.n_samples in (1, self.n_samples)]
        return []

    def _collect(self, value: Any, known: set[int]) -> None:
        while isinstance(value, functools.partial):
            self.ensembles += self.found_in(list(value.args)) + self.found_in(value.keywords)
            for part in (*value.args, *value.keywords.values()):
                if callable(part):
                    self._collect(part, known)
            value = value.func
        value = _function_in(value)
        if id(value) in known or len(known) > 4 * MAX_ENTRIES:
            return
        known.add(id(value))
        if not self.is_own(value):
            self._note_handlers(value)
            return
        self.records_warnings = self.records_warnings or any(map(records_warnings, codes_in(value.__code__)))
        self.shows_types = self.shows_types or shows_types(value)
        if catches(value.__code__):
            self.has_handlers = True
            self.has_other_handlers = self.has_other_handlers or not can_be_copied(value.__code__)
        for part in _values_of_names(value):
            if id(part) in SUBSTITUTES:
                self.needs_substitutes = (
                    self.needs_substitutes or part is not np or "isscalar" in names_in(value.__code__)
                )
            elif found := self.found_in(part):
                self.ensembles += found
            elif callable(part):
                self._collect(part, known)
            else:
                self._note_handlers(part, frozenset(names_in(value.__code__)))

    def _note_handlers(self, value: Any, names: frozenset[str] = frozenset()) -> None:
        """Look for handlers in code that is not copied, such as that of the methods of `value`."""
        if not HAS_EVENTS and not self.has_other_handlers:
            self.has_other_handlers = catches_elsewhere(value, names, self._others)


def records_warnings(code: types.CodeType) -> bool:
    """Whether `code` may decide by the floating-point errors that an operation has met, which are of all samples."""
    if "seterrcall" in code.co_names:
        return True
    named = any(type(constant) is tuple and "record" in constant for constant in code.co_consts)
    return named and "catch_warnings" in code.co_names


def shows_types(f: FunctionType) -> bool:
    """Whether `f` may decide by the type of a sample where no function tells it: ``x.__class__``, ``case float():``."""
    codes = list(codes_in(f.__code__))
    if any("__class__" in code.co_names for code in codes):
        return True
    names = {name for code in codes if MATCH_CLASS in code.co_code[::2] for name in code.co_names}
    if not names:
        return False
    found = [value for name in names for value in (f.__globals__.get(name), getattr(builtins, name, None))]
    modules = [value for value in found if isinstance(value, types.ModuleType)]
    found += [getattr(module, name, None) for module in modules for name in names]
    return any(isinstance(kind, type) and issubclass(each, kind) for kind in found for each in TYPES_OF_SAMPLES)


def leaves_of(value: Any) -> list[Any]:
    """All values in nested containers, and containers that have no parts."""
    parts = parts_of(value)
    return [value] if parts is None else [leaf for part in parts.values() for leaf in leaves_of(part)]


def _package(f: Any) -> str:
    return package_of(_function_in(f))


def _function_in(value: Any) -> Any:
    while isinstance(value, functools.partial | types.MethodType):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    return value


def _values_of_names(f: FunctionType) -> Iterator[Any]:
    """The values of the global and captured names of `f`, and its defaults."""
    scope, inner = f.__globals__, vars(builtins)
    for name in set(names_in(f.__code__)):
        if name in scope:
            yield scope[name]
        elif name in inner:
            yield inner[name]
    yield from enclosed(f).values()
    yield from f.__defaults__ or ()
    yield from (f.__kwdefaults__ or {}).values()


def can_be_copied(code: types.CodeType) -> bool:
    """Whether `code` neither assigns to its globals nor reads all of them."""
    return not any(
        GLOBAL_WRITES & set(inner.co_code[::2]) or SCOPE_READERS & set(inner.co_names) for inner in codes_in(code)
    )


class _Scope(dict[str, Any]):
    """Globals of a copy: those of the function, looked up when they are used, as `copies` binds them."""

    def __init__(self, scope: dict[str, Any], copies: _Copies) -> None:
        super().__init__({name: value for name, value in scope.items() if name[:2] == "__"})
        self._scope, self._copies = scope, copies

    def __missing__(self, name: str) -> Any:
        value = self._scope[name] if name in self._scope else vars(builtins)[name]
        other = self._copies.of(value)
        if other is not value and not isinstance(value, Ensemble | list | tuple | dict):
            self[name] = other
        return other


class _Copies:
    """Copies of functions for one call of one run."""

    def __init__(self, captured: CapturedValues, pick: Callable[[Any], Any], several: bool) -> None:
        self.captured, self.pick, self.several = captured, pick, several
        self.needs_substitutes = several and captured.needs_substitutes
        self.known: dict[int, tuple[Any, Any]] = {}
        self.scopes: dict[int, _Scope] = {}

    def forget(self) -> None:
        """Drop the copies, which refer to each other; functions among the results make theirs again."""
        for scope in self.scopes.values():
            for name in [name for name in scope if name[:2] != "__"]:
                del scope[name]
        self.known.clear()
        self.scopes.clear()

    def of(self, value: Any) -> Any:
        """`value` itself, its substitute, or its copy with the samples of the run."""
        if self.needs_substitutes and id(value) in SUBSTITUTES:
            return SUBSTITUTES[id(value)]
        if id(value) in self.known:
            return self.known[id(value)][1]
        if isinstance(value, functools.partial):
            given = tuple(map(self.of, self.of(value.args)))
            named = {key: self.of(part) for key, part in value.keywords.items()}
            return functools.partial(self.of(value.func), *given, **named)
        if type(value) is types.MethodType:
            return types.MethodType(self.of(value.__func__), value.__self__)
        if self.captured.is_own(value):
            return self._copy(value)
        if self.captured.found_in(value):
            other = mapped(lambda x: self.pick(x) if self.captured.found_in(x) else x, value)
            self.known[id(value)] = value, other
            return other
        return value

    def _copy(self, f: FunctionType) -> Any:
        if not can_be_copied(f.__code__):
            return f
        codes = list(codes_in(f.__code__))
        if id(f.__globals__) not in self.scopes:
            self.scopes[id(f.__globals__)] = _Scope(f.__globals__, self)
        written = set().union(*map(stored_outside, codes)) if f.__closure__ else set()
        cells = tuple(
            cell if name in written else types.CellType()
            for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
        )
        code = with_calls_before_handlers(f.__code__, judge) if self.several else f.__code__
        other = FunctionType(code, self.scopes[id(f.__globals__)], f.__name__, None, cells or None)
        self.known[id(f)] = f, other
        other.__defaults__ = None if f.__defaults__ is None else tuple(map(self.of, f.__defaults__))
        other.__kwdefaults__ = {name: self.of(value) for name, value in (f.__kwdefaults__ or {}).items()} or None
        other.__dict__.update(f.__dict__)
        other.__qualname__, other.__module__ = f.__qualname__, f.__module__
        for new, cell in zip(cells, f.__closure__ or (), strict=True):
            if new is not cell:
                try:
                    new.cell_contents = self.of(cell.cell_contents)
                except ValueError:  # not yet filled
                    continue
        return other
