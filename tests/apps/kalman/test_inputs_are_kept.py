"""Models and results keep copies of what they are given, and covariances are judged by one tolerance."""

import decimal

import numpy as np
import pytest

from ensemble.apps.kalman import (
    LinearGaussianModel,
    NonlinearGaussianModel,
    OnlineFilter,
    kalman_filter,
    stationary_covariance,
)
from ensemble.scalar import Ensemble

NX, NY = 2, 1


def parts(scale=1.0):
    return {
        "F": 0.5 * scale * np.eye(NX), "Q": scale * np.eye(NX), "H": scale * np.ones((NY, NX)), "R": scale * np.eye(NY),
        "m0": scale * np.ones(NX), "P0": scale * np.eye(NX), "u": scale * np.ones(NX), "d": scale * np.ones(NY),
        "S": 0.01 * scale * np.ones((NX, NY)), "diffuse": scale * np.eye(NX)[:, :1],
    }  # fmt: skip


@pytest.mark.parametrize(
    "lift", [lambda a: a, lambda a: Ensemble(np.stack([a, 2.0 * a], -1))], ids=["array", "Ensemble"]
)
@pytest.mark.parametrize("name", parts())
def test_a_buffer_that_is_written_to_again_changes_no_model(name, lift):
    given = {key: lift(a) for key, a in parts().items()}
    model = LinearGaussianModel(**given)
    values = lambda a: np.array(a.samples if isinstance(a, Ensemble) else a)
    before = values(getattr(model, name))
    buffer = given[name].samples if isinstance(given[name], Ensemble) else given[name]
    buffer[...] = 7.0
    np.testing.assert_array_equal(values(getattr(model, name)), before)


def test_nonlinear_models_keep_copies():
    Q, R, m0, P0 = np.eye(1), np.eye(1), np.zeros(1), np.eye(1)
    model = NonlinearGaussianModel(lambda x, k, xp: (x[0],), lambda x, k, xp: (x[0],), Q, R, m0, P0)
    for a in (Q, R, m0, P0):
        a += 3.0
    assert [float(getattr(model.linear, name).sum()) for name in ("Q", "R", "m0", "P0")] == [1.0, 1.0, 0.0, 1.0]


def test_results_keep_the_observations_that_they_come_from():
    model = LinearGaussianModel(**{k: a for k, a in parts().items() if k not in ("S", "diffuse")})
    y = np.arange(5.0)[:, None]
    result = kalman_filter(model, y)
    before = result.innovation.copy()
    y[...] = -100.0
    np.testing.assert_array_equal(result.innovation, before)


@pytest.mark.parametrize("without", [("diffuse",), ("S",), ("S", "diffuse")])
def test_an_online_filter_keeps_copies(without):
    model = LinearGaussianModel(**{k: a for k, a in parts().items() if k not in without})
    rows = np.random.default_rng(8).standard_normal((6, NY))
    first, second, buffer = OnlineFilter(model), OnlineFilter(model), np.empty(NY)
    for row in rows:
        first.step(row)
        buffer[:] = row
        second.step(buffer)
        buffer[:] = np.nan
        second.mean[...] = 5.0  # what it gives is not what it keeps
        second.covariance[...] = 5.0
    np.testing.assert_array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(first.covariance, second.covariance)


BASE = {"F": np.eye(2), "H": np.eye(2), "R": np.eye(2), "m0": np.zeros(2), "P0": np.eye(2)}


@pytest.mark.parametrize(
    "Q",
    [
        np.diag([1.0, -1e-20]),
        np.diag([1.0, -1e-15]),
        np.array([[1.0, 1.0 + 1e-15], [1.0 + 1e-15, 1.0]]),
        np.stack([np.eye(2), np.array([[-1e-17, 3e-16], [3e-16, 1e-16]]), np.eye(2)]),
    ],
)
def test_what_is_negative_by_rounding_is_taken_as_zero(Q):
    model = LinearGaussianModel(**BASE, Q=Q)
    assert np.linalg.eigvalsh(model.Q).min() > -1e-14 and np.einsum("...ii->...i", model.Q).min() >= 0.0
    np.testing.assert_allclose(model.Q, Q, atol=1e-15)
    lifted = LinearGaussianModel(**BASE, Q=Ensemble(np.stack([np.broadcast_to(np.eye(2), Q.shape), Q], -1)))
    np.testing.assert_array_equal(lifted.Q.samples[..., 1], model.Q)


@pytest.mark.parametrize(
    "Q, match",
    [
        (np.diag([1.0, -1e-10]), r"a negative number at \(1, 1\), -1e-10, where the largest variance is 1"),
        (np.stack([np.eye(2), -1e-3 * np.eye(2)]), "-0.001 at step 1, where the largest variance is 1"),
        (np.array([[1.0, 1.1], [1.1, 1.0]]), "the eigenvalue -0.1, where the largest variance is 1"),
        (1e-16 * np.diag([1.0, -1.0]), "where the largest variance is 1e-16"),
    ],
)
def test_what_is_negative_names_its_size_and_step(Q, match):
    with pytest.raises(ValueError, match=f"LinearGaussianModel: Q must be .*{match}"):
        LinearGaussianModel(**BASE, Q=Q)
    with pytest.raises(ValueError, match=f"stationary_covariance: Q must be .*{match}"):
        stationary_covariance(0.5 * np.eye(2), Q)


def test_columns_that_hold_no_numbers_are_refused_by_name():
    pandas = pytest.importorskip("pandas")
    one = np.eye(1)
    model = LinearGaussianModel(one, one, one, one, np.zeros(1), one)
    two = LinearGaussianModel(one, one, np.ones((2, 1)), np.eye(2), np.zeros(1), one)
    odd = {
        "datetime64": pandas.date_range("2020-01-01", periods=3),
        "datetime64.*UTC": pandas.date_range("2020-01-01", periods=3, tz="UTC"),
        "timedelta64": pandas.to_timedelta([1, 2, 3], unit="s"),
        "complex128": np.array([1.0 + 0j, 2.0, 3.0]),
        "str|object": np.array(["1", "2", "3"], dtype=object),
        "object .*complex": np.array([1.0, 2j, 3.0], dtype=object),
        "object .*Timestamp": pandas.Series([pandas.Timestamp("2020"), 1.0, 2.0], dtype=object).to_numpy(),
        "object .*NaTType": np.array([pandas.NaT, 1.0, 2.0], dtype=object),
        "period": pandas.period_range("2020", periods=3, freq="M"),
        "category": pandas.Categorical(["b", "a", "b"]),
    }
    for kind, values in odd.items():
        with pytest.raises(TypeError, match=f"kalman_filter: y must hold numbers; got .*column 'seen' of .*({kind})"):
            kalman_filter(model, pandas.DataFrame({"seen": values}))
        with pytest.raises(TypeError, match=f"column 'seen' of .*({kind})"):
            kalman_filter(model, pandas.Series(values, name="seen"))
        with pytest.raises(TypeError, match=r"column 'seen' of"):
            kalman_filter(two, pandas.DataFrame({"fine": [1.0, 2.0, 3.0], "seen": values}))
        if kind.startswith("object"):
            continue  # the first of them is a number
        with pytest.raises(TypeError, match="OnlineFilter: y must"):
            OnlineFilter(model).step(pandas.Series(list(values)[:1], name="seen"))


def test_columns_of_every_kind_of_number_are_taken():
    pandas = pytest.importorskip("pandas")
    one = np.eye(1)
    model = LinearGaussianModel(one, one, one, one, np.zeros(1), one)
    expected = kalman_filter(model, np.array([[1.0], [0.0], [1.0]])).mean
    kinds = [np.float32, np.int8, np.uint64, bool, "Int64", "Float64", "boolean"]
    columns = [pandas.Series([1, 0, 1]).astype(kind) for kind in kinds]
    columns += [pandas.Series([decimal.Decimal(1), 0, True], dtype=object)]
    for column in columns:
        np.testing.assert_array_equal(kalman_filter(model, column).mean, expected, str(column.dtype))
    gaps = kalman_filter(model, pandas.Series([1, None, pandas.NA], dtype=object)).mean
    assert np.isfinite(gaps).all()
