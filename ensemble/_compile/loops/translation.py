"""Machine code of a function that ends in a loop which threads share."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba import types

from ensemble._compile.cache_folder import ROOT, digest_of
from ensemble._compile.kernel_cache import folders_of
from ensemble._compile.loops.native_call import declare_python_functions, flat_types
from ensemble._compile.loops.reader import WORDS, argument_of
from ensemble._compile.loops.scope import Scope, TranslationError, Value, source_of
from ensemble._compile.loops.statements import Statements
from ensemble._compile.loops.values import I64, SIGNED
from ensemble._compile.machine_code import Code, Module, kept_code
from ensemble._compile.numba_private import SYMBOLS, compiler_lock, contexts, symbols_known
from ensemble._interrupts import shielded

__all__ = ["Form", "last_loop", "loop_code", "loop_module"]


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


class Form(NamedTuple):
    """How a function is translated."""

    alone: bool
    """Whether it runs on the calling thread."""
    unrolled: bool = False
    """Whether LLVM may unroll each of its loops."""
    in_words: bool = True
    """Whether arguments are words, as `reader.py` takes them from Python."""


def loop_module(function: Any, kinds: Sequence[Any], form: Form) -> str:
    """A module in LLVM's assembly with ``part`` and ``count`` for a function that ends in a `prange` loop.

    ``part(words, low, high)`` runs rounds `low` to `high` on the calling thread and returns what the function returns;
    ``count(words)`` is the number of rounds. Without `Form.in_words`, there is
    ``part(*arguments, low, high)`` alone: it takes arrays as the address of their data and their extents, tuples entry
    by entry.

    One that runs `Form.alone` has no ``count``, any statements, and returns nothing or an integer
    that is not negative. `kinds` are those of `native_call.kinds_of`.
    """
    tree, module = source_of(function.__code__), ir.Module()
    flat = flat_types(kinds)
    names = [each.arg for each in tree.args.args]
    if len(names) != len(kinds):
        raise TranslationError("another number of arguments")
    taken = [WORDS] if form.in_words else flat

    def body_of(name: str, *span: ir.Type) -> Statements:
        made = ir.Function(module, ir.FunctionType(I64, [*taken, *span]), name)
        made.attributes.add("nounwind")
        body = Statements(made, Scope(function), form.alone, form.unrolled)
        values = _from_words(body.builder, made.args[0], flat) if form.in_words else iter(made.args)
        for name, kind in zip(names, kinds, strict=True):
            body.assign(name, _argument(body, kind, values))
        return body

    body = body_of("part", I64, I64)
    if form.alone:
        body.finish(body.procedure(tree))
        return str(module)
    loop, before, part = last_loop(function), tree.body[:-1], body.made
    body.run(before)
    body.counted(loop, SIGNED, part.args[-2], part.args[-1], I64(1), True)
    body.finish(I64(0))
    if form.in_words:
        body = body_of("count")
        body.run(before)
        body.finish(body.cast(body.value(loop.iter.args[0]), SIGNED))
    return str(module)


def _from_words(builder: ir.IRBuilder, words: Any, flat: Sequence[ir.Type]) -> Iterator[Any]:
    """Take the arguments of a loop from its words, which nothing that it writes to overlaps."""
    words.add_attribute("noalias")
    loaded = [builder.load(builder.gep(words, [I64(k)], inbounds=True)) for k in range(len(flat))]
    return iter([argument_of(builder, kind, word) for kind, word in zip(flat, loaded, strict=True)])


def _argument(body: Statements, kind: Any, values: Any) -> Any:
    """Make an argument of type `kind` from the next of LLVM's `values`: an array takes its address and its extents."""
    if isinstance(kind, tuple):
        return tuple(_argument(body, part, values) for part in kind)
    if isinstance(kind, types.Array):
        data, *shape = (next(values) for _ in range(1 + kind.ndim))
        return body.array(kind.dtype, data, shape, kind.mutable)
    return Value(kind, next(values))


def loop_code(function: Any, kinds: Sequence[Any], form: Form) -> Code:
    """The machine code of `loop_module`, which is kept on disk.

    Without a name of Numba that it needs, a loop is not translated.
    """
    return shielded(lambda: _loop_code(function, kinds, form))


def _loop_code(function: Any, kinds: Sequence[Any], form: Form) -> Code:
    numba.get_num_threads()  # starts the threads, to whose functions the code refers
    if contexts() is None or not symbols_known():
        raise TranslationError(f"this Numba lacks its contexts of code, or one of {', '.join(SYMBOLS)}")
    declare_python_functions()
    with compiler_lock():
        key = _key(function, kinds, form)
        text = "" if key else loop_module(function, kinds, form)
        make = lambda: Module(text or loop_module(function, kinds, form), (), has_loops=True)
        return kept_code(key or text, make, ["part"] if form.alone or not form.in_words else ["part", "count"], str)


def _key(function: Any, kinds: Sequence[Any], form: Form) -> str:
    """What the machine code depends on: sources, constants in the scope, types; empty for functions from elsewhere."""
    generated = function.__module__.startswith(GENERATED)  # the name has a digest of the source
    if not generated and not inspect.getfile(function).startswith(str(ROOT)):
        return ""
    constants = [cell.cell_contents for cell in function.__closure__ or ()]
    if not all(isinstance(each, int | float | str) for each in constants):
        return ""
    sources = [digest_of(folder) for folder in folders_of(function)]
    about = function.__module__, function.__qualname__, constants, kinds, form
    return repr((*about, sources, numba.__version__))
