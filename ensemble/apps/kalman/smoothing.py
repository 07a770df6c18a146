"""The smoothers of a model and its observations: by Rauch, Tung and Striebel, and by two filters."""

from __future__ import annotations

from typing import Any

from ensemble._check import one_of
from ensemble._kernels.kalman.scan import Sengupta, check_scan
from ensemble._keywords import explains_calls
from ensemble._typing import Communicator, DType, Values
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.array.exact_rank import marked_without_density
from ensemble.apps.kalman.devices.time_cuts import N_RANGES
from ensemble.apps.kalman.filtering import check_options_of_ranks
from ensemble.apps.kalman.filters import METHODS, check_form, check_scannable, filtered
from ensemble.apps.kalman.mean_refinement import refined_smoother
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.results import SmootherResult
from ensemble.apps.kalman.smoothers import rts, two_filters

__all__ = ["rts_smoother", "two_filter_smoother"]


@explains_calls("rts_smoother")
def rts_smoother(
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
) -> SmootherResult:
    """Compute means and covariances of the state given all observations: a filter, then a recursion backwards.

    The covariance recursion is a sum of positive semidefinite terms [1]_. Where a predicted covariance is nearly
    singular the gain would be rounding: such series are smoothed on square roots of covariances, see Notes.

    Parameters
    ----------
    model : LinearGaussianModel
    y : array or Ensemble, shape (*batch, T, ny)
        Observations, NaN where missing.
    method, scan, form, mask, mean_dtype
        As `kalman_filter`, for both passes.
    comm, n_ranges
        As `kalman_filter`: all ranks call this together, each with its own steps of one series.

    Returns
    -------
    SmootherResult

    Raises
    ------
    TypeError, ValueError
        As `kalman_filter`.

    Notes
    -----
    A series goes by square roots where a pivot of ``F P F' + Q`` keeps no more than 1e-8 of its diagonal entry at any
    step (``64 nx eps`` in float32), as without observation noise and with noise of low rank: models of ARIMA kind.
    Each step then takes the gain of a rank-revealing triangularisation or the recursion of de Jong [2]_, which needs no
    gain, whichever has the smaller estimated error. `form="square_root"` smooths every series so.

    Sample i has the bits of its own run for ``method="sequential"``, which is the CPU's "auto", in either form. Scans
    multiply stacks of matrices, whose rounding depends on the number of samples.

    With `comm`, the information of later observations on the last state of each range of time follows from the elements
    of the ranges; from that state the recursion goes back over the range, on a GPU an information filter. What rank 0
    does for the whole series is the same as in `kalman_filter`, and series that go by square roots.

    References
    ----------
    .. [1] H. E. Rauch, F. Tung, C. T. Striebel, AIAA J. 3 (1965), 1445-1450.
    .. [2] P. de Jong, Smoothing and interpolation with the state-space model, J. Amer. Statist. Assoc. 84 (1989),
       1085-1088.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> rts_smoother(model, [[3.0], [float("nan")], [4.0]]).mean[:, 0].round(4).tolist()
    [2.3636, 2.9091, 3.4545]
    """
    one_of(method, METHODS, "rts_smoother", "method")
    check_scan(scan, "rts_smoother")
    check_form(form, method, "rts_smoother")
    if comm is not None:
        check_options_of_ranks(form, scan, mean_dtype, "rts_smoother")
        from ensemble.apps.kalman.devices.ranks import smooth_over_ranks

        return smooth_over_ranks(model, y, mask, comm, n_ranges, method, "rts_smoother")
    series = marked_without_density(aligned(model, y, mask, "rts_smoother", mean_dtype, diffuse=True))
    if method == "scan":
        check_scannable(series, "rts_smoother")
    if series.is_mixed:
        rough = lambda run: filtered(run, method, scan, form)
        return refined_smoother(series, rough, lambda run: rts(run, method, scan, form))
    return rts(series, method, scan, form)


@explains_calls("two_filter_smoother")
def two_filter_smoother(
    model: LinearGaussianModel,
    y: Any,
    *,
    method: str = "scan",
    scan: str | Sengupta = "chunked",
    form: str = "covariance",
    mask: Values | None = None,
    mean_dtype: DType | None = None,
    comm: Communicator | None = None,
    n_ranges: int = N_RANGES,
) -> SmootherResult:
    """Compute the means and covariances of the state given all observations: two independent prefix sums.

    One scan runs forwards and is the filter, one backwards over the same elements and gives the information of the
    observations after each step on the state [1]_. Both passes are scans whatever the backend: samples equal their own
    runs to rounding.

    Parameters
    ----------
    model : LinearGaussianModel
        Series with a singular ``H Q H' + R`` take the recursion of `rts_smoother`, see `kalman_filter`.
    y : array or Ensemble, shape (*batch, T, ny)
        Observations, NaN where missing.
    method : {"scan", "auto"}
        Both mean the same: there is no sequential form of this smoother; `rts_smoother` has one.
    form : {"covariance"}
        Prefix sums have no square-root form; `rts_smoother` has one.
    scan, mask, mean_dtype
        As `kalman_filter`.
    comm, n_ranges
        As `rts_smoother`, whose results these are, on a GPU to the bit.

    Returns
    -------
    SmootherResult

    Raises
    ------
    TypeError, ValueError
        As `kalman_filter`.

    References
    ----------
    .. [1] S. Särkkä, Á. F. García-Fernández, On the performance of prefix-sum parallel Kalman filters and smoothers on
       GPUs, algorithm 7.

    Examples
    --------
    >>> model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> two_filter_smoother(model, [[3.0], [float("nan")], [4.0]]).mean[:, 0].round(4).tolist()
    [2.3636, 2.9091, 3.4545]
    """
    advice = "Use rts_smoother, which has both."
    one_of(method, ("scan", "auto"), "two_filter_smoother", "method", advice=advice)
    one_of(form, ("covariance",), "two_filter_smoother", "form", advice=advice)
    check_scan(scan, "two_filter_smoother")
    if comm is not None:
        check_options_of_ranks(form, scan, mean_dtype, "two_filter_smoother")
        from ensemble.apps.kalman.devices.ranks import smooth_over_ranks

        return smooth_over_ranks(model, y, mask, comm, n_ranges, "auto", "two_filter_smoother")
    series = marked_without_density(aligned(model, y, mask, "two_filter_smoother", mean_dtype, diffuse=True))
    check_scannable(series, "two_filter_smoother")
    if series.is_mixed:
        rough = lambda run: filtered(run, "scan", scan)
        return refined_smoother(series, rough, lambda run: two_filters(run, scan))
    return two_filters(series, scan)
