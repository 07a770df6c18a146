"""`source_digest`: a short text that changes when the source of a model does."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._backend import to_numpy
from ensemble._byte_code import enclosed, names_in, variables_in
from ensemble._installed import is_installed
from ensemble.scalar import Ensemble
from ensemble.uq.store.source_text import code_source, constant_text, source_of

__all__ = ["source_digest"]

PLAIN = (bool, int, float, complex, str, bytes, type(None), range, slice, np.generic, np.dtype)

VALUES = (*PLAIN, tuple, np.ndarray)
"""Attributes of classes whose values count, beside the source: a program may set them."""

OF_RANKS = ("ensemble.distributed", "mpi4py")
"""Packages of objects that say which process of a parallel program they are of; a study goes on on other numbers."""

KNOWN = {
    "scipy.sparse": ("shape", "data", "indices", "indptr", "coords", "offsets"),
    "scipy.stats": (
        "dist",
        "args",
        "kwds",
        "name",
        "xk",
        "pk",
        "a",
        "b",
        "mean",
        "cov_object",
        "covariance",
        "dataset",
        "weights",
        "factor",
        "_original_parameters",
    ),
    "scipy.spatial": ("data", "points", "simplices"),
    "numpy": ("coef", "domain", "window"),
    "ensemble.linalg": ("shape", "values", "graph", "indptr", "indices"),
}
"""Attributes that determine objects of installed packages: matrices, distributions, point sets, polynomials."""

ARRAYS = ("pandas", "torch", "jax")
"""Packages whose objects are compared as arrays, where they are some."""

STATEFUL = ("scipy.interpolate",)
"""Packages whose objects are determined by their attributes."""


def source_digest(model: Callable[..., Any]) -> str:
    """Compute a digest of the source of a model and of what it uses of the user's own code.

    Covered, for `model` and for every function and class that is reached from it by name: the source text without
    comments, blank lines and indentation of the whole; default values; and the values of the global and enclosed
    variables that it names, where they are numbers, text, None, NumPy arrays, Ensembles, matrices of `ensemble`,
    `Inputs`, samplers and fields, sparse matrices, frozen distributions, interpolators and trees of SciPy, polynomials
    of NumPy, series and tables of pandas, arrays of PyTorch and JAX, or tuples, lists, sets and
    dicts of these; other objects by their ``repr``, unless it is an address; which of them are the same object;
    numbers, text, arrays and tuples that are attributes of a class. A name is followed as a global or enclosed
    variable, as an attribute of a module that is one, through decorators that set ``__wrapped__`` or ``py_func``,
    ``functools.partial``, methods, and the class and attributes of an object.

    Not covered: Python's own modules, installed packages (``site-packages``) and `ensemble`, whose versions the
    manifest has; compiled extensions; files that the model reads; attributes of other objects; what is found only when
    the model runs (``getattr``, ``importlib``, ``globals()``); what a shortened ``repr`` leaves out. Of a function
    whose source cannot be read, as one typed into an interpreter, the byte code is covered, which differs between
    versions of Python.

    Parameters
    ----------
    model : callable

    Returns
    -------
    str
        32 hexadecimal digits.

    Raises
    ------
    TypeError
        If `model` cannot be called.

    Examples
    --------
    >>> def model(x):
    ...     return x.a + 1
    >>> source_digest(model) == source_digest(model), len(source_digest(model))
    (True, 32)
    """
    _check.require_type(model, Callable, "source_digest", "model", "be callable")  # type: ignore[arg-type]
    walk = Walk()
    walk.visit("model", model)
    return hashlib.blake2b("\0".join(walk.parts).encode(), digest_size=16).hexdigest()


class Walk:
    """Texts of everything that is reached from a model, in the order in which names are met."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._seen: dict[int, tuple[int, Any]] = {}
        self._constants: dict[int, tuple[str, Any]] = {}

    def visit(self, name: str, value: Any) -> None:
        """Add the text of `value`, which the source calls `name`, and of what it uses."""
        if isinstance(value, PLAIN):
            self.parts.append(f"{name} = {value!r}")
            return
        if id(value) in self._seen:
            self.parts.append(f"{name} is object {self._seen[id(value)][0]}")
            return
        if isinstance(value, (tuple, frozenset)):  # equal constants may be one object or several
            self._visit_constant(name, value)
            return
        self._seen[id(value)] = len(self._seen), value
        if isinstance(value, np.ndarray):
            self._visit_array(name, value)
        elif isinstance(value, Ensemble):
            self.visit(f"{name}.samples", to_numpy(value.samples))
        elif isinstance(value, (list, dict, set)):
            self._visit_items(name, value)
        elif isinstance(value, functools.partial):
            for part, held in (("func", value.func), ("args", value.args), ("keywords", value.keywords)):
                self.visit(f"{name}.{part}", held)
        elif inspect.ismethod(value):
            self.visit(f"{name}.__func__", value.__func__)
            self.visit(f"{name}.__self__", value.__self__)
        elif hasattr(value, "__wrapped__") or hasattr(value, "py_func"):
            self.visit(name, getattr(value, "__wrapped__", None) or value.py_func)
            if inspect.isfunction(value) and not is_installed(value.__code__.co_filename):
                self.parts.append(f"wrapper of {name}: {code_source(value.__code__)}")
                self._visit_names(value)
        elif inspect.isfunction(value):
            self._visit_function(name, value)
        elif inspect.isclass(value):
            self._visit_class(name, value)
        elif not isinstance(value, ModuleType):
            self._visit_object(name, value)

    def _visit_constant(self, name: str, value: Any) -> None:
        """A tuple or frozenset, by the digest of its items, which is taken once."""
        if id(value) not in self._constants:
            first = len(self.parts)
            self._visit_items("", value)
            digest = hashlib.blake2b("\0".join(self.parts[first:]).encode(), digest_size=16).hexdigest()
            del self.parts[first:]
            self._constants[id(value)] = digest, value
        self.parts.append(f"{name} = {type(value).__name__} {self._constants[id(value)][0]}")

    def _visit_array(self, name: str, value: np.ndarray) -> None:
        """The data type, the shape, the contents and the mask of an array."""
        if isinstance(value, np.ma.MaskedArray):
            self._visit_array(f"{name}.mask", np.ma.getmaskarray(value))
        array = np.asarray(value)
        if array.dtype.hasobject:
            self.parts.append(f"{name} = {array.dtype}{array.shape}")
            self.visit(f"{name}.tolist()", array.tolist())
        else:
            digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes()).hexdigest()
            self.parts.append(f"{name} = {array.dtype}{array.shape} {digest}")

    def _visit_items(self, name: str, value: Any) -> None:
        self.parts.append(f"{name}: {type(value).__name__} {len(value)}")
        if isinstance(value, dict):
            for key, held in value.items():
                self.visit(f"{name}[{constant_text(key)}]", held)
        else:
            ordered = sorted(value, key=constant_text) if isinstance(value, (set, frozenset)) else value
            for k, held in enumerate(ordered):
                self.visit(f"{name}[{k}]", held)

    def _visit_function(self, name: str, function: Any) -> None:
        if not own(function):
            self.parts.append(f"{name}: {function.__module__}.{function.__qualname__}")
            return
        self.parts.append(f"{name}: {source_of(function)}")
        self.visit(f"{name}.__defaults__", function.__defaults__)
        self.visit(f"{name}.__kwdefaults__", function.__kwdefaults__)
        self._visit_names(function)

    def _visit_names(self, function: Any) -> None:
        """The global and enclosed variables that a function names."""
        closed = enclosed(function)
        names = list(dict.fromkeys(names_in(function.__code__)))
        variables = dict.fromkeys(variables_in(function.__code__))
        for used in (*function.__code__.co_freevars, *variables):
            scope = closed if used in closed else function.__globals__
            if used in scope:
                self._visit_used(used, scope[used], names)

    def _visit_used(self, used: str, value: Any, names: list[str]) -> None:
        """Visit a variable; of a module, what the function's names reach in it."""
        if isinstance(value, ModuleType):
            if own(value):
                for attribute in names:
                    if attribute in vars(value):
                        self._visit_used(f"{used}.{attribute}", vars(value)[attribute], names)
        else:
            self.visit(used, value)

    def _visit_class(self, name: str, kind: type) -> None:
        if not own(kind):
            self.parts.append(f"{name}: {kind.__module__}.{kind.__qualname__}")
            return
        self.parts.append(f"{name}: {source_of(kind)}")
        for base in kind.__bases__:
            self.visit(base.__qualname__, base)
        for attribute, held in vars(kind).items():
            inner = held.fget if isinstance(held, property) else getattr(held, "__func__", held)
            if inspect.isfunction(inner) or (isinstance(held, VALUES) and not attribute.startswith("__")):
                self.visit(f"{name}.{attribute}", inner)

    def _visit_object(self, name: str, value: Any) -> None:
        """An object: its class, and what it holds if the class is the user's."""
        self.parts.append(f"{name}: {getattr(value, '__qualname__', getattr(value, '__name__', ''))}")
        self.visit(f"type of {name}", type(value))
        module = type(value).__module__
        if own(type(value)) or module.startswith(STATEFUL):
            self._visit_state(name, value)
            return
        if module.startswith("ensemble.uq") and callable(getattr(value, "description", None)):
            self.visit(f"{name}.description()", value.description())
        for attribute in ("index", "columns", "dtypes") if module.startswith("pandas") else ():
            if hasattr(value, attribute) and getattr(value, attribute) is not value:
                self.visit(f"{name}.{attribute}", getattr(value, attribute))
        for package, attributes in KNOWN.items():
            if module.startswith(package):
                for attribute in attributes:
                    if hasattr(value, attribute):
                        self.visit(f"{name}.{attribute}", getattr(value, attribute))
        if module.startswith(ARRAYS) and hasattr(value, "__array__"):
            with contextlib.suppress(Exception):  # of a library that refuses the copy
                self.visit(f"{name} as an array", np.asarray(value))
                return
        told: Any = type(value).__repr__
        text = repr(value) if told is not object.__repr__ else ""
        if " at 0x" not in text and not module.startswith(("builtins", "functools", *OF_RANKS, *KNOWN)):
            self.parts.append(f"{name}: {text}")

    def _visit_state(self, name: str, value: Any) -> None:
        """What an object holds."""
        held_by_name = dict(getattr(value, "__dict__", {}))
        for kind in type(value).__mro__:
            slots = vars(kind).get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if not slot.startswith("__") and hasattr(value, slot):
                    held_by_name[slot] = getattr(value, slot)
        for attribute, held in held_by_name.items():
            self.visit(f"{name}.{attribute}", held)


def own(value: Any) -> bool:
    """Whether a module, function or class is the user's code."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    module = sys.modules.get(name or "")
    if module is None:
        return inspect.isfunction(value)  # made by exec, or of a module that was not imported by its name
    path: str | None = getattr(module, "__file__", None)
    if path is None:
        return name == "__main__"
    return not is_installed(path)
