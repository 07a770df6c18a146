"""One series in parts: the same as in one piece."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble.apps.kalman import (
    LinearGaussianModel,
    filter_split_series,
    rts_smoother,
    smooth_split_series,
    split_series,
)
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import random_parts, with_gaps

ATTRIBUTES = ("mean", "covariance", "log_likelihoods")


def joined(results, attribute, n_batch):
    """All parts of a result, one behind the other."""
    arrays = [getattr(result, attribute) for result in results]
    if isinstance(arrays[0], Ensemble):
        full = (np.broadcast_to(a.samples, (*a.shape, max(b.n_samples for b in arrays))) for a in arrays)
        return np.concatenate(list(full), n_batch)
    return np.concatenate(arrays, n_batch)


def whole(result, attribute):
    a = getattr(result, attribute)
    return a.samples if isinstance(a, Ensemble) else a


@given(
    batch=st.sampled_from([(), (1,), (5,), (2, 2)]),
    samples=st.sampled_from([0, 1, 4]),
    prior_at=st.sampled_from(["before", "first_observation"]),
    data=st.data(),
    T=st.integers(1, 9),
    seed=st.integers(0, 999),
)
def test_parts_have_the_bits_of_one_piece(batch, samples, prior_at, data, T, seed):
    n = data.draw(st.integers(1, T))
    parts, y = random_parts(T, 3, 2, seed, batch=batch)
    y = with_gaps(y, seed)
    parts["R"] = parts["R"][..., :1, :, :]
    if samples:
        scale = Ensemble(np.linspace(1.0, 2.0, samples))
        parts["Q"], parts["m0"] = scale * parts["Q"], scale + parts["m0"]
    model = LinearGaussianModel(**parts, prior_at=prior_at)
    expected = rts_smoother(model, y)
    pieces = split_series(model, y, [None] * n)
    smooth, filters = smooth_split_series(pieces), filter_split_series(pieces)
    for attribute in ATTRIBUTES:
        one = np.broadcast_to(whole(expected, attribute), joined(smooth, attribute, len(batch)).shape)
        np.testing.assert_array_equal(joined(smooth, attribute, len(batch)), one)
        np.testing.assert_array_equal(
            joined(filters, attribute, len(batch)),
            np.broadcast_to(whole(expected.filtered, attribute), one.shape),
        )
    total = sum(whole(part, "log_likelihood") for part in smooth)
    np.testing.assert_allclose(total, whole(expected, "log_likelihood"), rtol=1e-12, atol=1e-12)


def test_parts_may_be_made_where_they_are_needed():
    """Constants of one part are not those of the next."""
    parts, y = random_parts(7, 2, 1)
    changed = {**parts, "F": np.concatenate([np.tile(np.eye(2), (4, 1, 1)), np.tile(0.5 * np.eye(2), (3, 1, 1))])}
    expected = rts_smoother(LinearGaussianModel(**changed), y)
    steps = ("Q", "H", "R", "u", "d")
    prior = {"m0": parts["m0"], "P0": parts["P0"]}
    early = LinearGaussianModel(F=np.eye(2), **{n: parts[n][:4] for n in steps}, **prior)
    late = LinearGaussianModel(F=0.5 * np.eye(2), **{n: parts[n][4:] for n in steps}, m0=np.full(2, 1e9), P0=np.eye(2))
    got = smooth_split_series([(early, y[:4]), (late, y[4:])])
    np.testing.assert_array_equal(joined(got, "mean", 0), expected.mean)
    np.testing.assert_array_equal(joined(got, "covariance", 0), expected.covariance)


def test_a_mask_is_cut_with_the_series():
    parts, y = random_parts(8, 2, 2)
    model, mask = LinearGaussianModel(**parts), np.arange(8) % 3 == 1
    expected = rts_smoother(model, y, mask=mask)
    got = smooth_split_series(split_series(model, y, [None, None, None], mask=mask))
    np.testing.assert_array_equal(joined(got, "mean", 0), expected.mean)


def pieces(**changes):
    parts, y = random_parts(4, 2, 1)
    model, other = LinearGaussianModel(**parts), LinearGaussianModel(**{**parts, **changes.pop("parts", {})}, **changes)
    return [(model, y), (other, y[..., :1] + np.zeros(other.ny))]


@pytest.mark.parametrize(
    "parts, kind, match",
    [
        (7, TypeError, r"parts must be a list of pairs \(model, y\); got an int"),
        ([], TypeError, r"parts must be a list of pairs"),
        ([1, 2], TypeError, r"parts must be a list of pairs"),
        (pieces(prior_at="first_observation"), ValueError, r"part 1 must have prior_at='before'"),
        (
            pieces(parts={"H": np.ones((3, 2)), "R": np.eye(3), "d": np.zeros(3)}),
            ValueError,
            r"part 1 must be of the first",
        ),
        ([(pieces()[0][0], np.zeros((3, 1)))], ValueError, r"y must have 4 steps"),
        ([("model", np.zeros((3, 1)))], TypeError, r"model must be a LinearGaussianModel"),
    ],
)
@pytest.mark.parametrize("run", [filter_split_series, smooth_split_series])
def test_bad_parts_are_named(run, parts, kind, match):
    with pytest.raises(kind, match=f"{run.__name__}: {match}"):
        run(parts)


@pytest.mark.parametrize(
    "devices, kind, match",
    [
        (3, TypeError, "devices must be a list of device numbers"),
        ("01", TypeError, "devices must be a list of device numbers"),
        ([], ValueError, "devices must be one or more, and no more than there are steps; got 0 for 4 steps"),
        ([None] * 5, ValueError, "devices must be one or more, and no more than there are steps; got 5 for 4 steps"),
        ([0.5], TypeError, "devices must be an integer of at least 0"),
        ([-1], ValueError, "devices must be an integer of at least 0"),
    ],
)
def test_bad_devices_are_named(devices, kind, match):
    with pytest.raises(kind, match=f"split_series: {match}"):
        split_series(*pieces()[0], devices)
