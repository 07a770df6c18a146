"""The filter one step at a time, as observations arrive."""

from __future__ import annotations

from typing import Any

from ensemble._backend import array_namespace
from ensemble._check import integer, kind_of, message, require
from ensemble._keywords import explains_construction
from ensemble._typing import Array
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.online_counts import counted
from ensemble.apps.kalman.online_states import state_of
from ensemble.apps.kalman.series import Series
from ensemble.scalar import Ensemble

__all__ = ["OnlineFilter"]


@explains_construction("OnlineFilter")
class OnlineFilter:
    """A Kalman filter that takes observations one by one and keeps nothing but its state.

    Steps are those of `kalman_filter`: ``step(y)`` is ``predict()`` and ``update(y)``, where the first prediction of a
    model whose prior is at the first observation changes nothing. A call that raises, also KeyboardInterrupt, changes
    nothing: it may be made again. On NumPy a step of all series and samples is one call of compiled code. ``copy.copy``
    gives another filter in the same state.

    Parameters
    ----------
    model : LinearGaussianModel
        A model of one series or of a batch, with or without Ensembles. Parts that vary in time are taken at the steps'
        own entries.

    Attributes
    ----------
    mean : array or Ensemble, shape (*batch, nx)
        Mean of the state given the observations so far.
    covariance : array or Ensemble, shape (*batch, nx, nx)
        Covariance of the state; for a diffuse prior the finite part.
    diffuse_covariance : array or Ensemble, shape (*batch, nx, nx), or None
        What multiplies kappa in the covariance while the state is diffuse, see `FilterResult`; None from then on.
    log_likelihood : float, array or Ensemble, shape batch
        Log-likelihood of the observations so far.
    k : int
        The step that the state belongs to, from 0; -1 for a prior before the first observation.

    Raises
    ------
    TypeError
        If `model` is no LinearGaussianModel.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> online = OnlineFilter(model)
    >>> for y in ([3.0], [float("nan")], [4.0]):
    ...     online.step(y)
    >>> online.mean.round(4).tolist(), online.covariance.round(4).tolist()
    ([3.4545], [[0.7273]])
    """

    def __init__(self, model: LinearGaussianModel) -> None:
        if not isinstance(model, LinearGaussianModel):
            raise TypeError(message("OnlineFilter", "model", "be a LinearGaussianModel", kind_of(model)))
        self.model = model
        # step and state in one attribute, which a call replaces as its last act: an exception finds it whole
        series = _parts(model)
        self._length = model.n_steps if model.is_time_varying else None
        self._now: tuple[int, Any] = -1, counted(state_of(series), series)

    def __copy__(self) -> OnlineFilter:
        """Another filter in the same state: steps of one do not change the other."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        k, engine = self._now
        made._now = k, engine.copied(2)  # with arrays of its own
        return made

    def __repr__(self) -> str:
        return f"OnlineFilter(k={self.k}, {self.model!r})"

    @property
    def k(self) -> int:
        return self._now[0]

    @property
    def mean(self) -> Array:
        return self._now[1].mean

    @property
    def covariance(self) -> Array:
        return self._now[1].covariance

    @property
    def diffuse_covariance(self) -> Array | None:
        return self._now[1].diffuse_covariance

    @property
    def log_likelihood(self) -> Any:
        return self._now[1].log_likelihood

    def predict(self, n_steps: int = 1) -> None:
        """Advance by `n_steps` transitions without an observation.

        Parameters
        ----------
        n_steps : int

        Raises
        ------
        ValueError
            If the model varies in time and has no entry for a step.
        """
        n_steps = integer(n_steps, "OnlineFilter.predict", "n_steps", minimum=1)
        k, engine = self.k, self._now[1].copied(n_steps)
        for _ in range(n_steps):
            k = self._after(k, "predict")
            engine.predict(k)
        self._now = k, engine

    def update(self, y: Any) -> None:
        """Condition the state on an observation of the present step.

        Parameters
        ----------
        y : array or Ensemble, shape (*batch, ny)
            NaN where missing.

        Raises
        ------
        TypeError, ValueError
            If `y` is no array of that shape, or infinite; if there was no prediction to the first observation.
        """
        k = self.k
        if k < 0 and self.model.prior_at == "first_observation":
            k = self._after(k, "update")
        if k < 0:
            require(False, "OnlineFilter", "update", "follow a prediction", "the prior", "Call predict or step first.")
        engine = self._now[1].copied()
        engine.update(k, y)
        self._now = k, engine.continued()

    def step(self, y: Any) -> None:
        """Predict, then condition on the observation `y` of shape (*batch, ny)."""
        k, engine = self._after(self.k, "step"), self._now[1].copied()
        engine.step(k, y)
        self._now = k, engine.continued()

    def _after(self, k: int, name: str) -> int:
        """The step after step `k`."""
        k += 1
        if self._length is not None and k >= self._length:
            advice = "Make a model of the steps to come whose prior is this state."
            require(False, "OnlineFilter", name, f"be called for the model's {self._length} steps", f"step {k}", advice)
        return k


def _parts(model: LinearGaussianModel) -> Series:
    """The model's parts in one form; noises stay correlated."""
    xp = array_namespace(next((a for a in vars(model).values() if isinstance(a, Ensemble)), model.F))
    n = model.n_steps if model.is_time_varying else 1
    y = xp.full((n, model.ny), float("nan"), dtype=model.F.dtype)
    return aligned(model, y, None, "OnlineFilter", correlated=True, diffuse=True)
