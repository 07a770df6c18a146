"""The problem of a GBEES run: the grid's frame, the drift in it, and the rules of the method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from ensemble._check import kind_of, message, require, require_type
from ensemble._kernels.gbees import frame
from ensemble._typing import Array, DType, Namespace
from ensemble.apps.gbees.mixing import Mixing
from ensemble.apps.gbees.tables import with_tables

__all__ = ["Drift", "Problem"]


@dataclass(frozen=True)
class Drift:
    """The right-hand side of ``dx/dt = f(x, t)`` with named parameters, each a number or one number per sample.

    Parameters
    ----------
    function : callable
        ``function(x, t, xp, *parameters)``: `x` a tuple of n scalars, `t` a scalar, `xp` the namespace of their
        functions; gives n scalars. It is traced for compiled backends: no branches on values, only arithmetic and
        functions of `xp`, tables of plain arrays by ``xp.interp(x[0], points, values)`` among them.
    parameters : tuple of float or Ensemble
        Passed after `xp`. They reach compiled code as arguments: new values need no new compilation.
    names : tuple of str
        What the parameters are called, for messages and records.

    Raises
    ------
    TypeError, ValueError
        If `function` is not callable, `parameters` are no tuple, or `names` are fewer or more than they.

    Examples
    --------
    >>> spring = Drift(lambda x, t, xp, k: (x[1], -k * x[0]), (2.0,), ("k",))
    >>> spring((1.0, 0.0), 0.0, None), spring.with_parameters(k=3.0)((1.0, 0.0), 0.0, None)
    ((0.0, -2.0), (0.0, -3.0))
    """

    function: Callable[..., Sequence[Array]]
    parameters: tuple[Array, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not callable(self.function):
            seen = kind_of(self.function)
            raise TypeError(message("Drift", "function", "be a function (x, t, xp, *parameters)", seen))
        require_type(self.parameters, (tuple, list), "Drift", "parameters", "be a tuple of numbers or Ensembles")
        count = f"{len(self.names)} for {len(self.parameters)} parameters"
        require(len(self.names) in (0, len(self.parameters)), "Drift", "names", "be one per parameter, or none", count)

    def __call__(self, x: Sequence[Array], t: Array, xp: Namespace) -> Sequence[Array]:
        """The n components of the drift at `x` and `t`."""
        return self.function(x, t, xp, *self.parameters)

    def with_parameters(self, **values: Array) -> Drift:
        """The same right-hand side with some parameters changed.

        Raises
        ------
        TypeError
            If there is no parameter of such a name.
        """
        unknown = sorted(set(values) - set(self.names))
        if unknown:
            known = ", ".join(self.names) if self.names else "none"
            raise TypeError(f"Drift: parameters must be known by name ({known}); got {', '.join(unknown)}.")
        kept = zip(self.names, self.parameters, strict=True)
        return replace(self, parameters=tuple(values.get(name, value) for name, value in kept))


@dataclass(frozen=True)
class Problem:
    """One sample's problem: everything that does not change in a run, for one grid.

    A cell with multi-index s has its centre at ``z = widths * s`` in the grid's frame and at ``x = z + origin`` in
    space, or ``x = rotation @ z + origin`` where the grid is rotated. The order of these operations decides the sign of
    velocities of rounding size, and with it which cells are kept: the arithmetic is written once, in
    `ensemble._kernels.gbees.frame`, and is traced for compiled engines.

    Attributes
    ----------
    drift : Drift
        The right-hand side, with parameters that are plain numbers here.
    origin, widths : ndarray (n,)
        Centre of the cell s = 0, and the cells' edge lengths.
    threshold : float
        Cells whose probability is at least this are active: they grow neighbours and are reported.
    limiter : str
        ``"mc"``, ``"superbee"``, ``"van_leer"``, ``"minmod"`` or ``"none"`` (first order).
    cfl : float
        Time steps are this times the largest stable one of the fully upwind scheme, ``1 / sum_i |v_i| / dx_i``.
    prune_every : int
        Steps between two prunes.
    prune : str
        ``"sequential"`` deletes candidates in ascending order while the next one's share of what would be left is below
        `threshold`; ``"parallel"`` deletes every candidate.
    bounds : callable or None
        ``bounds(x, xp)``; a cell is made only where it lies in `bounds_range`.
    diffusion : ndarray (n,) or None
        Diagonal of the process noise density Q in the grid's frame: ``dp/dt = ... + 1/2 Q_ij d2p/dx_i dx_j``.
    mixing : Mixing or None
        What of Q is off the diagonal, and how it is shared out.
    rotation : ndarray (n, n) or None
        Columns are the grid's axes in space.
    time_varying : bool
        Whether the drift depends on the time.
    time_order : int
        2: fluxes are taken of the state at half a step with ``p div f`` in it; 1: without, as published.
    periods : tuple of int or None
        Cells after which a dimension repeats itself, None where it does not; indices run from ``-(period // 2)`` on.
    memory_limit : float or None
        Bytes that the grid may take, None for what the machine has.
    """

    drift: Drift
    origin: np.ndarray
    widths: np.ndarray
    threshold: float
    limiter: Literal["mc", "superbee", "van_leer", "minmod", "none"] = "mc"
    cfl: float = 1.0
    prune_every: int = 20
    prune: Literal["sequential", "parallel"] = "sequential"
    bounds: Callable[..., Array] | None = None
    bounds_range: tuple[float, float] = (-np.inf, np.inf)
    diffusion: np.ndarray | None = None
    mixing: Mixing | None = None
    rotation: np.ndarray | None = None
    time_varying: bool = False
    time_order: Literal[1, 2] = 1
    periods: tuple[int | None, ...] = ()
    dtype: DType = field(default=np.float64)
    memory_limit: float | None = None

    @property
    def n(self) -> int:
        """Number of dimensions."""
        return len(self.origin)

    @property
    def face_diffusion(self) -> np.ndarray:
        """Diffusion through faces along each axis, shape (n,)."""
        if self.mixing is not None:
            return self.mixing.faces
        return np.zeros(self.n) if self.diffusion is None else np.asarray(self.diffusion, dtype=np.float64)

    def position(self, z: Sequence[Array]) -> tuple[Array, ...]:
        """The point in space, n scalars, of a point `z` of the grid's frame."""
        return frame.position(z, self.origin.tolist(), None if self.rotation is None else self.rotation.tolist())

    def velocity(self, z: Sequence[Array], t: Array, xp: Namespace) -> tuple[Array, ...]:
        """The drift along the grid's axes at a point `z` of its frame."""
        rotation = None if self.rotation is None else self.rotation.tolist()
        return frame.velocity(
            self.drift.function, z, t, with_tables(xp), self.origin.tolist(), rotation, self.drift.parameters
        )
