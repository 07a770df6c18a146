"""Calls of C functions by their addresses: code that is compiled once calls what is compiled for each problem."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ensemble._compile.instructions import unpacked
from ensemble._compile.lanes.types import data_of

__all__ = [
    "call_bounds", "call_elements", "call_loop", "call_part", "call_prune", "call_rounds", "call_rows",
    "call_velocities", "pointer_at",
]  # fmt: skip


@intrinsic
def pointer_at(typingctx: Any, address: Any, like: Any) -> Any:
    """The pointer to numbers of the dtype of `like` at an address."""
    kind = types.CPointer(like.dtype)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(kind))

    return kind(types.int64, like), codegen


def _plain(context: Any, builder: Any, kind: Any, value: Any, procedure: bool) -> list[Any]:
    """List the C arguments for one of Numba's: the parts of a tuple, an array's pointer and maybe extents."""
    if isinstance(kind, types.Tuple | types.UniTuple):
        parts = zip(kind.types, unpacked(builder, value), strict=True)
        return [argument for part in parts for argument in _plain(context, builder, *part, procedure)]
    if isinstance(kind, types.Array):
        data = data_of(context, builder, kind, value)
        if not procedure:
            return [data]
        place = context.data_model_manager[kind].get_field_position("shape")
        return [data, *unpacked(builder, builder.extract_value(value, place))]
    return [value]


def _caller(returned: types.Type, procedure: bool = False) -> Any:
    """An intrinsic ``call(address, *arguments)``: tuples entry by entry, for arrays pointers to their first entries.

    With `procedure`, the arguments are those of ``part`` in `loops/translation.py`: each pointer is followed by the
    extents of its array as integers, and the last two integers, a range of rounds, are zero.
    """

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        arguments = _plain(context, builder, signature.args[1], values[1], procedure)
        if procedure:
            arguments += [ir.IntType(64)(0)] * 2
        kind = ir.VoidType() if returned is types.void else context.get_value_type(returned)
        function = ir.FunctionType(kind, [argument.type for argument in arguments])
        result = builder.call(builder.inttoptr(values[0], function.as_pointer()), arguments)
        return context.get_dummy_value() if returned is types.void else result

    @intrinsic
    def call(typingctx, address, *arguments):
        kinds = [types.int64 if isinstance(kind, types.Integer) else kind for kind in arguments]
        return returned(types.int64, types.StarArgTuple(kinds)), codegen

    return call


call_velocities = _caller(types.void)
"""``(address, first, last, time, keys, v, size, frame, numbers)``: velocities of the cells `first` to `last`."""

call_bounds = _caller(types.int64)
"""``(address, key, frame, numbers)``: 0 where bounds refuse the cell with this key."""

call_prune = _caller(types.int64, procedure=True)
"""``(address, *arguments)``: `prune` of `_kernels/gbees/grid.py`."""

call_rows = _caller(types.int64)
"""``(address, rows, threshold, limit)``: evaluations of a body on lanes that were made; see `lanes/graph_loop.py`."""

call_elements = _caller(types.int64)
"""``(address, places, count, streamed, numbers)``: a body for `count` elements; see `lanes/elementwise_loop.py`."""

call_part = _caller(types.int64)
"""``(address, places, part, n_samples, first)``: rows of one part; see `_kernels/fem/form_loops.py`."""

call_rounds = _caller(types.int64)
"""``(address, words)``: how many rounds a loop has for arguments that lie as words at an address; see `reader.py`."""

call_loop = _caller(types.int64)
"""``(address, words, low, high)``: the rounds `low` to `high` of such a loop."""
