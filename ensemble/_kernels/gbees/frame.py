"""The grid's frame and the drift in it: one body, called with arrays by the Array API engine, traced for the others.

A point z of the frame lies at ``x = rotation @ z + origin`` in space. The order of operations decides the sign of
velocities of rounding size, and with it which cells exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._compile.trace.graph import Graph
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._typing import Array, Namespace

__all__ = ["REAL", "as_real", "matrix_rows", "position", "trace_bounds", "trace_velocity", "velocity"]

REAL = Scalar("float64")


def dot(a: Sequence[Array], b: Sequence[Array]) -> Any:
    """The scalar product, terms added in ascending order."""
    return sum((a[i] * b[i] for i in range(1, len(a))), a[0] * b[0])


def matrix_rows(entries: Sequence[Array], n: int) -> list[Sequence[Array]]:
    """The rows of an (n, n) matrix that is stored row after row."""
    return [entries[i * n : (i + 1) * n] for i in range(n)]


def position(
    z: Sequence[Array], origin: Sequence[Array], rotation: Sequence[Sequence[Array]] | None = None
) -> tuple[Array, ...]:
    """The point in space, n scalars, of a point `z` of the grid's frame; `rotation` is given by rows."""
    rotated = z if rotation is None else [dot(row, z) for row in rotation]
    return tuple(rotated[i] + origin[i] for i in range(len(z)))


def velocity(
    drift: Callable[..., Sequence[Array]],
    z: Sequence[Array],
    t: Array,
    xp: Namespace,
    origin: Sequence[Array],
    rotation: Sequence[Sequence[Array]] | None,
    drift_parameters: Sequence[Array],
) -> tuple[Array, ...]:
    """The drift along the grid's axes, n scalars, at a point `z` of the grid's frame.

    Raises
    ------
    ValueError
        If `drift` does not return n components.
    """
    f = tuple(drift(position(z, origin, rotation), t, xp, *drift_parameters))
    if len(f) != len(z):
        raise ValueError(f"Gbees: drift must give one number a dimension, {len(z)}; got {len(f)}.")
    return f if rotation is None else tuple(dot(column, f) for column in zip(*rotation, strict=True))


def as_real(value: Any) -> Any:
    """`value`, a number or a traced scalar, in float64."""
    return value if getattr(value, "dtype", None) == np.float64 else value * 1.0


def trace_velocity(drift: Callable[..., Any], n: int, n_parameters: int, rotated: bool) -> Graph:
    """The graph of `velocity`. Inputs: z, t, origin, the rotation row after row (if `rotated`), drift parameters."""

    def body(z: Array, t: Array, origin: Any, rotation: Any, drift_parameters: Any) -> Any:
        rows = matrix_rows(rotation, n) if rotated else None
        v = velocity(drift, z, t, t.__array_namespace__(), origin, rows, drift_parameters)
        return tuple(as_real(component) for component in v)

    point, matrix = (REAL,) * n, (REAL,) * (n * n * rotated)
    return trace(body, point, REAL, point, matrix, (REAL,) * n_parameters, function="Gbees")


def trace_bounds(bounds: Callable[..., Any], n: int, rotated: bool) -> Graph:
    """The graph of `bounds` at a point of the frame. Inputs: z, origin, the rotation row after row (if `rotated`)."""

    def body(z: Array, origin: Any, rotation: Any) -> Any:
        rows = matrix_rows(rotation, n) if rotated else None
        return as_real(bounds(position(z, origin, rows), z[0].__array_namespace__()))

    point = (REAL,) * n
    return trace(body, point, point, (REAL,) * (n * n * rotated), function="Gbees")
