"""Code that makes a plain array and writes into it what depends on its arguments, as ``u = np.zeros(n); u[0] = x``.

A plain array holds one number for an entry, so samples that differ cannot be written into it together: such code ends
in calls of each sample. Its first writes show that beforehand.
"""

from __future__ import annotations

import types

from ensemble._byte_code import steps_of

__all__ = ["OF_ARRAYS", "writes_samples"]

MAKERS = frozenset(("empty", "full", "ones", "zeros"))

OF_ARRAYS = MAKERS | frozenset((
    "all", "allclose", "any", "arange", "argmax", "argmin", "array", "array_equal", "asarray", "astype", "broadcast_to",
    "clip", "concatenate", "convolve", "copy", "count_nonzero", "cross", "cumprod", "cumsum", "det", "diag", "diagonal",
    "diff", "dot", "dtype", "eigh", "eigvalsh", "einsum", "eye", "flatten", "float32", "full_like", "gradient",
    "hstack", "identity", "inner", "int64", "interp", "inv", "linalg", "linspace", "matmul", "max", "mean", "meshgrid",
    "min", "ndim", "newaxis", "norm", "ones_like", "outer", "pad", "polyfit", "polyval", "prod", "ravel", "reshape",
    "roll", "searchsorted", "shape", "size", "solve", "sort", "stack", "std", "sum", "T", "tile", "trace", "transpose",
    "trapezoid", "tri", "tril", "triu", "var", "vstack", "where", "zeros_like", "empty_like",
))  # fmt: skip
"""Functions of NumPy and attributes of arrays that have no effect but their result."""

ENDS = ("STORE_", "POP_TOP", "POP_JUMP", "JUMP_BACKWARD", "RETURN_")


def writes_samples(code: types.CodeType) -> bool:
    """Whether an array that `code` makes is written to by a statement that has to do with its arguments."""
    if MAKERS.isdisjoint(code.co_names):
        return False
    dependent = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    made: set[str] = set()
    statements = _statements(code)
    known = -1
    while known < len(dependent) + len(made):  # a loop may use what a later statement assigns
        known = len(dependent) + len(made)
        for last, target, names, loads in statements:
            depends = not dependent.isdisjoint(loads)
            if last in ("STORE_SUBSCR", "STORE_SLICE"):
                if depends and not made.isdisjoint(loads):
                    return True
            elif target and not MAKERS.isdisjoint(names):
                made.add(target)
            elif target and depends:
                dependent.add(target)
    return False


def _statements(code: types.CodeType) -> list[tuple[str, str, set[str], set[str]]]:
    """For each run of instructions: its last one, the variable assigned, the names it uses, the variables it loads."""
    found = []
    names: set[str] = set()
    loads: set[str] = set()
    for step in steps_of(code):
        operation, value = step.opname, step.argval
        if operation.startswith("LOAD_FAST"):
            loads.update(value if isinstance(value, tuple) else (value,))
        elif operation.startswith(("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD", "LOAD_NAME")):
            names.add(str(value))
        elif operation.startswith(ENDS):
            parts = value if isinstance(value, tuple) else (value,)  # of instructions that store and load at once
            target = str(parts[0]) if operation.startswith("STORE_FAST") else ""
            found.append((operation, target, names, loads))
            names, loads = set(), set(parts[1:]) if operation.startswith("STORE_FAST_LOAD") else set()
    return found
