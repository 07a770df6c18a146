"""The kernels of series over several processes, on this machine's processor: the bits do not depend on how many."""

import numpy as np
import pytest

from ensemble._kernels.kalman.rank_ranges import RankRanges
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, rts_smoother
from ensemble.apps.kalman.devices import compiled, ranks
from ensemble.apps.kalman.devices.time_cuts import time_cuts
from ensemble.distributed import serial
from tests.apps.kalman.emulation import emulate
from tests.apps.kalman.models import arguments_of, close


@pytest.fixture(scope="module")
def on_cpu():
    with pytest.MonkeyPatch.context() as patch:
        emulate(patch)
        yield


def run(arrays, prior, T, size, n_ranges, predict_first, smooth=True):
    """States of all processes, joined, and the sums of all ranges."""
    cuts = time_cuts(T, size, n_ranges, "test")
    processes = []
    for rank in range(size):
        steps = cuts.of_rank(rank)
        own = tuple(a if a.shape[1] == 1 else np.ascontiguousarray(a[:, steps]) for a in arrays)
        given = prior if rank == 0 else tuple(np.ones_like(a) for a in prior)
        first = int(cuts.ranks[rank])
        processes.append(
            RankRanges(own, given, cuts.groups(rank), first, cuts.n_ranges, cuts.longest, predict_first, smooth)
        )
    elements = np.concatenate([process.reduce() for process in processes])
    done = [process.complete(elements.copy()) for process in processes]
    states = [np.concatenate([d[0][k] for d in done], axis=1) for k in range(5 if smooth else 3)]
    return (*states, np.concatenate([np.ravel(s) for d in done for s in d[1]]))


@pytest.mark.parametrize(
    "T, nx, ny, n_ranges, fixed, predict_first",
    [(900, 4, 2, 7, "", True), (133, 2, 3, 8, "FQ", False), (70, 6, 2, 5, "", True), (9, 1, 1, 64, "", False)],
)
def test_any_number_of_processes_gives_the_bits_of_one(on_cpu, T, nx, ny, n_ranges, fixed, predict_first):
    parts, y, _ = arguments_of(1, T, nx, ny)
    parts = {name: a[:, :1] if name in fixed else a for name, a in parts.items()}
    arrays = (*(parts[name] for name in ("F", "Q", "H", "R", "u", "d")), y)
    one, *others = (run(arrays, (parts["m0"], parts["P0"]), T, size, n_ranges, predict_first) for size in (1, 2, 3, 5))
    for other in others:
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    prior = "before" if predict_first else "first_observation"
    exact = rts_smoother(LinearGaussianModel(**parts, prior_at=prior), y)
    expected = exact.filtered.mean, exact.filtered.covariance, exact.log_likelihoods, exact.mean, exact.covariance
    for a, b in zip(one, expected, strict=False):
        close(a, b)
    close(np.sum(one[-1]), exact.log_likelihood[0])
    filters = run(arrays, (parts["m0"], parts["P0"]), T, 2, n_ranges, predict_first, smooth=False)
    for a, b in zip(filters[:3], one, strict=False):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("nx, prior", [(3, "before"), (2, "first_observation"), (6, "before")])
def test_public_functions_take_these_kernels(on_cpu, monkeypatch, nx, prior):
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "cuda")
    parts, y, _ = arguments_of(1, 130, nx, 2)
    model, y = LinearGaussianModel(**{name: a[0] for name, a in parts.items()}, prior_at=prior), y[0]
    got, filters = rts_smoother(model, y, comm=serial()), kalman_filter(model, y, comm=serial(), n_ranges=5)
    monkeypatch.undo()
    exact = rts_smoother(model, y)
    for result, other in ((got, exact), (got.filtered, exact.filtered), (filters, exact.filtered)):
        close(result.mean, other.mean)
        close(result.covariance, other.covariance)
        close(result.log_likelihoods, other.log_likelihoods)
        close(result.log_likelihood, other.log_likelihood)


def test_what_has_no_elements_is_found(on_cpu, monkeypatch):
    """An observation that is exact given the state before it leaves NaN, and rank 0 takes the recursion."""
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "cuda")
    called = []
    whole = ranks.by_rank_0
    monkeypatch.setattr(ranks, "by_rank_0", lambda *a: called.append(a) or whole(*a))
    eye = np.eye(2)
    model = LinearGaussianModel(F=eye, Q=0 * eye, H=eye[:1], R=[[0.0]], m0=[0.0, 0.0], P0=eye)
    y = np.full((20, 1), np.nan)
    y[15] = 1.0
    smooth = rts_smoother(model, y, comm=serial())
    assert len(called) == 1
    close(smooth.mean, np.tile([1.0, 0.0], (20, 1)))
