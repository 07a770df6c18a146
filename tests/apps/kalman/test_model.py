"""Models say at once what is wrong with them."""

import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, rts_smoother
from ensemble.scalar import Ensemble

GOOD = {"F": np.eye(2), "Q": np.eye(2), "H": np.ones((1, 2)), "R": np.eye(1), "m0": np.zeros(2), "P0": np.eye(2)}


@pytest.mark.parametrize(
    "changes, error, match",
    [
        ({"F": np.zeros(2)}, ValueError, "F must have 2 axes or more"),
        ({"F": np.zeros((3, 2))}, ValueError, r"F must end in shape \(2, 2\)"),
        ({"Q": np.eye(3)}, ValueError, r"Q must end in shape \(2, 2\).*nx = 2"),
        ({"R": np.eye(2)}, ValueError, r"R must end in shape \(1, 1\).*ny = 1"),
        ({"m0": np.zeros(3)}, ValueError, r"m0 must end in shape \(2,\)"),
        ({"u": np.zeros(3)}, ValueError, r"u must end in shape \(2,\)"),
        ({"F": np.zeros((4, 2, 2)), "Q": np.zeros((5, 2, 2))}, ValueError, "time axes must be equally long"),
        ({"F": np.zeros((3, 1, 2, 2)), "m0": np.zeros((2, 2))}, ValueError, "batch axes must broadcast"),
        ({"Q": np.full((2, 2), np.nan)}, ValueError, "Q must be finite"),
        ({"P0": -np.eye(2)}, ValueError, "P0 must be a covariance matrix; got a negative number"),
        ({"Q": np.array([[1.0, 0.5], [0.0, 1.0]])}, ValueError, "Q must be symmetric"),
        ({"Q": Ensemble(np.stack([np.eye(2), np.array([[1.0, 0.5], [0.0, 1.0]])], -1))}, ValueError, "Q must be symm"),
        ({"F": 1j * np.eye(2)}, TypeError, "F must be"),
        ({"F": "text"}, TypeError, "F must be an array, an Ensemble or nested numbers; got 'text'"),
        ({"prior_at": "start"}, ValueError, "prior_at must be one of"),
    ],
)  # fmt: skip
def test_bad_parts_are_named(changes, error, match):
    with pytest.raises(error, match=f"LinearGaussianModel: {match}"):
        LinearGaussianModel(**{**GOOD, **changes})
    with pytest.raises(error, match=f"LinearGaussianModel: {match}"):
        LinearGaussianModel(**GOOD).replace(**changes)


CHANGES = {
    "one part": {"Q": 3.0 * np.eye(2)},
    "several": {"F": 0.5 * np.eye(2), "R": np.array([[2.0]]), "m0": np.ones(2)},
    "nested numbers": {"P0": [[2, 1], [1, 2]]},
    "seen exactly": {"R": np.zeros((1, 1))},
    "negative by rounding": {"Q": np.array([[1.0, 1.0], [1.0, 1.0 - 1e-16]]), "R": np.array([[-0.0]])},
    "samples": {"Q": Ensemble(np.eye(2)[..., None] * np.array([1.0, 2.0, 3.0]))},
    "steps": {"F": np.ones((5, 2, 2))},
    "batch": {"P0": np.stack([np.eye(2)] * 3)},
    "another type": {name: a.astype(np.float32) for name, a in GOOD.items()},
    "more observations": {"H": np.ones((3, 2)), "R": np.eye(3)},
    "more states": {"F": np.eye(3), "Q": np.eye(3), "H": np.ones((1, 3)), "m0": np.zeros(3), "P0": np.eye(3)},
    "inputs": {"u": np.ones(2), "d": np.ones(1)},
    "correlated": {"S": 0.1 * np.ones((2, 1))},
    "diffuse": {"diffuse": [True, False]},
    "prior": {"prior_at": "first_observation"},
    "nothing": {},
}


@pytest.mark.parametrize("first", ["nothing", "samples", "steps", "inputs", "correlated", "diffuse"])
@pytest.mark.parametrize("then", CHANGES)
def test_a_replaced_model_is_the_model_of_all_its_parts(first, then):
    def numbers(a):
        if not isinstance(a, Ensemble):
            return a
        return a.samples if a.n_samples > 1 else a.samples[..., 0]  # shared: as an array

    parts = {**GOOD, **CHANGES[first], **CHANGES[then]}
    try:
        whole = LinearGaussianModel(**parts)
    except ValueError as error:  # sizes that do not fit each other
        with pytest.raises(ValueError) as found:
            LinearGaussianModel(**{**GOOD, **CHANGES[first]}).replace(**CHANGES[then])
        assert str(found.value) == str(error)
        return
    made = LinearGaussianModel(**{**GOOD, **CHANGES[first]}).replace(**CHANGES[then])
    assert vars(made).keys() == vars(whole).keys()
    for name, value in vars(whole).items():
        other = getattr(made, name)
        if hasattr(value, "dtype"):
            assert other.dtype == value.dtype
            np.testing.assert_array_equal(numbers(other), numbers(value), strict=True)
        else:
            assert other == value


def test_a_replaced_model_keeps_no_buffer_and_changes_no_other_model():
    model, buffer = LinearGaussianModel(**GOOD), 2.0 * np.eye(2)
    made = model.replace(Q=buffer)
    buffer[:] = 5.0
    assert made.Q[0, 0] == 2.0 and model.Q[0, 0] == 1.0
    assert made.replace(u=np.ones(2)).replace(u=None).u.tolist() == [0.0, 0.0]
    assert model.replace(S=np.zeros((2, 1))).replace(S=None).S is None


def test_names_that_are_no_parts_cannot_be_replaced():
    with pytest.raises(TypeError, match=r"^LinearGaussianModel\.replace: parts must be among F, Q, .*; got G"):
        LinearGaussianModel(**GOOD).replace(G=np.eye(2))


def test_repr_tells_the_sizes():
    model = LinearGaussianModel(**{**GOOD, "F": Ensemble(np.ones((5, 2, 2, 3)))})
    assert repr(model) == "LinearGaussianModel(nx=2, ny=1, n_steps=5, n_samples=3, prior_at='before', float64)"
    assert "batch=(4,)" in repr(LinearGaussianModel(**{**GOOD, "m0": np.zeros((4, 2))}))


def test_integers_become_float64():
    result = kalman_filter(LinearGaussianModel([[1]], [[1]], [[1]], [[1]], [0], [[1]]), [[3], [4]])
    assert result.mean.dtype == np.float64


def test_a_model_is_required():
    with pytest.raises(TypeError, match="kalman_filter: model must be a LinearGaussianModel; got a dict"):
        kalman_filter(GOOD, np.zeros((3, 1)))


def test_results_are_one_line():
    model = LinearGaussianModel(F=[[1.0]], Q=[[1.0]], H=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    assert repr(kalman_filter(model, np.zeros((3, 1)))) == "FilterResult(mean (3, 1), log_likelihood -4.27908)"
    many = rts_smoother(model, np.zeros((2, 3, 1)))
    assert repr(many) == "SmootherResult(mean (2, 3, 1), log_likelihood of shape (2,))"
    drawn = kalman_filter(model, Ensemble(np.zeros((3, 1, 4))))
    assert repr(drawn) == "FilterResult(mean (3, 1), n_samples=4, log_likelihood -4.27908 ± 0)"


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (np.nan, "Q must be finite; got NaN or infinity in sample 1"),
        (-1.0, r"Q must be a covariance matrix; got a negative number at \(0, 0\) of sample 1"),
    ],
)
@pytest.mark.parametrize("time", [(), (3,)])
def test_the_sample_of_a_bad_entry_is_named(bad, text, time):
    Q = np.ones((*time, 1, 1, 4))
    Q[..., 1] = bad
    one = np.eye(1)
    with pytest.raises(ValueError, match=text):
        LinearGaussianModel(F=one, Q=Ensemble(Q), H=one, R=one, m0=np.zeros(1), P0=one)
