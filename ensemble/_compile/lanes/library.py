"""Functions of lanes in LLVM's assembly, each translated once per machine and kept on disk.

Numba translates the Python functions of `functions.py`, `circular.py`, `quotients.py` and `tables.py`. Bodies that
are written as text (`graph_loop.py`) call them by `LaneFunction.name`.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from ensemble._compile.cache_folder import digest_of, kept_file
from ensemble._compile.lanes import arithmetic, circular, functions, quotients, tables
from ensemble._compile.lanes import types as _types
from ensemble._compile.lanes.types import Lanes
from ensemble._compile.numba import inner
from ensemble._compile.processor import target
from ensemble._compile.trace.operations import OPERATIONS, Table

__all__ = ["LaneFunction", "assembly_of"]

KINDS: dict[str, Any] = {
    "float64": types.float64, "float32": types.float32, "int64": types.int64, "int32": types.int32,
    "bool": types.boolean,
}  # fmt: skip

NAMESPACE: dict[str, Any] = {"np": np}
for _module in (arithmetic, circular, functions, quotients, tables, _types):
    NAMESPACE |= {name: getattr(_module, name) for name in _module.__all__}


class LaneFunction(NamedTuple):
    """An operation on `width` lanes, with the dtypes of its operands and of its result."""

    operation: str
    kinds: tuple[str, ...]
    dtype: str
    width: int
    table: Table | None

    @property
    def registers(self) -> int:
        """Registers that an operand fills."""
        return max(1, self.width * int(self.kinds[-1].lstrip("abcdefghijklmnopqrstuvwxyz") or 8) // 512)

    @property
    def name(self) -> str:
        """The name in LLVM's assembly; those of equal functions are equal, in all processes."""
        last = "" if self.table is None else f"_{self.table.name}"
        return f"lanes_{self.operation}_{'_'.join(self.kinds)}_{self.width}{last}"

    @property
    def inner_name(self) -> str:
        """The name of the function that Numba made, which `name` calls."""
        return f"{self.name}_of_numba"


def assembly_of(function: LaneFunction) -> str:
    """A module with the function ``name(lanes, ...)``, internal to the module that it is linked into."""
    about = repr((function.name, digest_of("_compile"), numba.__version__, target()))
    name = f"lanes_{hashlib.blake2b(about.encode(), digest_size=16).hexdigest()}.ll"
    return kept_file(name, lambda: _translated(function).encode()).decode()


def _translated(function: LaneFunction) -> str:
    """By Numba, whose function returns a status, and its result by a pointer; names of one process are replaced."""
    arguments = tuple(Lanes(KINDS[kind], function.width) for kind in function.kinds)
    dispatcher = inner(_python_function(function))
    dispatcher.compile(arguments)
    text = dispatcher.inspect_llvm(arguments)
    kinds = [_assembly_type(kind, function.width) for kind in function.kinds]
    result = _assembly_type(function.dtype, function.width)
    parameters = ", ".join(f"{kind} %a{k}" for k, kind in enumerate(kinds))
    wrapper = f"""
define {result} @{function.name}({parameters}) {{
  %place = alloca {result}
  %status = call i32 @{function.inner_name}(ptr %place, ptr null, {parameters})
  %result = load {result}, ptr %place
  ret {result} %result
}}
"""
    return _renamed(text, _defined_name(text), function.inner_name) + wrapper


def _defined_name(text: str) -> str:
    """The name of the function that returns Numba's status: the others of its module are internal."""
    names = re.findall(r'^define (?!internal|linkonce).*?i32 @"?([^"(]+)"?\(', text, re.MULTILINE)
    if len(names) != 1:
        raise RuntimeError(f"lanes: one function was expected in Numba's code; got {names}.")
    return str(names[0])


def _renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf'@"?{re.escape(old)}"?(?=[(\s,])', f"@{new}", text)


def _assembly_type(dtype: str, width: int) -> str:
    element = {"float64": "double", "float32": "float", "int64": "i64", "int32": "i32", "bool": "i1"}[dtype]
    return f"<{width} x {element}>"


def _python_function(function: LaneFunction) -> Any:
    """The operation as a function of lanes, as in generated elementwise kernels."""
    name, kinds, table = function.operation, function.kinds, function.table
    names = [f"x{k}" for k in range(len(kinds))]
    extra: dict[str, Any] = {}
    if table is not None:
        text, extra = "interpolated_lanes(x0, points, values)", {"points": table.points, "values": table.values}
    else:
        operation = OPERATIONS[name]
        single = operation.libm and kinds[-1] == "float32"  # in float64, rounded once more at the end
        given = [f"as_float64({x})" for x in names] if single else names
        text = operation.text("lanes", not kinds[-1].startswith("float")).format(*given)
        text = f"as_float32({text})" if single else text
    scope = {**NAMESPACE, **extra}
    exec(f"def function({', '.join(names)}):\n    return {text}\n", scope)
    return scope["function"]
