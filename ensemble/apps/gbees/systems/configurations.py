"""Configurations of the problems of the public GBEES programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._typing import Array
from ensemble.apps.gbees.problem import Drift
from ensemble.apps.gbees.systems.astrodynamics import (
    EARTH_MOON,
    SATURN_ENCELADUS,
    cr3bp,
    jacobi_constant,
    pcr3bp,
    range_angle_rate,
    two_body,
)
from ensemble.apps.gbees.systems.lorenz import lorenz63, lorenz96
from ensemble.apps.gbees.systems.oscillators import aizawa, duffing

__all__ = ["CONFIGURATIONS", "Configuration", "Measurement", "configuration"]


@dataclass(frozen=True)
class Measurement:
    """A measurement at the end of one time span, and the length of the next span.

    Attributes
    ----------
    h : callable
        ``h(x, xp)``, as `Gbees.update` takes it.
    y : tuple of float
        The measured values.
    R : ndarray, shape (m, m)
        Covariance of the measurement's noise.
    span : float
        Time from here to the next measurement, or to the end.
    likelihood : {"auto", "point", "cell"}
        As `Gbees.update` takes it.
    """

    h: Callable[..., Array]
    y: tuple[float, ...]
    R: np.ndarray
    span: float
    likelihood: str = "auto"

    def __post_init__(self) -> None:
        _check.positive(self.span, "Measurement", "span")


@dataclass(frozen=True)
class Configuration:
    """A complete run: initial distribution, drift, measurements with their times, and recording times.

    Attributes
    ----------
    name : str
    drift : Drift or callable
    mean, covariance : ndarray, shapes (n,) and (n, n)
        Mean and covariance of the Gaussian distribution at time 0.
    span : float
        Time to the first measurement, or to the end.
    measurements : tuple of Measurement
    records : int
        Distributions recorded in each span, at least 2: at both ends and at equal intervals between them. Steps
        end exactly at these times.
    options : dict
        Further arguments of `Gbees`: `threshold` at least.
    axes : tuple of str
        Names of the coordinates.
    units : tuple of str
        Units of the coordinates, for pictures.
    time_unit : str

    Raises
    ------
    TypeError, ValueError
        If a span is not finite and above zero, or `records` is below 2.
    """

    name: str
    drift: Drift | Callable[..., Sequence[Array]]
    mean: np.ndarray
    covariance: np.ndarray
    span: float
    measurements: tuple[Measurement, ...] = ()
    records: int = 2
    options: dict[str, Any] = field(default_factory=dict)
    axes: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    time_unit: str = ""

    def __post_init__(self) -> None:
        _check.positive(self.span, "Configuration", "span")
        _check.integer(self.records, "Configuration", "records", minimum=2, advice="Both ends of a span are records.")

    @property
    def spans(self) -> tuple[float, ...]:
        """Times between measurements, the last one to the end."""
        return (self.span, *(measurement.span for measurement in self.measurements))


def _lorenz63() -> Configuration:
    return Configuration(
        "lorenz63",
        lorenz63,
        np.array([-11.5, -10.0, 9.5]),
        np.eye(3),
        1.0,
        (Measurement(lambda x, xp: (x[2],), (-8.0,), np.eye(1), 1.0),),
        records=5,
        options={"threshold": 5e-6},
        axes=("x1", "x2", "x3"),
    )


def _lorenz96() -> Configuration:
    return Configuration(
        "lorenz96",
        lorenz96(4.0),
        np.array([4.5, 4.0, 4.0, 4.0, 4.0, 4.0]),
        0.04 * np.eye(6),
        1.3,
        options={"threshold": 8e-9},
        axes=tuple(f"x{j}" for j in range(1, 7)),
    )


def _duffing() -> Configuration:
    options = {"threshold": 1e-9, "factor": 4.0, "time_varying": True}
    return Configuration(
        "duffing", duffing, np.array([0.0, 1.0]), 0.01 * np.eye(2), 5.0, records=11, options=options, axes=("x", "x'")
    )


def _aizawa() -> Configuration:
    # The example file names the coordinate z, the public program measures the second one, as here.
    seen = Measurement(lambda x, xp: (x[1],), (1.578092537535519,), 0.0025 * np.eye(1), 4.0)
    return Configuration(
        "aizawa",
        aizawa,
        np.array([0.1, 0.0, 0.0]),
        0.0025 * np.eye(3),
        4.0,
        (seen,),
        records=5,
        options={"threshold": 1e-6},
        axes=("x", "y", "z"),
    )


def _pcr3bp() -> Configuration:
    span = 0.931792004789438
    R = np.diag([7.0303608437767e-9, 3.0461733e-4, 2.51477110445507e-8])
    # Near the smaller body the angle's noise is narrower than a cell; the program evaluates the likelihood at centres.
    seen = (
        (0.00480752217018, 1.573600972503426, 0.000011792829939),
        (0.001479571603251, 3.129790477251764, -0.000089444718616),
        (0.004807522305918, -1.573344518331719, 0.000011687166049),
    )
    return Configuration(
        "pcr3bp",
        pcr3bp(),
        np.array([1.001471995170839, -0.000017518099335, 0.000071987832396, 0.013633926328993]),
        np.diag([7.0303608437767e-9] * 2 + [2.51477110445507e-8] * 2),
        span,
        tuple(Measurement(range_angle_rate(SATURN_ENCELADUS, y[1]), y, R, span, "point") for y in seen),
        records=8,
        options={"threshold": 1e-7, "bounds": jacobi_constant(SATURN_ENCELADUS)},
        axes=("x", "y", "x'", "y'"),
        units=("LU", "LU", "LU/TU", "LU/TU"),
        time_unit="TU",
    )


def _cr3bp() -> Configuration:
    return Configuration(
        "cr3bp",
        cr3bp(),
        np.array([1.02134, 0.0, -0.18162, 0.0, -0.10176, 9.76561e-07]),
        np.diag([6.58464706452225e-10] * 3 + [9.65799462671385e-07] * 3),
        0.751047510475105,
        options={"threshold": 1e-7, "bounds": jacobi_constant(EARTH_MOON)},
        axes=("x", "y", "z", "x'", "y'", "z'"),
        units=("LU",) * 3 + ("LU/TU",) * 3,
        time_unit="TU",
    )


def _two_body() -> Configuration:
    return Configuration(
        "two-body",
        two_body(),
        np.array([4.6679, 0.0]),
        np.diag([4.4723e-5, 3.0461e-8]),
        32.242000000000004,
        records=5,
        options={"threshold": 1e-9, "factor": (4.0, 2.5)},
        axes=("L", "l"),
        units=("Earth radii^2/h", "rad"),
        time_unit="h",
    )


CONFIGURATIONS: dict[str, Callable[[], Configuration]] = {
    "lorenz63": _lorenz63,
    "lorenz96": _lorenz96,
    "duffing": _duffing,
    "aizawa": _aizawa,
    "pcr3bp": _pcr3bp,
    "cr3bp": _cr3bp,
    "two-body": _two_body,
}
"""The function for each name of `configuration`."""


def configuration(name: str) -> Configuration:
    """Return one of the published problems.

    Parameters
    ----------
    name : {"lorenz63", "lorenz96", "duffing", "aizawa", "pcr3bp", "cr3bp", "two-body"}
        The first two are those of [1]_: `lorenz63` has a measurement at half time, `lorenz96` needs a GPU. The others
        are the example files of the public programs.

    Returns
    -------
    Configuration

    Raises
    ------
    ValueError
        If `name` is unknown.

    References
    ----------
    .. [1] Hanson, Rubio, Garcia-Gutierrez, Bewley (2026), GBEES-GPU.

    Examples
    --------
    >>> configuration("lorenz63").spans
    (1.0, 1.0)
    """
    return CONFIGURATIONS[_check.one_of(name, CONFIGURATIONS, "configuration", "name")]()
