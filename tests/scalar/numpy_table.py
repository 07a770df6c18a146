"""The table of the random calls: one entry for every function of NumPy that is tried."""

from __future__ import annotations

import operator

import numpy as np

from tests.scalar.numpy_calls import Call, Own, Plain, leaves

CALLS = {}

ALL, REAL, FLOAT, INTEGER, INEXACT = "?bBhHiIqQfdFD", "?bBhHiIqQfd", "fd", "bBhHiIqQ", "fdFD"

VECTORISED = frozenset(
    [
        "exp",
        "expm1",
        "log",
        "log1p",
        "log2",
        "log10",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "arcsin",
        "arccos",
        "arctan",
        "arcsinh",
        "arccosh",
        "arctanh",
        "cbrt",
        "exp2",
        "absolute",
        "abs",
        "angle",
        "power",
        "float_power",
        "multiply",
        "divide",
        "square",
        "mul",
        "truediv",
        "imul",
        "itruediv",
        "ipow",
        "arctan2",
        "hypot",
        "logaddexp",
        "logaddexp2",
        "reciprocal",
        "sqrt",
        "pow",
    ]
)
PRODUCTS = frozenset(
    ["matmul", "vecdot", "matvec", "vecmat", "imatmul", "dot", "inner", "vdot", "tensordot", "einsum", "multi_dot"]
) | {"solve", "lstsq", "convolve", "correlate"}
"""BLAS makes of infinities and NaN what its loops for each shape make of them."""

TIES = frozenset(
    ["reduce", "fmax", "fmin", "maximum", "minimum", "max", "min", "amax", "amin", "nanmax", "nanmin", "clip"]
)


def add(names, make, *, exact=True, module=np, weight=1, memory=True):
    """The calls of the functions `names` of `module`; ``make(d, f)`` draws arguments and options."""
    for name in names.split():
        f = getattr(module, name) if isinstance(name, str) else name
        prefix = {np.linalg: "linalg.", np.fft: "fft.", operator: "operator."}.get(module, "")
        CALLS[prefix + name] = (f, make, exact, weight, memory)


def drawn(d, name):
    """A random call of the function `name` with one ensemble of several samples or more among the arguments."""
    f, make, exact, _, memory = CALLS[name]
    d.finite = name.rpartition(".")[2] in PRODUCTS
    for _ in range(40):
        try:
            args, kwargs = make(d, f)
        except (
            TypeError,
            ValueError,
            IndexError,
            np.exceptions.AxisError,
            OverflowError,
            ZeroDivisionError,
            np.linalg.LinAlgError,
        ):
            continue
        if leaves((args, kwargs), Own):
            # NumPy's own loops depend on layout and length: another last bit (of complex products everywhere), and
            # either zero for a tie of 0.0 and -0.0.
            owns = leaves((args, kwargs), Own)
            if name.rpartition(".")[2] in VECTORISED:
                arrays = leaves((args, kwargs), (Own, Plain))
                exact = not kwargs and not any(own.steps for own in owns)
                exact = exact and not any(array.dtype.kind == "c" for array in arrays)
            return Call(name, f, tuple(args), kwargs, exact, memory, signed_zeros=name.rpartition(".")[2] not in TIES)
    return None
