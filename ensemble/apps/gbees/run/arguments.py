"""Arguments that are plain, or Ensembles with one value per sample: checked once, then indexed by sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ensemble._backend import to_numpy
from ensemble._check import bad_samples, kind_of, message, require
from ensemble.apps.gbees.problem import Drift
from ensemble.scalar import DivergenceError, Ensemble

__all__ = [
    "SampleValues",
    "checked_call",
    "common_samples",
    "components",
    "drift_of",
    "drift_parameters",
    "matrix",
    "periods_of",
]


T = TypeVar("T")


class SampleValues:
    """Floats of one shape, the same for all samples or one array per sample.

    Parameters
    ----------
    value : number, array or Ensemble
    function, name : str
        For messages.
    """

    def __init__(self, value: Any, function: str, name: str) -> None:
        self.is_ensemble = isinstance(value, Ensemble)
        try:
            array = np.asarray(to_numpy(value.samples if self.is_ensemble else value))
        except (TypeError, ValueError):
            array = np.empty((), object)
        if array.dtype.kind not in "biuf":
            advice = "Use plain numbers, an array, or an Ensemble with one value per sample."
            raise TypeError(message(function, name, "hold real numbers", kind_of(value), advice))
        array = array.astype(np.float64)
        self.samples = array if self.is_ensemble else array[..., None]
        finite = np.isfinite(self.samples)
        if not finite.all():
            require(False, function, name, "be finite", f"NaN or infinity in {bad_samples(finite)}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.samples.shape[:-1]

    @property
    def n_samples(self) -> int:
        """Number of samples; 1 for values that are the same for all."""
        return int(self.samples.shape[-1])

    def sample(self, i: int) -> np.ndarray:
        """The value of sample `i`."""
        return np.array(self.samples[..., i if self.n_samples > 1 else 0])


def common_samples(function: str, **values: SampleValues) -> int | None:
    """The number of samples, None where nothing is an Ensemble.

    Raises
    ------
    ValueError
        If Ensembles have different numbers of samples.
    """
    counts = {name: value.n_samples for name, value in values.items() if value.n_samples > 1}
    if len(set(counts.values())) > 1:
        seen = ", ".join(f"{name}: {n}" for name, n in counts.items())
        raise ValueError(message(function, "Ensembles", "have as many samples as each other, or one", seen))
    if counts:
        return next(iter(counts.values()))
    return 1 if any(value.is_ensemble for value in values.values()) else None


def drift_of(drift: Any) -> Drift:
    """`drift` as a `Drift`; a plain function has no parameters."""
    if isinstance(drift, Drift):
        return drift
    if callable(drift):
        return Drift(drift)
    requirement = "be a function (x, t, xp) of n scalars, or a Drift"
    raise TypeError(message("Gbees", "drift", requirement, kind_of(drift)))


def drift_parameters(drift: Drift) -> dict[str, SampleValues]:
    """The parameters of `drift` by name, each one number per sample."""
    names = drift.names or tuple(f"parameter {i}" for i in range(len(drift.parameters)))
    values = {}
    for name, parameter in zip(names, drift.parameters, strict=True):
        values[name] = SampleValues(parameter, "Gbees", name)
        seen = f"shape {values[name].shape}"
        require(values[name].shape == (), "Gbees", f"drift parameter {name}", "be one number per sample", seen)
    return values


def components(value: Any, n: int, name: str) -> SampleValues:
    """`value` as n numbers; one number is used for all of them."""
    values = SampleValues(value, "Gbees", name)
    require(values.shape in ((), (n,)), "Gbees", name, f"be a number or have shape ({n},)", f"shape {values.shape}")
    if values.shape == ():
        values.samples = np.broadcast_to(values.samples, (n, values.n_samples)).copy()
    return values


def matrix(value: Any, n: int, name: str) -> SampleValues:
    """`value` as a symmetric (n, n) matrix; n numbers, or one, are its diagonal."""
    values = SampleValues(value, "Gbees", name)
    fits = values.shape in ((), (n,), (n, n))
    require(fits, "Gbees", name, f"be a number or have shape ({n},) or ({n}, {n})", f"shape {values.shape}")
    if len(values.shape) < 2:
        diagonal = np.broadcast_to(values.samples, (n, values.n_samples))
        values.samples = np.eye(n)[:, :, None] * diagonal[:, None, :]
    gap = float(np.max(np.abs(values.samples - np.swapaxes(values.samples, 0, 1)), initial=0.0))
    valid = gap <= 1e-12 * float(np.max(np.abs(values.samples), initial=0.0))
    require(valid, "Gbees", name, "be symmetric", f"entries that differ by {gap:.3g} from their transpose")
    return values


def periods_of(periods: Sequence[float | None] | None, n: int, rotate: bool) -> tuple[float | None, ...]:
    """One period, or None, for each dimension."""
    if periods is None:
        return (None,) * n
    given = tuple(None if period is None else float(period) for period in periods)
    require(len(given) == n, "Gbees", "periods", f"have {n} entries, None where there is no period", f"{len(given)}")
    good = all(period is None or 0.0 < period < np.inf for period in given)
    require(good, "Gbees", "periods", "be finite numbers above zero, or None", repr(given))
    rotated = rotate and any(period is not None for period in given)
    require(not rotated, "Gbees", "periods", "be None in a rotated grid", repr(given), "Use rotate=False.")
    return given


def checked_call(call: Callable[[], T], function: str, argument: str, requirement: str) -> T:
    """The result of `call`, which calls a user's function; a ValueError names it if its arguments do not fit."""
    try:
        return call()
    except (IndexError, ValueError, TypeError, DivergenceError) as error:
        raise ValueError(message(function, argument, requirement, f"{type(error).__name__}: {error}")) from error
