"""Handlers of a user's code that would catch a `DivergenceError` without naming it: a bare ``except``, ``Exception``.

Such code goes on with a value for all samples. It is found where the error is raised, from the source of the functions
that have called: nothing is done as long as no samples differ.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import linecache
import os
import threading
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from ensemble._byte_code import assigns_entry, enclosed
from ensemble._check import message
from ensemble._installed import is_installed
from ensemble.scalar.divergence.handler_code import is_caught_at

__all__ = ["Watch", "holds_ensemble", "note_conversion", "note_handler", "watched"]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

WITHOUT_ENSEMBLES = (str, bytes, int, float, complex, type, ModuleType, CodeType)

MAX_ENTRIES = 64

# What runs code that it has not written: it shows an error, and goes on with other code, not with a value.
RUNNERS = {"IPython", "_pytest", "asyncio", "bdb", "code", "concurrent", "doctest", "ipykernel", "pluggy", "pytest"}
RUNNERS |= {"runpy", "threading", "unittest"}


@dataclass(eq=False)
class Watch:
    """The errors that code caught, without naming them, in the call of a model."""

    frame: FrameType | None
    errors: list[BaseException] = field(default_factory=list)

    def raise_first(self) -> None:
        """Raise the first error of samples that differ, which the model has caught; nothing without one."""
        if self.errors:
            first, self.errors = self.errors[0], []
            raise first


watch_in_force: ContextVar[Watch | None] = ContextVar("watch", default=None)

WATCHES: list[Watch] = []
"""The watches in force in any thread."""


@contextlib.contextmanager
def watched(frame: FrameType) -> Iterator[Watch]:
    """Collect the errors that a model, called in `frame`, catches without naming them."""
    watch = Watch(frame)
    token = watch_in_force.set(watch)
    WATCHES.append(watch)
    try:
        yield watch
    finally:
        WATCHES.remove(watch)
        watch_in_force.reset(token)
        watch.frame = None  # a local variable of it refers to this


def note_handler(error: BaseException, frame: FrameType | None) -> None:
    """Warn where code that goes on with ensembles would catch `error`, raised at `frame`, without naming its type.

    Inside `watched` the error is collected in place of a warning, whatever the handler's frame holds. So is an error of
    another thread that no study watches: the model may have started the thread.
    """
    watch = watch_in_force.get()
    watches = [watch] if watch is not None else WATCHES if _is_started() else []
    kinds = [type(error)]
    if frame is not None and assigns_entry(frame.f_code, frame.f_lasti):
        kinds += [ValueError, TypeError]  # what NumPy makes of it where an entry of an array is assigned
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        runner = name.partition(".")[0]
        if runner in RUNNERS and not watches and runner != "asyncio":
            return
        if name.startswith("ensemble."):  # catches it on purpose, or passes it on
            if watch is not None and frame is watch.frame:
                watch.errors.append(error)  # where the model returns, something that has no source has caught it
            return
        caught = runner not in RUNNERS and is_caught_at(frame.f_code, frame.f_lasti)
        handler = _handler(frame, kinds) if caught else None
        if handler is not None:
            named, shown, line = handler
            if not named and (watches or _goes_on_with_ensembles(frame)):
                _tell(error, frame, shown, line, watches)
            return
        frame = frame.f_back
    for each in watches:
        each.errors.append(error)  # where the model returns, it has not asked for the result of its thread


def note_conversion(error: TypeError, frame: FrameType | None) -> None:
    """Warn where an ``except Exception`` of the user's own code would catch what is raised because x is an ensemble.

    Libraries try such calls to find out what a value is, and a handler that names `TypeError` is there for it.
    """
    while frame is not None:
        if is_caught_at(frame.f_code, frame.f_lasti):
            if is_installed(frame.f_code.co_filename):
                return
            handler = _handler(frame, [TypeError])
            if handler is not None:
                named, shown, line = handler
                if not named and _goes_on_with_ensembles(frame):
                    _warn(frame, "be one plain value where code asks for it", str(error), "TypeError", shown, line)
                return
        frame = frame.f_back


def _is_started() -> bool:
    return threading.current_thread() is not threading.main_thread()


def _goes_on_with_ensembles(frame: FrameType) -> bool:
    return any(holds_ensemble(value, 3) for value in frame.f_locals.values())


def _tell(error: Any, frame: FrameType, shown: str, line: int, watches: list[Watch]) -> None:
    if not watches:
        where = f"different ones in `{error.expression}` at {os.path.basename(error.filename)}:{error.lineno}"
        _warn(frame, "agree where one value is needed", where, "DivergenceError", shown, line)
        return
    place = f"{os.path.basename(frame.f_code.co_filename)}:{line}"
    error.add_note(f"`{shown}` at {place} catches this error, so that the model gave one result for all samples.")
    for watch in watches:
        watch.errors.append(error)


def _warn(frame: FrameType, requirement: str, what: str, kind: str, shown: str, line: int) -> None:
    filename = frame.f_code.co_filename
    seen = f"{what}, and `{shown}` at {os.path.basename(filename)}:{line} catches the {kind}"
    advice = "What the code then gives is one result for all samples. Call it by ensemble.run(f, ...)."
    text = message("Ensemble", "samples", requirement, seen, advice)
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, RuntimeWarning, filename, line, registry=registry)


def holds_ensemble(value: Any, depth: int) -> bool:
    """Whether `value` is an ensemble, or has one among its entries or attributes, `depth` levels deep."""
    if hasattr(type(value), "take_samples"):
        return True
    if not depth or isinstance(value, WITHOUT_ENSEMBLES):
        return False
    if isinstance(value, MethodType):
        return holds_ensemble(value.__self__, depth)
    if isinstance(value, functools.partial):
        return any(holds_ensemble(part, depth) for part in (value.func, list(value.args), value.keywords))
    if isinstance(value, FunctionType):
        parts = [*enclosed(value).values(), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    elif isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = list(value)
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    return any(holds_ensemble(part, depth - 1) for part in parts[:MAX_ENTRIES])


# -- handlers in the source --------------------------------------------------------------------------------------------


def _handler(frame: FrameType, kinds: list[type]) -> tuple[bool, str, int] | None:
    """The first handler in `frame` that ends one of `kinds`: whether it names the first of them, its text, its line."""
    code = frame.f_code
    place = list(code.co_positions())[frame.f_lasti // 2]
    if place[0] is None or place[2] is None:
        return None
    tree = _tree(code.co_filename, tuple(linecache.getlines(code.co_filename, frame.f_globals)))
    for node in _around(tree, place[0], place[2]):
        if isinstance(node, ast.With):
            caught = _suppressed(frame, node)
            if any(issubclass(kind, each) for each in caught for kind in kinds):
                return kinds[0] in caught, ast.unparse(node).partition("\n")[0].rstrip(":"), node.lineno
            continue
        for handler in node.handlers:
            caught = [BaseException] if handler.type is None else _classes(frame, handler.type)
            if any(issubclass(kind, each) for each in caught for kind in kinds):
                if any(isinstance(part, ast.Raise) for part in handler.body):
                    return None  # what it raises is seen, or its next handler's business
                return kinds[0] in caught, ast.unparse(handler).partition("\n")[0].rstrip(":"), handler.lineno
        if any(isinstance(part, ast.Return) for line in node.finalbody for part in ast.walk(line)):
            return False, "finally: return", node.finalbody[0].lineno
    return None


@functools.lru_cache(maxsize=64)
def _tree(filename: str, lines: tuple[str, ...]) -> ast.Module:
    try:
        return ast.parse("".join(lines))
    except SyntaxError:  # a cell of a notebook with commands that are not Python
        return ast.Module([], [])


def _around(tree: ast.AST, line: int, column: int) -> list[Any]:
    """The ``try`` and ``with`` statements whose body holds the place, in its function, innermost first."""
    found: list[Any] = []
    node: ast.AST | None = tree
    while node is not None:
        if isinstance(node, FUNCTIONS):
            found.clear()  # what stands around a definition does not stand around its calls
        if isinstance(node, ast.Try | ast.TryStar | ast.With) and any(_holds(part, line, column) for part in node.body):
            found.insert(0, node)
        node = next((part for part in ast.iter_child_nodes(node) if _holds(part, line, column)), None)
    return found


def _holds(node: ast.AST, line: int, column: int) -> bool:
    first = getattr(node, "lineno", None)
    if first is None:  # arguments, with items: they have parts with places
        return any(_holds(part, line, column) for part in ast.iter_child_nodes(node))
    last, start, end = node.end_lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
    return bool((first, start) <= (line, column) < (last, end))


def _suppressed(frame: FrameType, node: ast.With) -> list[type]:
    """The exceptions that ``with suppress(...)`` ends."""
    return [
        each
        for item in node.items
        if isinstance(item.context_expr, ast.Call) and _value(frame, item.context_expr.func) is contextlib.suppress
        for argument in item.context_expr.args
        for each in _classes(frame, argument)
    ]


def _classes(frame: FrameType, node: ast.AST) -> list[type]:
    if isinstance(node, ast.Tuple):
        return [each for part in node.elts for each in _classes(frame, part)]
    value = _value(frame, node)
    parts = value if isinstance(value, tuple) else (value,)
    return [part for part in parts if isinstance(part, type) and issubclass(part, BaseException)]


def _value(frame: FrameType, node: ast.AST) -> Any:
    """What a name, or an attribute of a module or class, stands for in `frame`; None for anything else."""
    if isinstance(node, ast.Name):
        scopes = frame.f_locals, frame.f_globals, vars(builtins)
        return next((scope[node.id] for scope in scopes if node.id in scope), None)
    if isinstance(node, ast.Attribute):
        owner = _value(frame, node.value)
        return getattr(owner, node.attr, None) if isinstance(owner, ModuleType | type) else None
    return None
