"""The filter of `step.py` as CUDA C++: ``__device__`` functions for one size, with all matrices in registers.

The types of their arguments are those of `cuda/elements.cuh` and `cuda/steps.cuh`. Every operation rounds as on the
CPU: what remains of a product after `Symbol` has fused it is never a term of a sum, which the compiler could contract.
"""

from __future__ import annotations

import functools
from typing import Any

from ensemble._kernels.kalman import step
from ensemble._kernels.kalman.statements import CONSTANTS, Symbol, Writer

__all__ = ["device_functions"]

VALUES = dict(CONSTANTS, zero="real(0)", one="real(1)", minus_half="real(-0.5)", two_pi="real(TWO_PI)",
              least_pivot="nearly_singular(NX)", nan="(real(0) / real(0))", lost_spread="(real(NX) * lost_part())",
              lost_noise="lost_part()", known="known_part(NX)")  # fmt: skip
"""Constants as they are written in CUDA C++."""

OPERATIONS = {
    "+": "{} + {}",
    "-": "{} - {}",
    "*": "{} * {}",
    "/": "{} / {}",
    "<=": "{} <= {}",
    "!=": "{} != {}",
    "pick": "{} ? {} : {}",
    "fma": "fma({}, {}, {})",
    "fnma": "fma(-{}, {}, {})",
}


def _vector(o: Writer, name: str, n: int) -> list[Symbol]:
    return [Symbol(o, f"{name}[{i}]") for i in range(n)]


def _matrix(o: Writer, name: str, rows: int, columns: int) -> list[list[Symbol]]:
    return [_vector(o, f"{name}[{i}]", columns) for i in range(rows)]


def _symmetric(o: Writer, name: str, n: int) -> list[list[Symbol]]:
    """A `Sym`, which stores the rows of the upper triangle."""
    packed = {(i, j): i * n - i * (i - 1) // 2 + j - i for i in range(n) for j in range(i, n)}
    return [[Symbol(o, f"{name}.s[{packed[min(i, j), max(i, j)]}]") for j in range(n)] for i in range(n)]


def _function(signature: str, o: Writer, pairs: list[tuple[Any, Any]]) -> str:
    """A function that sets each target of `pairs` to its value, by the statements of `o` that these values need."""
    lines: list[str] = []
    for target, value in pairs:
        lines.insert(0, f"    {target.name} = {VALUES.get(value.name, value.name)};")
    needed = {value.name for _, value in pairs}
    for line in reversed(o.lines):
        name, operation, *operands = line.split()
        if name in needed:
            needed.update(operands)
            kind = "bool" if operation in ("<=", "!=") else "real"
            text = OPERATIONS[operation].format(*(VALUES.get(operand, operand) for operand in operands))
            lines.append(f"    const {kind} {name} = {text};")
    return "\n".join([f"__device__ __forceinline__ void {signature} {{", *reversed(lines), "}"])


def _pairs(targets: Any, values: Any) -> list[tuple[Any, Any]]:
    """The entries of two matrices or vectors side by side, without those that have no value; each target once."""
    if not isinstance(targets, list):
        return [] if values is None else [(targets, values)]
    entries = [pair for both in zip(targets, values, strict=True) for pair in _pairs(*both)]
    return list({target.name: (target, value) for target, value in entries}.values())


def _predict(nx: int) -> str:
    o = Writer()
    m, P = _vector(o, "x.m", nx), _symmetric(o, "x.P", nx)
    mean, covariance = step.predict(o, _matrix(o, "s.F", nx, nx), _symmetric(o, "s.Q", nx), _vector(o, "s.u", nx), m, P)
    return _function("predict(const Transition& s, State& x)", o, _pairs(m, mean) + _pairs(P, covariance))


def _update(nx: int, ny: int) -> str:
    o = Writer()
    m, P = _vector(o, "x.m", nx), _symmetric(o, "x.P", nx)
    parts = _matrix(o, "o.H", ny, nx), _symmetric(o, "o.R", ny), _vector(o, "o.d", ny), _vector(o, "o.y", ny)
    targets = [m, P, Symbol(o, "g.quadratic"), _vector(o, "g.pivot", ny), _matrix(o, "g.K", nx, ny),
               _matrix(o, "g.lower", ny, ny), _vector(o, "g.inverse", ny), _vector(o, "g.white", ny)]  # fmt: skip
    results = list(step.update(o, *parts, m, P))
    return _function("update(const Observation& o, State& x, Gain& g)", o, _pairs(targets, results))


@functools.cache
def device_functions(nx: int, ny: int) -> str:
    """`predict` and `update` in CUDA C++."""
    functions = {
        "Mean and covariance one transition on": _predict(nx),
        "Mean and covariance given an observation, its entries that are NaN left out": _update(nx, ny),
    }
    return "".join(f"// {comment}\n{text}\n\n" for comment, text in functions.items())
