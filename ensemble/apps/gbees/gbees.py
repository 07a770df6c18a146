"""`Gbees`: a probability distribution advected by a drift and updated by measurements.

Longer than 400 lines: one public class, most of it the reference of its options and results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._backend import asarray_like
from ensemble._check import finite, one_of, require, warn_caller
from ensemble._interrupts import checked, held
from ensemble._typing import Array, DType
from ensemble.apps.gbees.analysis import distribution, marginals
from ensemble.apps.gbees.cells import Cells
from ensemble.apps.gbees.engines.backends import backend_named
from ensemble.apps.gbees.engines.engine import Steps
from ensemble.apps.gbees.errors import GridError, GridWarning
from ensemble.apps.gbees.problem import Drift, Problem
from ensemble.apps.gbees.run.arguments import SampleValues, common_samples
from ensemble.apps.gbees.run.initial import EXTENT
from ensemble.apps.gbees.run.many_runs import GridRuns
from ensemble.apps.gbees.run.measurement import noise_of
from ensemble.apps.gbees.run.setup import Rules, Setup
from ensemble.apps.gbees.run.single_run import GridRun, Weights

__all__ = ["Gbees"]

Callback = Callable[[float, int, int], None]


class Gbees:
    """Grid-based Bayesian estimation exploiting sparsity: a density on a sparse grid that moves with it.

    Solves ``dp/dt = -sum_i d(f_i p)/dx_i + 1/2 sum_ij Q_ij d2p/dx_i dx_j`` between measurements, by corner transport
    upwind with limited slopes on the cells of non-negligible probability [1]_, [2]_, and Bayes' rule at measurements.
    Starts from a Gaussian, cut off at `extent` standard deviations, or from any density or samples.

    Parameters
    ----------
    drift : callable or Drift
        ``drift(x, t, xp)`` takes n scalars `x`, time `t` and a namespace of functions; returns n scalars, in units of x
        per time. It must be plain arithmetic over `xp`, as compiled backends trace it. A `Drift` also has parameters,
        each of which may be an Ensemble.
    mean : array or Ensemble, shape (n,)
        Mean of the initial Gaussian, and the grid's origin. None: the mean of the points of `start`.
    covariance : array or Ensemble, shape (n, n) or (n,)
        Covariance of the initial Gaussian, positive definite; n numbers are a diagonal. None: that of the points of
        `start`.
    threshold : float in (0, 1)
        Cells with at least this probability are active: the grid contains their downwind neighbours. Far below one
        over the number of active cells.
    factor : float or array, shape (n,)
        Cells are ``1 / (2 factor)`` standard deviations of `covariance` wide.
    extent : float or array, shape (n,)
        Half the edge of the first grid, in standard deviations of `covariance`. 3, as published, leaves variances at
        0.973 of the Gaussian's, however small the cells are; 5 at 0.99998.
    start : callable, array of shape (n, n_points) or Ensemble of shape (n,), optional
        Instead of the Gaussian: a density ``start(x, xp)`` of n scalars, up to a factor, taken at the centres of the
        first grid; or points drawn from the distribution, which are counted per cell.
    limiter : {"mc", "superbee", "van_leer", "minmod", "none"}
        Slope limiter; "none" is the first-order scheme.
    cfl : float in (0, 1]
        Time steps are this times the largest stable one.
    prune_every : int
        Steps between prunings of the grid.
    prune : {"sequential", "parallel"}
        Which cells below `threshold` without active upwind neighbours are deleted: in ascending order as long as the
        next one's share of the remaining mass is below `threshold`, or all of them.
    bounds : callable, optional
        ``bounds(x, xp)`` returns one scalar; cells are inserted only where it is in its range over the first grid.
    diffusion : float, array of shape (n,) or (n, n), or Ensemble, optional
        Spectral density Q of white noise in ``dx/dt``, in x squared per time, positive semidefinite; n numbers, or one,
        are its diagonal. Steps keep probabilities positive where ``Q_ii / dx_i^2``, dx the widths of cells, is at least
        the sum over the other j of ``|Q_ij| / (dx_i dx_j)``; otherwise negative values are clipped, see `mass_gain`.
    rotate : bool
        Align the grid with the eigenvectors of `covariance`, with the signs that LAPACK returns.
    time_varying : bool
        Whether `drift` depends on `t`; velocities are then computed in every step.
    time_order : {1, 2}
        Order of the advection in time. 1, the published scheme, omits the divergence of the drift in the state at half
        a step, and takes time-varying velocities at its start; 2 does neither. Both are of order 2 for drifts
        without divergence that do not vary in time. Diffusion is of order 1 in time.
    periods : sequence of (float or None), optional
        Period of each coordinate that is periodic, None for the others. Cell widths are adjusted to divide it.
    time : float
        Time of the initial distribution.
    memory_limit : float, optional
        Bytes of a grid; by default the free memory.
    dtype : dtype, optional
        float64 (default) or float32, of probabilities and velocities; sums are always taken in float64.
    backend : {"numpy", "array", "cupy"} or Array API namespace
        "array" is the Array API engine on NumPy; a namespace is the Array API engine on its arrays.

    Attributes
    ----------
    time : float
    backend : str
        The name that was given, or the namespace's.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit; `GridError`, a ValueError, if the drift is not finite on the first
        grid.
    MemoryError
        If the first grid does not fit.

    Notes
    -----
    Where a drift parameter, `mean`, `covariance`, `diffusion` or a measurement is an Ensemble, every sample has its own
    grid and time steps, and results are Ensembles: sample i is the run of sample i alone, to the bit. A sample that
    fails is flagged in `failed`, with the reason in `messages` and NaN as results; the others continue. A run that is
    no Ensemble raises instead.

    References
    ----------
    .. [1] T. R. Bewley, A. S. Sharma, Efficient grid-based Bayesian estimation of nonlinear low-dimensional systems
       with sparse non-Gaussian PDFs, Automatica 48 (2012), 1286-1290.
    .. [2] B. L. Hanson, C. Rubio, A. García-Gutiérrez, T. Bewley, GBEES-GPU: An efficient parallel GPU algorithm for
       high-dimensional nonlinear uncertainty propagation, Comput. Phys. Commun. (2025) 109819.

    Examples
    --------
    >>> run = Gbees(lambda x, t, xp: (x[1], -x[0]), [1.0, 0.0], [0.04, 0.04], threshold=1e-6)
    >>> _ = run.advance(0.5)
    >>> run.mean().round(2)
    array([ 0.88, -0.48])
    >>> run.update(lambda x, xp: x[0], y=0.9, R=0.01) > -1.0
    True
    """

    def __init__(
        self,
        drift: Callable[..., Sequence[Array]] | Drift,
        mean: Array,
        covariance: Array,
        *,
        threshold: float,
        factor: Array = 1.0,
        extent: Array = EXTENT,
        start: Array = None,
        limiter: str = "mc",
        cfl: float = 1.0,
        prune_every: int = 20,
        prune: str = "sequential",
        bounds: Callable[..., Array] | None = None,
        diffusion: Array = None,
        rotate: bool = False,
        time_varying: bool = False,
        time_order: int = 1,
        periods: Sequence[float | None] | None = None,
        time: float = 0.0,
        memory_limit: float | None = None,
        dtype: DType | None = None,
        backend: Any = "numpy",
    ) -> None:
        engine, self._like = backend_named(backend)
        self.backend = backend if isinstance(backend, str) else str(backend.__name__)
        rules = Rules(
            threshold=threshold, limiter=limiter, cfl=cfl, prune_every=prune_every, prune=prune, bounds=bounds,
            time_varying=time_varying, time_order=time_order, memory_limit=memory_limit, dtype=dtype,
        )  # fmt: skip
        setup = Setup(drift, mean, covariance, rules, factor, extent, start, diffusion, rotate, periods)

        time = finite(time, "Gbees", "time")

        def begin(i: int) -> GridRun:
            problem, indices, p = setup.sample(i, time)
            return GridRun(problem, engine, asarray_like(indices, self._like), asarray_like(p, self._like), time)

        self._runs = GridRuns.start(begin, setup.n_samples)

    # -- time and measurements -----------------------------------------------------------------------------------------

    def advance(self, until: float, callback: Callback | None = None) -> Steps | tuple[Steps | None, ...]:
        """Steps to the time `until`, the last one cut to end exactly there.

        Parameters
        ----------
        until : float
        callback : callable, optional
            Called at intervals with (time, cells stored, cell-steps so far), sums over samples where there are many;
            may raise to interrupt: grid and `time` are then those of a complete step. Ctrl-C is taken at the same
            places, with or without a callback; another call goes on with the bits of an undisturbed run.

        Returns
        -------
        Steps, or a tuple with one per sample (None for a failed one)
            Their lengths, the cells in them, and the probability before it was normalised.

        Raises
        ------
        ValueError
            If `until` is not finite or lies before `time`; `GridError` if a run that is no Ensemble cannot continue.
        MemoryError
            If the grid of a run that is no Ensemble exceeds the memory; it is then that of the last complete step.

        Warns
        -----
        GridWarning
            If `mass_loss` or `mass_gain` exceeds 0.01, and again whenever it has doubled.
        """
        until = float(until)
        seen = f"{until} at time {self.time}"
        require(bool(np.isfinite(until)) and until >= self.time, "Gbees.advance", "until", "not lie in the past", seen)
        with held():  # Ctrl-C is taken between steps
            steps = self._runs.advance(until, checked(callback))
        for text in self._runs.mass_warnings():
            warn_caller(text, GridWarning)
        return steps

    def report_each_step(self, wanted: bool = True) -> None:
        """Call `callback` of `advance` after every step, which costs time, or at intervals."""
        for run in self._runs.running:
            run.engine.report_each_step = wanted

    def update(self, h: Callable[..., Array], y: Array, R: Array, *, likelihood: str = "auto") -> Array:
        """Bayes' rule for the measurement ``y = h(x) + noise``, ``noise ~ N(0, R)``.

        Where the measurement changes across a cell by more than a deviation of its noise, the likelihood at the
        centres of cells represents them poorly. It is then integrated over the cells, with the density in each from a
        log-quadratic function through it and its neighbours: to rounding for linear `h`, by adaptive quadrature else.

        Parameters
        ----------
        h : callable
            ``h(x, xp)`` takes n scalars and gives m, or one.
        y : float, array or Ensemble, shape (m,) or ()
            The measured values. An Ensemble splits a run without samples into one run per sample.
        R : float, array or Ensemble, shape (), (m,) or (m, m)
            Covariance of the noise; m numbers, or one, are its diagonal.
        likelihood : {"auto", "point", "cell"}
            Taken at the cells' centres, as the public programs do ("point"), or integrated over the cells ("cell"):
            `mean` and `covariance` then have what is inside the cells, until the next step. "auto" integrates where
            the noise is sharper than a cell.

        Returns
        -------
        float or Ensemble, shape ()
            Logarithm of the evidence ``p(y | measurements so far)``.

        Warns
        -----
        GridWarning
            If centres are used although the noise is sharper than a cell, or the posterior is narrower than half a
            cell: the next step advects whole cells.

        Raises
        ------
        ValueError
            If shapes do not fit or `R` is not positive definite; `GridError` if the likelihood is zero on the whole
            grid, which is then unchanged.

        Notes
        -----
        A call that raises, also KeyboardInterrupt, changes no sample: it may be made again.
        """
        y, R = SampleValues(y, "Gbees.update", "y"), SampleValues(R, "Gbees.update", "R")
        require(len(y.shape) < 2, "Gbees.update", "y", "be a number or have shape (m,)", f"shape {y.shape}")
        m = y.shape[0] if y.shape else 1
        noises = [noise_of(R.sample(i), m, "Gbees.update") for i in range(R.n_samples)]
        one_of(likelihood, ("auto", "point", "cell"), "Gbees.update", "likelihood")

        def weigh(run: GridRun, i: int) -> Weights:
            return run.weighed(h, np.atleast_1d(y.sample(i)), noises[i if R.n_samples > 1 else 0], likelihood)

        return self._runs.reweight(weigh, self._samples_with(common_samples("Gbees.update", y=y, R=R)))

    def update_likelihood(self, log_likelihood: Callable[..., Array]) -> Array:
        """Bayes' rule for any measurement.

        Parameters
        ----------
        log_likelihood : callable
            ``log_likelihood(x, xp)`` takes n scalars, returns ``log p(y | x)``; minus infinity for zero.

        Returns
        -------
        float or Ensemble, shape ()
            Logarithm of the evidence.

        Raises
        ------
        ValueError
            `GridError` if the likelihood is zero on the whole grid, or NaN; the grid is then unchanged.
        """
        return self._runs.reweight(lambda run, i: run.weighed_by(log_likelihood))

    def _samples_with(self, n_samples: int | None) -> int | None:
        """The samples of the run once it has taken a measurement of `n_samples`."""
        if n_samples is None:
            return None
        have = self._runs.n_samples
        seen = f"{n_samples} samples for {have}"
        require(
            have in (None, 1, n_samples) or n_samples == 1,
            "Gbees.update",
            "y and R",
            "fit the samples of the run",
            seen,
        )
        return max(n_samples, have or 1)

    # -- the distribution ----------------------------------------------------------------------------------------------

    def cells(self) -> Cells | tuple[Cells | None, ...]:
        """Every stored cell and its probability: ``indices, probabilities = run.cells()``.

        Returns
        -------
        Cells, or a tuple with one per sample (None for a failed one)
        """
        return self._runs.parts(GridRun.cells)

    def mean(self) -> Array:
        """Mean of the distribution, array or Ensemble of shape (n,); circular where a coordinate is periodic.

        Of a periodic coordinate it is ``L arg(E exp(2 pi i x / L)) / (2 pi)`` for the period L, in the range of the
        grid, and NaN where the distribution has no direction, as where it is uniform.
        """
        return self._runs.arrays(GridRun.mean)

    def covariance(self) -> Array:
        """Covariance of the distribution, array or Ensemble of shape (n, n).

        Deviations of a periodic coordinate are those from its circular mean, to the nearest image.
        """
        return self._runs.arrays(GridRun.covariance)

    def marginal(self, axes: int | Sequence[int]) -> Any:
        """Distribution of the coordinates `axes` on a dense grid.

        Returns
        -------
        Marginal, or a tuple with one per sample (None for a failed one)
        """
        return self._runs.parts(lambda run: marginals.marginal(run.cells(), axes))

    def sample(self, n: int, *, seed: int = 0) -> Any:
        """`n` independent random points of the distribution.

        Returns
        -------
        Ensemble, shape (dimensions,), `n` samples; or a tuple with one per sample of the run (None for a failed one)
        """
        return self._runs.parts(lambda run: distribution.sample(run.cells(), n, seed=seed))

    # -- the run -------------------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """Time of the distribution; after an interruption the earliest of all samples."""
        return min(run.time for run in self._runs.running) if self._runs.running else float("nan")

    @property
    def n_samples(self) -> int | None:
        """Samples of the run, None where it is no Ensemble."""
        return self._runs.n_samples

    @property
    def problems(self) -> tuple[Problem | None, ...]:
        """The problem of each sample; None where the first grid failed."""
        return tuple(None if run is None else run.problem for run in self._runs.runs)

    @property
    def steps(self) -> Steps | tuple[Steps | None, ...]:
        """All steps since the start."""
        return self._runs.parts(lambda run: run.steps)

    @property
    def n_steps(self) -> Array:
        """Steps since the start: an int, or an array of shape (n_samples,)."""
        return self._runs.counts(lambda run: len(run.steps))

    @property
    def cell_steps(self) -> Array:
        """Sum over steps of the cells stored: an int, or an array of shape (n_samples,)."""
        return self._runs.counts(lambda run: int(np.sum(run.steps.cells)))

    @property
    def n_cells(self) -> Array:
        """Cells stored now: an int, or an array of shape (n_samples,)."""
        return self._runs.counts(lambda run: run.engine.n_cells)

    @property
    def log_evidence(self) -> Array:
        """Logarithm of the evidence of all measurements: a float or Ensemble of shape ()."""
        return self._runs.scalars(lambda run: run.log_evidence)

    @property
    def mass_loss(self) -> Array:
        """Probability that left the grid since the start: a float or Ensemble of shape ().

        The sum over steps of the loss of each, of a total of 1: an estimate of the error by a `threshold` that is too
        high, or `bounds` that are too narrow.
        """
        return self._runs.scalars(lambda run: run.mass_loss)

    @property
    def mass_gain(self) -> Array:
        """Probability that setting negative values to zero added since the start: a float or Ensemble of shape ().

        The sum over steps of the gain of each, of a total of 1: an estimate of the error by cells that do not resolve
        the distribution.
        """
        return self._runs.scalars(lambda run: run.mass_gain)

    @property
    def failed(self) -> np.ndarray:
        """Which samples failed, shape (n_samples,); of a run that is no Ensemble, shape (1,)."""
        return np.array([text is not None for text in self._runs.messages])

    @property
    def messages(self) -> tuple[str | None, ...]:
        """The error of each sample that failed, None for the others."""
        return tuple(self._runs.messages)

    def raise_if_failed(self) -> Gbees:
        """This run, or `GridError` naming the samples that failed."""
        failed = np.flatnonzero(self.failed)
        if failed.size:
            first = int(failed[0])
            raise GridError(
                f"Gbees: {failed.size} of {len(self.failed)} samples could not go on. Sample {first}: "
                f"{self._runs.messages[first]}"
            )
        return self

    def state(self) -> dict[str, np.ndarray]:
        """The state of the run for `restore`, arrays by name."""
        return self._runs.state()

    def restore(self, state: dict[str, np.ndarray]) -> Gbees:
        """Continue, to the bit, from the `state` of a run with the same arguments.

        Raises
        ------
        ValueError
            If `state` is incomplete, or of another number of samples or dimensions.
        """
        self._runs.restore(state, self._like)
        return self

    def __repr__(self) -> str:
        first = next((run for run in self._runs.runs if run is not None), None)
        n = "?" if first is None else first.problem.n
        samples = "" if self.n_samples is None else f", n_samples={self.n_samples}"
        cells = int(np.sum(self.n_cells))
        return f"Gbees(n={n}{samples}, time={self.time:.6g}, {cells:,} cells, {int(np.max(self.n_steps)):,} steps)"
