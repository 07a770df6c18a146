"""Series and DataFrames of pandas go in, and come out with their index."""

import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, OnlineFilter, forecast, kalman_filter, rts_smoother
from ensemble.scalar import Ensemble

pandas = pytest.importorskip("pandas")

EYE = np.eye(2)
MODEL = LinearGaussianModel(F=0.5 * EYE, Q=EYE, H=EYE, R=EYE, m0=np.zeros(2), P0=EYE)


@pytest.mark.parametrize("kind", ["frame", "series", "nullable"])
def test_tables_go_in_and_come_out(kind):
    dates = pandas.date_range("2001-01-31", periods=4, freq="ME")
    y = np.array([[1.0], [np.nan], [2.0], [4.0]])
    given = {
        "frame": lambda: pandas.DataFrame(y, index=dates, columns=["level"]),
        "series": lambda: pandas.Series(y[:, 0], index=dates),
        "nullable": lambda: pandas.Series([1, None, 2, 4], index=dates, dtype="Int64"),
    }[kind]()
    model = LinearGaussianModel([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])
    expected, got = rts_smoother(model, y), rts_smoother(model, given)
    np.testing.assert_array_equal(got.mean, expected.mean)
    frame = got.to_pandas()
    assert frame.index.equals(dates)
    np.testing.assert_array_equal(frame["mean"][0], expected.mean[:, 0])
    np.testing.assert_allclose(frame["deviation"][0], np.sqrt(expected.covariance[:, 0, 0]), rtol=1e-15)
    np.testing.assert_array_equal(frame["log_likelihood"], expected.log_likelihoods)
    assert got.filtered.to_pandas().index.equals(dates)
    ahead = forecast(model, given, 2).to_pandas()
    assert [str(date.date()) for date in ahead.index] == ["2001-05-31", "2001-06-30"]
    assert list(ahead.columns) == [("mean", 0), ("lower", 0), ("upper", 0)]
    assert list(expected.to_pandas().index) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "index, later",
    [
        (pandas.RangeIndex(2, 11, 3), [11, 14]),
        (pandas.PeriodIndex(["2001Q1", "2001Q2", "2001Q3"], freq="Q"), ["2001Q4", "2002Q1"]),
        (pandas.DatetimeIndex(["2001-01-01", "2001-01-02", "2001-01-03"]), ["2001-01-04", "2001-01-05"]),
        (pandas.Index(["a", "b", "c"]), ["0", "1"]),
    ],
    ids=str,
)
def test_forecasts_go_on_with_the_index(index, later):
    model = LinearGaussianModel([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.0], [[1.0]])
    ahead = forecast(model, pandas.Series([1.0, 2.0, 3.0], index=index), 2).to_pandas()
    assert [str(label).split(" ")[0] for label in ahead.index] == [str(label) for label in later]


def test_rows_of_a_table_are_taken_one_by_one():
    frame = pandas.DataFrame([[1.0, 2.0], [np.nan, 3.0], [0.5, np.nan]])
    online = OnlineFilter(MODEL)
    for _, row in frame.iterrows():
        online.step(row)
    np.testing.assert_array_equal(online.mean, kalman_filter(MODEL, frame).mean[-1])


def test_tables_that_do_not_fit_are_refused():
    with pytest.raises(TypeError, match="kalman_filter: y must hold numbers; got a DataFrame with column 0 of"):
        kalman_filter(MODEL, pandas.DataFrame([["a", 1.0], ["b", 2.0]]))
    with pytest.raises(ValueError, match=r"FilterResult.to_pandas: the result must be that of one series; got batch"):
        kalman_filter(MODEL, np.zeros((3, 4, 2))).to_pandas()
    with pytest.raises(ValueError, match=r"SmootherResult.to_pandas: the result must be .* an Ensemble of 3 samples"):
        rts_smoother(MODEL, Ensemble(np.zeros((4, 2, 3)))).to_pandas()
