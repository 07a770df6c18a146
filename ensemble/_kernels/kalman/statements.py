"""Symbols that record the arithmetic of a step as statements, one operation each."""

from __future__ import annotations

from ensemble._kernels.kalman import step

__all__ = ["CONSTANTS", "Symbol", "Writer"]

CONSTANTS = {"zero": "0.0", "one": "1.0", "minus_half": "-0.5", "two_pi": repr(step.TWO_PI),
             "least_pivot": "LEAST_PIVOT", "nan": "np.nan", "lost_spread": "LOST_SPREAD", "lost_noise": "LOST_NOISE",
             "known": "KNOWN"}  # fmt: skip
"""Constants by name, as they are written in a module."""


class Writer:
    """The operations that `step` takes: each on symbols is recorded as one assignment."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.groups: list[str] = []

    def __getattr__(self, name: str) -> Symbol:
        """The symbol of a constant; made anew, as one that is kept would refer back."""
        if name not in CONSTANTS:
            raise AttributeError(name)
        return Symbol(self, name)

    def write(self, operation: str, *operands: Symbol) -> Symbol:
        name = f"t{len(self.lines)}"
        self.lines.append(" ".join([name, operation, *(operand.name for operand in operands)]))
        return Symbol(self, name, operands if operation == "*" else None)

    def where(self, condition: Symbol, a: Symbol, b: Symbol) -> Symbol:
        return self.write("pick", condition, a, b)

    def missing(self, y: Symbol) -> Symbol:
        return self.write("!=", y, y)

    def columns(self, A: list[list[Symbol]], symmetric: bool = False) -> list[list[Symbol]]:
        """`A`, whose columns are groups of `straight_line`; of symmetric matrices down to the diagonal."""
        for j in range(len(A[0])):
            self.groups.append(" ".join(row[j].name if i <= j or not symmetric else "-" for i, row in enumerate(A)))
        return A


class Symbol:
    """The name of a scalar. A product that is added or subtracted is fused: rounded once, with the sum."""

    def __init__(self, writer: Writer, name: str, factors: tuple[Symbol, ...] | None = None) -> None:
        self.writer, self.name, self.factors = writer, name, factors

    def __add__(self, other: Symbol) -> Symbol:
        if other.factors is None:
            return self.writer.write("+", self, other)
        return self.writer.write("fma", *other.factors, self)

    def __sub__(self, other: Symbol) -> Symbol:
        if other.factors is None:
            return self.writer.write("-", self, other)
        return self.writer.write("fnma", *other.factors, self)

    def __mul__(self, other: Symbol) -> Symbol:
        return self.writer.write("*", self, other)

    def __truediv__(self, other: Symbol) -> Symbol:
        return self.writer.write("/", self, other)

    def __le__(self, other: Symbol) -> Symbol:
        return self.writer.write("<=", self, other)
