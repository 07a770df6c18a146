"""Machine code of a function that ends in a loop which threads share."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Any

import numba
from llvmlite import ir
from numba import types

from ensemble._compile.cache_folder import ROOT, digest_of
from ensemble._compile.kernel_cache import folders_of
from ensemble._compile.loops.native_call import HEADER, declare_python_functions, flat_types, write_run
from ensemble._compile.loops.scope import Scope, TranslationError, Value, source_of
from ensemble._compile.loops.statements import Statements
from ensemble._compile.loops.values import I64, SIGNED
from ensemble._compile.machine_code import Code, Module, kept_code
from ensemble._compile.numba_private import SYMBOLS, compiler_lock, contexts, symbols_known
from ensemble._interrupts import shielded

__all__ = ["last_loop", "loop_code", "loop_module"]


GENERATED = "ensemble_fuse."
"""Package of modules that `trace/numba_source.py` writes."""


def last_loop(function: Any) -> Any:
    """The `prange` loop that a function ends in."""
    tree = source_of(function.__code__)
    loop: Any = tree.body[-1]
    call = loop.iter if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) else None
    if not (isinstance(call, ast.Call) and getattr(call.func, "id", None) == "prange" and len(call.args) == 1):
        place = function.__code__.co_filename
        raise ValueError(f"work_sharing: {tree.name} must end in a loop `for i in prange(n)`; see {place}")
    return loop


def loop_module(function: Any, kinds: Sequence[Any], alone: bool) -> str:
    """A module in LLVM's assembly with ``run(arguments, guards, mode)`` for a function that ends in a `prange` loop.

    ``part(*arguments, low, high)`` runs rounds `low` to `high` on the calling thread: it takes arrays as the address of
    their data and their extents, tuples entry by entry, and returns what the function returns.

    One that runs `alone`, on the calling thread, has any statements and returns nothing or an integer that is not
    negative. `run` returns 1 more.
    `kinds` are those of `native_call.kinds_of`. `arguments` is Python's tuple. 0 is returned, and nothing done, where
    its types are not `guards`.
    """
    tree, module = source_of(function.__code__), ir.Module()
    loop = None if alone else last_loop(function)
    before = tree.body[:-1]
    flat = flat_types(kinds)
    names = [each.arg for each in tree.args.args]
    if len(names) != len(kinds):
        raise TranslationError("another number of arguments")

    def body_of(made: ir.Function) -> Statements:
        body = Statements(made, Scope(function))
        values = iter(made.args)
        for name, kind in zip(names, kinds, strict=True):
            body.assign(name, _argument(body, kind, values))
        return body

    count = ir.Function(module, ir.FunctionType(I64, flat), "count")
    body = body_of(count)
    if loop is None:
        body.finish(I64(1))
    else:
        body.run(before)
        body.finish(body.cast(body.value(loop.iter.args[0]), SIGNED))
    part = ir.Function(module, ir.FunctionType(I64, [*flat, I64, I64]), "part")
    part.attributes.add("noinline")
    body = body_of(part)
    if loop is None:
        result = body.procedure(tree)
    else:
        body.run(before)
        body.counted(loop, SIGNED, part.args[-2], part.args[-1], I64(1), True)
        result = I64(0)
    body.finish(result)
    count.linkage = "internal"
    for each in (count, part):
        each.attributes.add("nounwind")
    write_run(module, kinds, flat, count, part)
    return str(module)


def _argument(body: Statements, kind: Any, values: Any) -> Any:
    """Make an argument of type `kind` from the next of LLVM's `values`: an array takes its address and its extents."""
    if isinstance(kind, tuple):
        return tuple(_argument(body, part, values) for part in kind)
    if isinstance(kind, types.Array):
        data, *shape = (next(values) for _ in range(1 + kind.ndim))
        return body.array(kind.dtype, data, shape, kind.mutable)
    return Value(kind, next(values))


def loop_code(function: Any, kinds: Sequence[Any], alone: bool) -> Code:
    """The machine code of ``call`` and ``part`` of `loop_module`, which is kept on disk.

    Without a name of Numba that it needs, a loop is not translated.
    """
    return shielded(lambda: _loop_code(function, kinds, alone))


def _loop_code(function: Any, kinds: Sequence[Any], alone: bool) -> Code:
    numba.get_num_threads()  # starts the threads, to whose functions the code refers
    if contexts() is None or not symbols_known():
        raise TranslationError(f"this Numba lacks its contexts of code, or one of {', '.join(SYMBOLS)}")
    declare_python_functions()
    with compiler_lock():
        key = _key(function, kinds)
        text = "" if key else loop_module(function, kinds, alone)
        make = lambda: Module(text or loop_module(function, kinds, alone), (), has_loops=True)
        return kept_code(key or text, make, ["call", "part"], str)


def _key(function: Any, kinds: Sequence[Any]) -> str:
    """What the machine code depends on: sources, constants in the scope, types; empty for functions from elsewhere."""
    generated = function.__module__.startswith(GENERATED)  # the name has a digest of the source
    if not generated and not inspect.getfile(function).startswith(str(ROOT)):
        return ""
    constants = [cell.cell_contents for cell in function.__closure__ or ()]
    if not all(isinstance(each, int | float | str) for each in constants):
        return ""
    sources = [digest_of(folder) for folder in folders_of(function)]
    return repr((function.__module__, function.__qualname__, constants, kinds, sources, numba.__version__, HEADER))
