"""Work sharing: loops over ranges whose parts run on several threads, in functions that are compiled once.

Numba compiles a loop over `prange` as a second function, with an interface of its own, which takes as long again as the
function around it. Here the function itself is called by each thread, with the part of the range that the thread runs:

    @work_sharing
    def scale(x, factor):
        n = x.size
        for i in prange(n):
            x[i] *= factor

is compiled as

    def scale(x, factor, low, high):
        n = x.size
        if high < 0:
            whole = n
            if high == ALL_THREADS and share(whole):
                return
            low, high = 0, whole
        for i in range(low, high):
            x[i] *= factor

where ``share(whole)`` calls ``scale`` with its own arguments and a part of ``range(whole)`` in each thread. What stands
before the loop is computed by every thread: assignments that neither allocate nor write. As with Numba's `prange`,
indices that are the loop's variable are taken as unsigned, and arithmetic on it is that of int64.
"""

from __future__ import annotations

import ast
import functools
import linecache
import textwrap
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ensemble._compile.kernel_cache import cached

__all__ = ["ALL_THREADS", "ONE_THREAD", "WorkSharing", "work_sharing"]

ALL_THREADS, ONE_THREAD = -1, -2
"""What `high` is where a function is called for the whole range."""

I64, BYTES = ir.IntType(64), ir.IntType(8).as_pointer()


@intrinsic
def share(typingctx, count):
    """Call the enclosing function on every thread, its last two arguments a part of ``range(count)``.

    False, and nothing is called, where there is one thread.
    """

    def codegen(context, builder, signature, arguments):
        function, module = builder.function, builder.module
        passed = function.args[2:-2]  # after the places of the result and of an exception, before low and high
        layout = ir.LiteralStructType([I64, I64, *(argument.type for argument in passed)])
        numbers = cgutils.get_or_insert_function(module, ir.FunctionType(I64, []), "get_num_threads")
        threads = builder.call(numbers, [])
        several = builder.icmp_signed(">", threads, I64(1))
        with builder.if_then(several, likely=False):
            task = cgutils.alloca_once(builder, layout)
            for k, value in enumerate((arguments[0], threads, *passed)):
                builder.store(value, builder.gep(task, [I64(0), ir.IntType(32)(k)]))
            first, step, size = (cgutils.alloca_once_value(builder, value) for value in (I64(0), I64(1), threads))
            schedule = cgutils.get_or_insert_function(
                module, ir.FunctionType(ir.VoidType(), [BYTES] * 5 + [I64] * 3), "numba_parallel_for"
            )
            places = [_part(function, layout), first, size, step, task]
            builder.call(schedule, [*(builder.bitcast(place, BYTES) for place in places), I64(0), I64(1), threads])
        return several

    return types.boolean(types.int64), codegen


def _part(function: ir.Function, layout: ir.LiteralStructType) -> ir.Function:
    """The function that the scheduler calls: ``part(index, size, step, task)``, `index` being that of the thread."""
    pointer = I64.as_pointer()
    part = ir.Function(
        function.module, ir.FunctionType(ir.VoidType(), [pointer, pointer, pointer, BYTES]), f"{function.name}.part"
    )
    part.linkage = "internal"
    builder = ir.IRBuilder(part.append_basic_block())
    k, task = builder.load(part.args[0]), builder.bitcast(part.args[3], layout.as_pointer())
    count, threads, *passed = (
        builder.load(builder.gep(task, [I64(0), ir.IntType(32)(at)])) for at in range(len(layout.elements))
    )
    low, high = (builder.sdiv(builder.mul(at, count), threads) for at in (k, builder.add(k, I64(1))))
    result, exception = (cgutils.alloca_once(builder, place.type.pointee) for place in function.args[:2])
    status = builder.call(function, [result, exception, *passed, low, high])
    status.attributes.add("noinline")
    builder.ret_void()
    return part


class _Indices(ast.NodeTransformer):
    """Subscripts that are the loop's variable, as unsigned numbers: they need no test for a negative one."""

    def __init__(self, variable: str) -> None:
        self.variable = variable

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Tuple):
            node.slice.elts = [self._unsigned(index) for index in node.slice.elts]
        else:
            node.slice = self._unsigned(node.slice)
        return node

    def _unsigned(self, index: ast.expr) -> ast.expr:
        if isinstance(index, ast.Name) and index.id == self.variable:
            return ast.Call(ast.Name("__unsigned", ast.Load()), [index], [])
        return index


HEAD = """
if __high < 0:
    __whole = {count}
    if __high == -1 and __share(__whole):
        return
    __low, __high = 0, __whole
"""


def _source_of(code: Any) -> ast.FunctionDef:
    """The syntax tree of a function, from its first decorator on, with the file's line numbers."""
    last = max(place[1] or 0 for place in code.co_positions())
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : last]
    tree = ast.parse(textwrap.dedent("".join(lines)))
    function = ast.increment_lineno(tree, code.co_firstlineno - 1).body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


@functools.cache
def _code_of(code: Any, file: str) -> Any:
    """The code of a module with one function ``make(<free variables>)`` that returns the function that is compiled.

    Code objects of two files are equal where their functions read alike, so the file is part of the key.
    """
    node = _source_of(code)
    *before, loop = node.body
    if not (
        isinstance(loop, ast.For)
        and isinstance(loop.target, ast.Name)
        and isinstance(loop.iter, ast.Call)
        and getattr(loop.iter.func, "id", None) == "prange"
        and len(loop.iter.args) == 1
    ):
        message = f"work_sharing: {node.name} must end in a loop `for i in prange(n)`; see {code.co_filename}"
        raise ValueError(message)
    head = ast.parse(HEAD.format(count=ast.unparse(loop.iter.args[0]))).body
    loop_over_part = ast.For(
        loop.target,
        ast.parse("range(__low, __high)", mode="eval").body,
        [_Indices(loop.target.id).visit(statement) for statement in loop.body],
        [],
    )
    arguments = ast.arguments(
        posonlyargs=[],
        args=[*(ast.arg(a.arg) for a in node.args.args), ast.arg("__low"), ast.arg("__high")],
        kwonlyargs=[], kw_defaults=[], defaults=[],
    )  # fmt: skip
    inside = ast.FunctionDef(node.name, arguments, [*before, *head, loop_over_part], [])
    free = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in code.co_freevars], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    make = ast.FunctionDef("__make", free, [inside, ast.Return(ast.Name(node.name, ast.Load()))], [])
    for each in (make, inside, loop_over_part):
        ast.copy_location(each, node)
    module = ast.fix_missing_locations(ast.Module([make], []))
    return compile(module, file, "exec")


def _shared_loop(function: Any) -> Any:
    """The function with the arguments ``low, high``."""
    namespace: dict[str, Any] = {}
    function.__globals__.update(__share=share, __unsigned=np.uint64)
    exec(_code_of(function.__code__, function.__code__.co_filename), function.__globals__, namespace)
    made = namespace["__make"](*(cell.cell_contents for cell in function.__closure__ or ()))
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made


class WorkSharing:
    """A function that is compiled when it is first called, and for every new kind of arguments."""

    def __init__(self, function: Callable[..., None], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's function, with the arguments ``low, high`` after its own."""
        numba.get_num_threads()  # starts the threads, to whose functions compiled code refers
        return cached(numba.njit(**self._options)(_shared_loop(self._function)))

    def __call__(self, *arguments: Any, threads: int = ALL_THREADS) -> None:
        """Run the loop on `ALL_THREADS` that Numba may use now, or on `ONE_THREAD`, the calling one."""
        self.dispatcher(*arguments, 0, threads)


def work_sharing(function: Callable[..., None], **options: Any) -> WorkSharing:
    """Compile a function that ends in ``for i in prange(n)``, with Numba's `options`."""
    return WorkSharing(function, options)
