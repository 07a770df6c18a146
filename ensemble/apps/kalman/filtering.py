"""The Kalman filter of a model and its observations."""

from __future__ import annotations

from typing import Any

from ensemble._check import one_of, require
from ensemble._kernels.kalman.scan import Sengupta, check_scan
from ensemble._keywords import explains_calls
from ensemble._typing import Communicator, DType, Values
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.array.exact_rank import marked_without_density
from ensemble.apps.kalman.devices.time_cuts import N_RANGES
from ensemble.apps.kalman.filters import METHODS, check_form, check_scannable, filtered
from ensemble.apps.kalman.mean_refinement import refined_filter
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.results import FilterResult

__all__ = ["check_options_of_ranks", "kalman_filter"]


@explains_calls("kalman_filter")
def kalman_filter(
    model: LinearGaussianModel,
    y: Any,
    *,
    method: str = "auto",
    scan: str | Sengupta = "chunked",
    form: str = "covariance",
    mask: Values | None = None,
    mean_dtype: DType | None = None,
    comm: Communicator | None = None,
    n_ranges: int = N_RANGES,
) -> FilterResult:
    """Compute the means and covariances of the state given the observations so far, and the log-likelihood.

    Parameters
    ----------
    model : LinearGaussianModel
    y : array or Ensemble, shape (*batch, T, ny)
        Observations. NaN is a missing entry: a whole observation, or single components of one.
    method : {"auto", "sequential", "scan"}
        "sequential" is Kalman's recursion, its update corrected by the residual of the gain. "scan" is the prefix sum
        of Särkkä and García-Fernández [1]_: O(log T) parallel steps and a few times the work. Series with a singular
        ``H Q H' + R``, whose elements do not exist, take the recursion.
        "auto" takes the recursion on the CPU, and on a GPU "scan" unless there are series enough to fill it.
    scan : {"chunked", "sequential", "hillis_steele", "blelloch", "ladner_fischer", "sengupta"} or Sengupta
        The algorithm of "scan", see `prefix_scan`; ``Sengupta(n)`` goes on by Hillis-Steele once n entries are left.
        For the filter, "chunked" sums up each chunk of time by filter steps, scans the sums, and replays the recursion
        inside each chunk, which keeps its accuracy; on a GPU for the smoothers too.
    form : {"covariance", "square_root"}
        "square_root" carries triangular factors of the covariances, sequentially: twice the digits. Compiled on the
        CPU, slow on other arrays.
    mask : bool array or Ensemble, shape of `y` or of `y` without its last axis, optional
        Entries to treat as missing.
    mean_dtype : {"float64", "float32"} or dtype, optional
        Type of the means, of `y` and of the model's vectors, where it is to be wider than that of the matrices: means
        far from the origin keep their digits while covariances stay narrow, at the price of two runs.

    comm : communicator of mpi4py, `distributed.devices` or `distributed.serial()`, optional
        All its ranks call this together, with their own steps of one series: `y`, `mask` and what varies in time in
        `model` have the steps of `time_range`, entry 0 of F, Q and u leading over from the rank before. The prior is
        that of rank 0. "auto" and "scan" run in parallel where steps have compiled code, see Notes.
    n_ranges : int
        With `comm`, the number of ranges of time, at least that of ranks. Results depend on it.

    Returns
    -------
    FilterResult
        With `comm`, the steps of this rank; `log_likelihood` is that of all steps, on every rank.
        Ensembles where the model or `y` has any: sample i is the run of sample i alone, on the CPU to the bit, to
        rounding for scans.

    Raises
    ------
    TypeError
        If `model` is no LinearGaussianModel or `y` no array of real numbers.
    ValueError
        If shapes do not fit, or a name is unknown.

    Notes
    -----
    A series whose innovation covariance ``H P H' + R`` is singular has no density: its results are not finite from that
    step on, and `FilterResult.failed` marks it. Other series and samples are not affected. That includes series of
    which more is seen without noise (R) than P0 and Q leave unknown, by the number of their variances that are not
    zero. On a device, models whose R has a variance of zero are counted on the host.

    On the CPU, models of more than 8 states or observations whose F, Q, H and R are constant in time keep their gains
    and covariances once two successive predicted covariances agree to rounding: no entry (a, b) differs by more than
    ``8 eps sqrt(P[a, a] P[b, b])``. That is decided per series; an observation with a missing entry ends it.

    On the CPU in float64, more than 8 observations and two or more a state are collapsed to as many as there are states
    [2]_; results are those of all observations to rounding. Series with exact entries, with noises close to singular or
    with entries beyond 1e9 deviations of their noise are filtered as they are.

    With `comm`, each range of time is reduced to one element, all ranks exchange these once, and run the recursion over
    their own ranges from the states that follow. The bits depend on the series and on `n_ranges`, not on the number of
    ranks; they are not those of a call without `comm`. With "sequential", for array libraries other than NumPy and
    CuPy, for more than 8 states or observations on the CPU, for exact observations, for many series or samples on a
    GPU, and for series of which the ranges lose digits, rank 0 collects the whole series and runs the recursion: with
    the bits of a call without `comm`.

    References
    ----------
    .. [1] S. Särkkä, Á. F. García-Fernández, Temporal parallelization of Bayesian smoothers, IEEE Trans. Automat.
       Control 66 (2021), 299-306.
    .. [2] B. Jungbacker, S. J. Koopman, Likelihood-based dynamic factor analysis for measurement and forecasting,
       Econometrics J. 18 (2015), C1-C21.

    Examples
    --------
    A random walk seen in noise; the second observation is missing:

    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> result = kalman_filter(model, [[3.0], [float("nan")], [4.0]])
    >>> result.mean[:, 0].round(4).tolist(), result.covariance[:, 0, 0].round(4).tolist()
    ([2.0, 2.0, 3.4545], [0.6667, 1.6667, 0.7273])
    """
    one_of(method, METHODS, "kalman_filter", "method")
    check_scan(scan, "kalman_filter")
    check_form(form, method, "kalman_filter")
    if comm is not None:
        check_options_of_ranks(form, scan, mean_dtype, "kalman_filter")
        from ensemble.apps.kalman.devices.ranks import filter_over_ranks

        return filter_over_ranks(model, y, mask, comm, n_ranges, method, "kalman_filter")
    series = marked_without_density(aligned(model, y, mask, "kalman_filter", mean_dtype, diffuse=True))
    if method == "scan":
        check_scannable(series, "kalman_filter")
    if series.is_mixed:
        return refined_filter(series, lambda run: filtered(run, method, scan, form))
    return filtered(series, method, scan, form)


def check_options_of_ranks(form: str, scan: str | Sengupta, mean_dtype: DType | None, function: str) -> None:
    """Series over ranks have covariances of one type, and one scan."""
    require(form == "covariance", function, "form", "be 'covariance' with comm", repr(form))
    require(scan == "chunked", function, "scan", "be 'chunked' with comm", repr(scan))
    require(mean_dtype is None, function, "mean_dtype", "be None with comm", repr(mean_dtype))
