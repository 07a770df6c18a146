"""Kalman filters and smoothers, sequential and parallel in time; `README.md` beside this file has the method."""

from ensemble._kernels.kalman.scan import Sengupta, prefix_scan
from ensemble.apps.kalman.analysis.forecasting import ForecastResult, forecast
from ensemble.apps.kalman.analysis.maximum_likelihood import MaximumLikelihoodResult, maximum_likelihood
from ensemble.apps.kalman.analysis.sampling import sample_posterior
from ensemble.apps.kalman.analysis.simulation import SimulationResult, simulate
from ensemble.apps.kalman.devices.split import filter_split_series, smooth_split_series, split_series
from ensemble.apps.kalman.devices.time_cuts import time_range
from ensemble.apps.kalman.filtering import kalman_filter
from ensemble.apps.kalman.gaussian import (
    extended_kalman_filter,
    extended_kalman_smoother,
    unscented_kalman_filter,
    unscented_kalman_smoother,
)
from ensemble.apps.kalman.iterated import IteratedSmootherResult, iterated_smoother
from ensemble.apps.kalman.likelihood import log_likelihood
from ensemble.apps.kalman.model import LinearGaussianModel
from ensemble.apps.kalman.nonlinear import NonlinearGaussianModel
from ensemble.apps.kalman.online import OnlineFilter
from ensemble.apps.kalman.results import FilterResult, SmootherResult
from ensemble.apps.kalman.smoothing import rts_smoother, two_filter_smoother
from ensemble.apps.kalman.stationary import stationary_covariance

__all__ = [
    "FilterResult",
    "ForecastResult",
    "IteratedSmootherResult",
    "LinearGaussianModel",
    "MaximumLikelihoodResult",
    "NonlinearGaussianModel",
    "OnlineFilter",
    "Sengupta",
    "SimulationResult",
    "SmootherResult",
    "extended_kalman_filter",
    "extended_kalman_smoother",
    "filter_split_series",
    "forecast",
    "iterated_smoother",
    "kalman_filter",
    "log_likelihood",
    "maximum_likelihood",
    "prefix_scan",
    "rts_smoother",
    "sample_posterior",
    "simulate",
    "smooth_split_series",
    "split_series",
    "stationary_covariance",
    "time_range",
    "two_filter_smoother",
    "unscented_kalman_filter",
    "unscented_kalman_smoother",
]
