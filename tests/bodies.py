"""Bodies that the tests of the tracer and of its targets share."""

from ensemble._compile.trace.operations import OPERATIONS
from ensemble._compile.trace.tracer import Scalar

F64, F32, I64, I32, BOOL = (Scalar(name) for name in ("float64", "float32", "int64", "int32", "bool"))


def lorenz(x, t, xp, sigma=10.0, rho=28.0, beta=8.0 / 3.0):
    """A body of n scalars in and out."""
    return sigma * (x[1] - x[0]), x[0] * (rho - x[2]) - x[1], x[0] * x[1] - beta * x[2] + 0.0 * xp.sin(t)


def everything(x, y, i, mask, xp=None):
    """Every operation once, in the order of their names."""
    xp = x.__array_namespace__() if xp is None else xp
    results = []
    for name in sorted(OPERATIONS):
        operation = OPERATIONS[name]
        numbers = [x, y] if name != "acosh" else [x + 1.0]
        if operation.rule == "bitwise":
            numbers = [i, i + 3]
        elif operation.rule == "logical":
            numbers = [mask, x > 0.0]
        elif operation.rule == "select":
            numbers = [mask, x, y]
        results.append(getattr(xp, name)(*numbers[: operation.arity]))
    return tuple(results)
