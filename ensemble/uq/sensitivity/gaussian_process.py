"""`gaussian_process`: surrogates of a study's outputs by Gaussian-process regression."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ensemble._blas import one_blas_thread
from ensemble._check import check_level, integer, kind_of, message, one_of, require, warn_caller
from ensemble._keywords import explains_calls
from ensemble._optional import optional
from ensemble.scalar import Ensemble
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.inputs.samples import InputSamples, differing
from ensemble.uq.sensitivity.observations import components_of, observations

__all__ = ["GaussianProcess", "gaussian_process"]

LARGE_ERROR = 0.05
"""Leave-one-out error above which there is a note: the surrogate misses that part of the variance."""

MOST = 4000
"""Samples above which the factorisations take minutes and gigabytes."""

FOLDS = 5
"""Parts of the samples that intervals leave out in turn; lengths are fitted again each time."""

CHUNK = 2**22
"""Correlations between new and given samples that are made at a time."""


class GaussianProcess:
    """Outputs as Gaussian processes of the inputs, made by `gaussian_process`.

    Called with `InputSamples` it gives a dict of Ensembles, as a model does: it may stand for the model anywhere.

    Attributes
    ----------
    inputs : tuple of str
        Names of the inputs that are not constant; components of a vector apart, ``v[0]``.
    outputs : tuple of str
    length_scales : dict of str to ndarray, shape (n_inputs,)
        By output name: distances, in standard deviations of the input, over which the output varies.
    loo_error : dict of str to ndarray, shape `shape`, dimensionless
        Mean square of the errors of predictions without the sample, over the variance of the samples; NaN for outputs
        that are constant.
    n_samples : int
    notes : tuple of str
    """

    def __init__(self, inputs: Inputs, columns: _Columns, n_samples: int, notes: tuple[str, ...]) -> None:
        self.inputs = tuple(columns.names)
        self.n_samples = n_samples
        self.notes = notes
        self.length_scales: dict[str, np.ndarray] = {}
        self.loo_error: dict[str, np.ndarray] = {}
        self._inputs, self._columns = inputs, columns
        self._fits: dict[str, _Fit] = {}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(self._fits)

    def __call__(self, samples: InputSamples) -> dict[str, Ensemble]:
        """The means of the outputs at new samples of the inputs, as a model gives them: the same as `predict`."""
        return self.predict(samples)

    def predict(self, samples: InputSamples) -> dict[str, Ensemble]:
        """The means of the outputs at new samples of the inputs.

        Parameters
        ----------
        samples : InputSamples
            New values of the same inputs.

        Returns
        -------
        dict of str to Ensemble, shape `shape`
        """
        x = self._columns.of(samples)
        return {name: Ensemble(fit.mean(x)) for name, fit in self._fits.items()}

    def std(self, samples: InputSamples) -> dict[str, Ensemble]:
        """The standard deviations of the outputs at new samples, given the samples of the study, in their units.

        Parameters
        ----------
        samples : InputSamples
            New values of the same inputs.

        Returns
        -------
        dict of str to Ensemble, shape `shape`
        """
        x = self._columns.of(samples)
        return {name: Ensemble(fit.std(x)) for name, fit in self._fits.items()}

    def interval(self, samples: InputSamples, level: float = 0.95) -> dict[str, tuple[Ensemble, Ensemble]]:
        """The intervals that hold the outputs of the model at new samples of the inputs, with a measured width.

        Parameters
        ----------
        samples : InputSamples
            New values of the same inputs.
        level : float in (0, 1), dimensionless
            The share of new samples, drawn as those of the study, whose value is inside.

        Returns
        -------
        dict of str to (low, high), each an Ensemble, shape `shape`

        Raises
        ------
        TypeError, ValueError
            If an argument is of the wrong kind or out of range; if the study has fewer samples than the level needs, 19
            for 0.95: ``level * (n + 1)`` may be `n` at most.

        Notes
        -----
        The half-width is the deviation, that of the noise included, times a factor: the quantile of errors over
        deviations of every fifth of the samples, predicted by a fit to the other four. The first call makes these five
        fits. Deviations alone come from lengths that were chosen for all samples, which are too long for what varies
        more in places.
        """
        function = "GaussianProcess.interval"
        check_level(level, function)
        x, n = self._columns.of(samples), self.n_samples
        rank = int(np.ceil(level * (n + 1.0) - 1e-9))
        require(rank <= n, function, "level", f"be at most n / (n + 1) = {n / (n + 1):.4g} of {n} samples", level)
        result = {}
        with one_blas_thread():
            for name, fit in self._fits.items():
                mean, half = fit.mean(x), fit.factor(rank)[..., None] * fit.std(x, noise=True)
                result[name] = Ensemble(mean - half), Ensemble(mean + half)
        return result

    def __repr__(self) -> str:
        lines = [f"GaussianProcess: {self.n_samples} samples of {', '.join(self.inputs)}"]
        for name, error in self.loo_error.items():
            worst = "constant" if np.all(np.isnan(error)) else f"leave-one-out error {np.nanmax(error):.3g}"
            shape = f", shape {error.shape}" if error.ndim else ""
            lines.append(f"{name}{shape}, {worst}")
        return "\n".join([*lines, *self.notes])


class _Columns:
    """The inputs as columns of numbers, each divided by its standard deviation in the study."""

    def __init__(self, samples: InputSamples) -> None:
        function = "gaussian_process"
        found, fields = components_of(samples)
        for name in fields:
            wanted, advice = "be a number or a vector", "en.uq.chaos takes fields."
            require(False, function, f"input {name!r}", wanted, "a random field", advice)
        require(bool(found), function, "study", "have an input that varies", "none")
        self.names = [one.label for one in found]
        self.places = [(one.name, one.place) for one in found]
        x = self._raw(samples)
        self.shift, self.scale = x.mean(axis=0), x.std(axis=0)

    def _raw(self, samples: InputSamples) -> np.ndarray:
        columns = []
        for name, k in self.places:
            values = np.asarray(samples[name].samples)
            row = np.broadcast_to(values, (*values.shape[:-1], samples.n_samples)).reshape(-1, samples.n_samples)[k]
            columns.append(row.astype(np.float64))
        return np.stack(columns, axis=1)

    def of(self, samples: Any) -> np.ndarray:
        """The columns at some samples, shape (n_samples, n_inputs)."""
        if not isinstance(samples, InputSamples):
            raise TypeError(message("GaussianProcess", "samples", "be InputSamples", kind_of(samples)))
        result: np.ndarray = (self._raw(samples) - self.shift) / self.scale
        return result


class _Fit:
    """One output: the kernel that all its entries share, and the weights of the samples."""

    def __init__(self, x: np.ndarray, values: np.ndarray, made: Callable[[], Any]) -> None:
        from scipy.linalg import cho_solve

        self.shape = values.shape[:-1]
        flat = values.reshape(-1, values.shape[-1])
        self.shift, self.scale = flat.mean(axis=1), flat.std(axis=1)
        self.varies = self.scale > 8.0 * np.finfo(float).eps * np.abs(flat).max(axis=1)
        regressor = self.regressor = made()
        self.x, self.values, self.made = x, values, made
        self.ratios: np.ndarray | None = None
        self.loo = np.full(len(flat), np.nan)
        self.lengths = np.full(x.shape[1], np.nan)
        if not self.varies.any():
            return
        y = ((flat - self.shift[:, None])[self.varies] / self.scale[self.varies, None]).T
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # lengths at their bounds are said below
            regressor.fit(x, y)
        self.kernel = regressor.kernel_
        self.lengths = np.exp(self.kernel.k1.k2.theta)
        inverse = cho_solve((regressor.L_, True), np.eye(len(x)))
        self.weights = cho_solve((regressor.L_, True), y)
        self.loo[self.varies] = np.mean((self.weights / np.diag(inverse)[:, None]) ** 2, axis=0)

    def mean(self, x: np.ndarray) -> np.ndarray:
        """Means at the rows of `x`, shape ``(*shape, n)``."""
        result = np.repeat(self.shift[:, None], len(x), axis=1)
        step = max(1, CHUNK // len(self.x))
        for start in range(0, len(x), step) if self.varies.any() else ():
            rows = slice(start, start + step)
            near = self.kernel(x[rows], self.x)
            for entry, weights in zip(np.flatnonzero(self.varies), self.weights.T, strict=True):
                # row by row: a sample has the same bits among any others
                result[entry, rows] += (near * weights).sum(axis=1) * self.scale[entry]
        return result.reshape(*self.shape, len(x))

    def factor(self, rank: int) -> np.ndarray:
        """The error over its deviation that `rank` of the samples stay below where a fit has not seen them."""
        if self.ratios is None:
            n, ratios = len(self.x), np.zeros(self.values.shape)
            for fold in range(FOLDS):
                out = np.arange(n) % FOLDS == fold
                rest = _Fit(self.x[~out], self.values[..., ~out], self.made)
                error = np.abs(self.values[..., out] - rest.mean(self.x[out]))
                deviation = rest.std(self.x[out], noise=True)
                with np.errstate(divide="ignore"):  # constant without these samples, and not with them
                    ratios[..., out] = np.divide(error, deviation, out=np.zeros_like(error), where=error > 0.0)
            self.ratios = np.sort(ratios, axis=-1)
        return self.ratios[..., rank - 1]

    def std(self, x: np.ndarray, *, noise: bool = False) -> np.ndarray:
        """Standard deviations at the rows of `x`, shape ``(*shape, n)``; those of new runs have the noise in them."""
        from scipy.linalg import solve_triangular

        result = np.zeros((len(self.shift), len(x)))
        step = max(1, CHUNK // len(self.x))
        for start in range(0, len(x), step) if self.varies.any() else ():
            rows = slice(start, start + step)
            part = solve_triangular(self.regressor.L_, self.kernel(x[rows], self.x).T, lower=True)
            own = self.kernel.k1.diag(x[rows])
            variance = np.maximum(own - np.sum(part * part, axis=0), 0.0)
            deviation = np.sqrt(variance + self.kernel.k2.noise_level if noise else variance)
            result[self.varies, rows] = deviation * self.scale[self.varies, None]
        return result.reshape(*self.shape, len(x))


@explains_calls("gaussian_process")
def gaussian_process(
    inputs: Inputs,
    study: Any,
    outputs: Any = None,
    *,
    kernel: str = "matern52",
    n_restarts: int = 2,
    seed: int = 0,
) -> GaussianProcess:
    """Estimate a surrogate of every output by Gaussian-process regression: predictions with their standard deviations.

    Parameters
    ----------
    inputs : Inputs
        Without random fields.
    study : UqResult or InputSamples
        The result of `propagate`, or samples of `inputs` with their `outputs`; at most 4000 samples.
    outputs : dict of str to Ensemble or array ``(*shape, n_samples)``, or one of these: output "y"
        Outputs of the samples; None for a `UqResult`, which has them. Samples with a value that is not finite are left
        out.
    kernel : {"matern52", "matern32", "gaussian"}
        Outputs that are twice differentiable, once, or smooth.
    n_restarts : int
        Further starts of the search for the length scales.
    seed : int
        Seed of these starts.

    Returns
    -------
    GaussianProcess

    Raises
    ------
    ImportError
        If scikit-learn is not installed (``pip install scikit-learn``).
    TypeError, ValueError
        If an argument is of the wrong kind or out of range; if an input is a random field, or none varies; if there are
        more than 4000 samples.

    Warns
    -----
    UserWarning
        If predictions without a sample miss more than 5 % of an output's variance; also among the `notes`.

    Notes
    -----
    scikit-learn fits amplitude, one length scale per input and the variance of noise by maximum likelihood [1]_. The
    entries of an output share them. Errors without a sample follow from the inverse of the covariance [1]_ (eq. 5.12).

    Deviations hold for an output that varies alike everywhere, as the kernel assumes. For others they are too small in
    places: of new values of four functions, normal intervals of 95 % held 82 to 97 % after 64 runs. Those of
    `GaussianProcess.interval` have a width that is measured on samples which the fit has not seen.

    References
    ----------
    .. [1] Rasmussen, Williams (2006), Gaussian Processes for Machine Learning, chapter 5.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> inputs = en.Inputs(a=stats.uniform(-1.0, 2.0), b=stats.norm())
    >>> study = en.propagate(lambda x: {"y": x.a**2 + x.b}, inputs, 64, seed=3, progress=False)
    >>> surrogate = en.uq.gaussian_process(inputs, study)
    >>> bool(surrogate.loo_error["y"] < 1e-4), surrogate(inputs.samples(8, seed=4))["y"].n_samples
    (True, 8)
    """
    function = "gaussian_process"
    if not callable(getattr(inputs, "from_uniform", None)):
        raise TypeError(message(function, "inputs", "be Inputs", kind_of(inputs)))
    one_of(kernel, ("matern52", "matern32", "gaussian"), function, "kernel")
    n_restarts = integer(n_restarts, function, "n_restarts", minimum=0)
    samples, values, notes = observations(study, outputs, function)
    require(samples.names == inputs.names, function, "study", "have samples of the inputs", ", ".join(samples.names))
    others = differing(samples, inputs.variables)
    seen = f"other distributions of {', '.join(others)}"
    require(not others, function, "inputs", "be those of the study", seen, "Give the Inputs of the study.")
    n = samples.n_samples
    require(4 <= n <= MOST, function, "study", f"have 4 to {MOST} samples", n, "en.uq.chaos takes more.")
    columns = _Columns(samples)
    x = columns.of(samples)
    found = GaussianProcess(inputs, columns, n, notes)
    with one_blas_thread():
        for name, array in values.items():
            fit = _Fit(x, array, partial(_regressor, kernel, x.shape[1], n_restarts, seed))
            found._fits[name] = fit
            found.length_scales[name] = fit.lengths
            found.loo_error[name] = fit.loo.reshape(array.shape[:-1])
            worst = np.nanmax(fit.loo) if fit.varies.any() else 0.0
            if worst > LARGE_ERROR:
                part = f"predictions without a sample miss {worst:.2g} of the variance"
                found.notes += (f"output {name!r}: {part}. Take more samples or another kernel.",)
                warn_caller(f"{function}: {found.notes[-1]}")
    return found


def _regressor(kernel: str, n_inputs: int, n_restarts: int, seed: int) -> Any:
    """scikit-learn's regression with amplitude, length scales and noise."""
    optional("sklearn.gaussian_process", "gaussian_process")  # names what to install
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

    lengths = {"length_scale": np.ones(n_inputs), "length_scale_bounds": (1e-2, 1e3)}
    shape = RBF(**lengths) if kernel == "gaussian" else Matern(nu=2.5 if kernel == "matern52" else 1.5, **lengths)
    whole = ConstantKernel(1.0, (1e-3, 1e6)) * shape + WhiteKernel(1e-6, (1e-10, 1e1))
    return GaussianProcessRegressor(whole, alpha=1e-12, n_restarts_optimizer=n_restarts, random_state=seed)
