"""What `solve` returns."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._backend import array_namespace, to_numpy
from ensemble._check import integer, message, require, samples_text
from ensemble._optional import optional
from ensemble._typing import Array
from ensemble.scalar import Ensemble, plot_ribbon
from ensemble.scalar.ensemble import wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from xarray import Dataset

__all__ = ["OdeError", "OdeResult", "OdeStatus", "OdeWarning"]


class OdeError(RuntimeError):
    """Samples did not reach the end of the interval; raised by `OdeResult.raise_if_failed` alone."""


class OdeWarning(RuntimeWarning):
    """Samples did not reach the end of the interval."""


class OdeStatus(enum.IntEnum):
    """How the run of a sample ended."""

    finished = 1
    """At the end of the interval."""
    step_too_small = 2
    """The step that the tolerances ask for fell below the spacing of floating-point numbers around t."""
    too_many_steps = 3
    """`max_steps` steps did not suffice."""
    event = 4
    """At a root of a terminal event."""
    non_finite = 5
    """The state, or the derivative at the start, is not finite."""


MOST_COPIED = 1 << 18
"""Bytes of states that are looked at on the host."""

REACHED = (OdeStatus.finished, OdeStatus.event)


@dataclass(frozen=True)
class OdeResult:
    """The outcome of `solve`, sample by sample.

    Attributes
    ----------
    y : Ensemble, shape (n,) or (n_times, n)
        The state at the end of each sample's run; with `t_eval` the states at these times. NaN for samples that failed,
        at the times they did not reach, and at times after a terminal event.
    t : array, shape (n_times,) or (n_times, n_samples), or Ensemble, shape ()
        The times of `y`.
    status : array of int8, shape (n_samples,)
        An `OdeStatus` per sample.
    n_steps, n_rejected : array of int, shape (n_samples,)
        Steps, those counted that were rejected, and rejected steps alone.
    t_events : tuple of Ensemble, shape (max_roots,)
        Of each event, the times of its roots; NaN beyond the last.
    n_events : array of int, shape (n_events, n_samples)
        Roots found, those counted that `t_events` has no room for.
    t_reached, y_reached : Ensemble, shapes () and (n,)
        Time and state at the end of each sample's run, failed ones included.
    method : str
        The method's name.
    """

    y: Ensemble
    t: Any
    status: Array
    n_steps: Array
    n_rejected: Array
    t_events: tuple[Ensemble, ...]
    n_events: Array
    t_reached: Ensemble
    y_reached: Ensemble
    method: str

    @property
    def succeeded(self) -> np.ndarray:
        """True for each sample that reached the end or a terminal event, shape (n_samples,)."""
        return to_numpy(_reached(self.status))

    @property
    def all_succeeded(self) -> bool:
        """Whether all samples reached the end or a terminal event."""
        return all_reached(self.status)

    @property
    def summary(self) -> str:
        """How many samples finished, in how many steps, and how others ended."""
        status, steps = to_numpy(self.status), to_numpy(self.n_steps)
        n = status.size
        text = f"{self.method}: {int(self.succeeded.sum())} of {n} samples finished"
        if steps.size:
            text += f", {int(steps.min())} to {int(steps.max())} steps"
        for outcome in OdeStatus:
            samples = np.flatnonzero(status == outcome)
            if outcome not in REACHED and samples.size:
                reached = float(to_numpy(self.t_reached.samples).reshape(-1)[samples[0]])
                text += f"; {outcome.name.replace('_', ' ')}: {samples_text(samples, of=n)}"
                text += f" ({samples_text(samples[:1], of=n)} at t = {reached:.6g})"
        return text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary})"

    def raise_if_failed(self) -> OdeResult:
        """This result, or `OdeError` naming the samples that did not reach the end."""
        if not self.all_succeeded:
            raise OdeError(f"ode.solve: {self.summary}.")
        return self

    @classmethod
    def joined(cls, results: Sequence[OdeResult], counts: Sequence[int] = (), sample_set: Any = None) -> OdeResult:
        """Return the result of all samples from those of parts of them, in their order.

        Parameters
        ----------
        results : sequence of OdeResult
            Of one system, with the same `t_eval` and events.
        counts : sequence of int, optional
            The samples of each; by default those of their `status`.
        sample_set : SampleSet, optional
            That of the joined Ensembles.

        Raises
        ------
        ValueError
            If the results have other shapes.
        """
        counts = list(counts) or [int(result.status.shape[-1]) for result in results]
        shapes = {(tuple(r.y.shape), np.ndim(r.t), len(r.t_events), r.method) for r in results}
        advice = "They must come from one call of solve but for their samples."
        require(len(shapes) == 1, "OdeResult.joined", "results", "have the same shapes", f"{sorted(shapes)}", advice)
        first = results[0]

        def ensembles(parts: list[Ensemble]) -> Ensemble:
            return wrap(arrays([part.samples for part in parts]), sample_set)

        def arrays(parts: list[Array]) -> Array:
            xp = array_namespace(*parts)
            wide = [xp.broadcast_to(a, (*a.shape[:-1], n)) for a, n in zip(parts, counts, strict=True)]
            return xp.concat(wide, axis=-1)

        t = first.t
        if isinstance(t, Ensemble):
            t = ensembles([result.t for result in results])
        elif np.ndim(t) == 2:
            t = arrays([result.t for result in results])
        names = ("status", "n_steps", "n_rejected", "n_events")
        given = {name: arrays([getattr(result, name) for result in results]) for name in names}
        events = zip(*(result.t_events for result in results), strict=True)
        return cls(
            y=ensembles([result.y for result in results]), t=t, t_events=tuple(ensembles(list(e)) for e in events),
            t_reached=ensembles([result.t_reached for result in results]),
            y_reached=ensembles([result.y_reached for result in results]), method=first.method, **given,
        )  # fmt: skip

    def to_xarray(self) -> Dataset:
        """A Dataset of y, status and steps, with dimensions time (with `t_eval`), component and sample.

        Output times are the coordinate "time"; where the samples have their own, "t", with dimensions time and sample.

        Raises
        ------
        ImportError
            If xarray is not installed.
        """
        xarray = optional("xarray", "OdeResult.to_xarray")

        dims = ("time", "component", "sample")[3 - self.y.samples.ndim :]
        data: dict[str, Any] = {"y": (dims, to_numpy(self.y.samples))}
        data |= {name: ("sample", to_numpy(getattr(self, name))) for name in ("status", "n_steps", "n_rejected")}
        coordinates = {}
        if "time" in dims:
            shared = np.ndim(self.t) == 1
            coordinates["time" if shared else "t"] = ("time" if shared else ("time", "sample"), to_numpy(self.t))
        made: Dataset = xarray.Dataset(data, coordinates, {"method": self.method})
        return made

    def _history(self, function: str) -> Ensemble:
        if self.y.ndim != 2:
            advice = "Pass t_eval to solve."
            raise ValueError(message(function, "y", "have a time axis", f"shape {self.y.shape}", advice))
        return self.y

    def plot(self, component: int = 0, *, ax: Axes | None = None, **style: Any) -> Axes:
        """A fan chart of one component over time: median and quantiles over samples.

        Parameters
        ----------
        component : int
        ax : matplotlib Axes, optional
        **style
            Arguments of `ensemble.plot_ribbon`.

        Returns
        -------
        matplotlib Axes
        """
        y = self._history("OdeResult.plot")
        if np.ndim(self.t) != 1:
            raise ValueError(message("OdeResult.plot", "t", "be shared by the samples", f"shape {np.shape(self.t)}"))
        samples = to_numpy(y.samples)[:, _component(component, y, "component", "OdeResult.plot")]
        axes: Axes = plot_ribbon(wrap(samples, y.sample_set), to_numpy(self.t), ax=ax, **style)
        axes.set(xlabel="t", ylabel=f"y[{component}]")
        return axes

    def plot_phase(
        self, first: int = 0, second: int = 1, *, n_samples: int = 32, ax: Axes | None = None, **style: Any
    ) -> Axes:
        """The trajectories of some samples in the plane of two components.

        Parameters
        ----------
        first, second : int
            Components on the axes.
        n_samples : int
            Samples that are drawn, evenly spread.
        ax : matplotlib Axes, optional
        **style
            Of the lines.

        Returns
        -------
        matplotlib Axes
        """
        function = "OdeResult.plot_phase"
        plt = optional("matplotlib.pyplot", function)
        history = self._history(function)
        first, second = (
            _component(value, history, name, function) for name, value in (("first", first), ("second", second))
        )
        y = to_numpy(history.samples)
        axes = plt.subplots()[1] if ax is None else ax
        for s in np.unique(np.linspace(0, y.shape[-1] - 1, min(n_samples, y.shape[-1])).astype(int)):
            axes.plot(y[:, first, s], y[:, second, s], **{"linewidth": 0.8, **style})
        axes.set(xlabel=f"y[{first}]", ylabel=f"y[{second}]")
        return axes


def _component(value: Any, y: Ensemble, argument: str, function: str) -> int:
    """The number of an unknown."""
    number = integer(value, function, argument, minimum=0)
    require(number < y.shape[-1], function, argument, f"be below {y.shape[-1]}", number)
    return number


def all_reached(status: Array) -> bool:
    """Whether all samples reached the end or a terminal event."""
    if status.size <= MOST_COPIED:
        status = to_numpy(status)  # one copy from a device takes less time than four operations there
    return bool(_reached(status).all())


def without_failed(y: Array, status: Array) -> Array:
    """The states, NaN for samples that failed."""
    xp = array_namespace(y)
    return xp.where(_reached(status), y, xp.asarray(xp.nan, dtype=y.dtype))


def _reached(status: Array) -> Array:
    return (status == int(OdeStatus.finished)) | (status == int(OdeStatus.event))
