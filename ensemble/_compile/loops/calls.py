"""Calls in a loop that is translated: Python's functions, operations of `lanes/`, functions spliced into the loop."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, prange, types
from numba.extending import is_jitted

from ensemble._compile.allocation import new
from ensemble._compile.instructions import INTRINSICS, instruction, smaller
from ensemble._compile.lanes.types import Lanes, called
from ensemble._compile.loops.arrays import Arrays
from ensemble._compile.loops.native_call import ARRAYS
from ensemble._compile.loops.scope import Scope, Span, TranslationError, Value, is_constant, source_of
from ensemble._compile.loops.values import I64, SCALARS, SIGNED
from ensemble._compile.numba_private import definition_of

__all__ = ["Calls"]


OF_A_NUMBER = (abs, math.sqrt, np.ceil, np.floor, np.rint, np.sqrt, np.trunc)
"""Functions of a real number that are one instruction, of their name in `INTRINSICS`."""


class Calls(Arrays):
    """Calls of functions."""

    def call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        if node.keywords or any(isinstance(part, ast.Starred) for part in node.args):
            raise self.refused(node)
        given = [self.value(part) for part in node.args]
        if is_jitted(function):
            if function.targetoptions.get("parallel"):
                raise self.refused(node, "has threads of its own")
            return self.spliced(function.py_func, given)
        if function in (new, np.empty, np.zeros):
            return self.allocate(function is np.zeros, *given)
        if function is np.full and len(given) == 2:
            return self.filled(*given)
        if function is carray:
            return self.array(given[0].kind.dtype, given[0].made, [self.cast(given[1], SIGNED)])
        if function in (np.isfinite, np.isnan) and isinstance(given[0], Value):
            return self.is_number(given[0], function is np.isfinite)
        if function is enumerate and isinstance(given[0], tuple):
            return tuple(enumerate(given[0]))
        if definition_of(function) is not None:
            return self.intrinsic(node, function, given)
        if isinstance(function, functools.partial):
            return function(*given)
        if function is range or function is prange:
            first, last = (0, given[0]) if len(given) == 1 else given[:2]
            return Span((first, last, given[2] if len(given) > 2 else 1))
        if function is len and isinstance(given[0], tuple):
            return len(given[0])
        if function is len and isinstance(given[0], Value) and isinstance(given[0].kind, types.UniTuple):
            return given[0].kind.count
        if all(map(is_constant, given)) and function in (*SCALARS, min, max, abs, len, bool, math.sqrt, np.sqrt):
            return function(*given)
        if function in SCALARS:
            return Value(SCALARS[function], self.cast(given[0], SCALARS[function]))
        if isinstance(function, type) and issubclass(function, np.signedinteger) and len(given) == 1:
            kind = ir.IntType(8 * np.dtype(function).itemsize)
            whole = self.cast(given[0], SIGNED)
            return Value(SIGNED, self.builder.sext(self.builder.trunc(whole, kind), I64))
        if function in (min, max) and len(given) == 2:
            return self.smaller(node, function is min, *map(self.made_of, given))
        if function is abs and given[0].kind is SIGNED:
            negative = self.builder.icmp_signed("<", given[0].made, I64(0))
            return Value(SIGNED, self.builder.select(negative, self.builder.neg(given[0].made), given[0].made))
        if function in OF_A_NUMBER and isinstance(given[0].kind, types.Float):
            name = INTRINSICS[function.__name__]
            return Value(given[0].kind, instruction(self.builder, name, [given[0].made]))
        raise self.refused(node)

    def is_number(self, value: Value, finite: bool) -> Value:
        """Whether a number is finite, or else whether it is NaN."""
        if not isinstance(value.kind, types.Float):
            raise TranslationError(f"isfinite of {value.kind}")
        if not finite:
            return Value(types.boolean, self.builder.fcmp_unordered("uno", value.made, value.made))
        size = instruction(self.builder, "fabs", [value.made])
        return Value(types.boolean, self.builder.fcmp_ordered("<", size, ir.Constant(size.type, float("inf"))))

    def smaller(self, node: ast.AST, least: bool, a: Value, b: Value) -> Value:
        if a.kind != b.kind or not isinstance(a.kind, types.Integer | types.Float):
            raise self.refused(node, f"{a.kind}, {b.kind}")
        return Value(a.kind, smaller(self.builder, least, a.made, b.made, signed=a.kind is SIGNED))

    def intrinsic(self, node: ast.AST, function: Any, given: list[Any]) -> Any:
        """An operation of `lanes/`, which are intrinsic functions of Numba."""
        if function is called:
            raise self.refused(node)
        found = definition_of(function)(self.typing, *map(self.kind_of, given))
        if found is None:
            raise self.refused(node, str([*map(self.kind_of, given)]))
        signature, codegen = found
        wanted = list(signature.args)
        if isinstance(wanted[-1] if wanted else None, types.StarArgTuple | types.StarArgUniTuple):
            given = [*given[: len(wanted) - 1], tuple(given[len(wanted) - 1 :])]
        values = [self.argument(value, kind) for value, kind in zip(given, wanted, strict=True)]
        try:
            made = codegen(self.context, self.builder, signature, values)
        except IndexError as error:  # it has Numba compile a function, into a library that is not there
            raise self.refused(node) from error
        if signature.return_type in (types.void, types.none):
            return None
        return Value(signature.return_type, made)

    def kind_of(self, value: Any) -> Any:
        """Numba's type of an argument of an intrinsic function."""
        if isinstance(value, Value):
            return value.kind
        if isinstance(value, tuple):
            return types.Tuple.from_types([self.kind_of(part) for part in value])
        if isinstance(value, np.dtype):
            return types.DType(ARRAYS[value])
        if isinstance(value, np.ndarray):
            return types.Array(ARRAYS[value.dtype], value.ndim, "C", readonly=True)
        return types.literal(value) if isinstance(value, bool | int) else self.made_of(value).kind

    def argument(self, value: Any, kind: Any) -> Any:
        """LLVM's value of an argument of an intrinsic function."""
        if isinstance(value, tuple):
            parts = [self.argument(part, each) for part, each in zip(value, kind.types, strict=True)]
            return self.context.make_tuple(self.builder, kind, parts)
        if isinstance(kind, types.Literal):
            return self.made_of(value).made
        if isinstance(kind, types.Number | types.Boolean | Lanes):
            return self.cast(value, kind)
        return value.made if isinstance(value, Value) else None

    def spliced(self, function: Any, given: Sequence[Any]) -> Any:
        """The statements of a called function, among those of its caller."""
        tree = source_of(function.__code__)
        names = [each.arg for each in tree.args.args]
        missing = len(names) - len(given)
        given = [*given, *((function.__defaults__ or ())[-missing:] if missing else ())]
        outer, self.scope = self.scope, Scope(function)
        for name, value in zip(names, given, strict=True):
            self.assign(name, value)
        returned, self.scope = self.returned_by(tree.body), outer
        if len(returned) == 1:
            return returned[0][0]
        if all(value is None for value, _ in returned):
            return None
        values, ends = zip(*returned, strict=True)
        return self.met(self.joined(tree, values, ends), ends)

    def returned_by(self, statements: Sequence[ast.stmt]) -> list[tuple[Any, ir.Block]]:
        """Translate the statements of the present scope; what they return, and the blocks in which."""
        scope = self.scope
        scope.end = self.block("returned")
        self.run(statements)
        if not self.builder.block.is_terminated:
            scope.returned.append((None, self.builder.block))
            self.builder.branch(scope.end)
        self.builder.position_at_end(scope.end)
        return scope.returned
