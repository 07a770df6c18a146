"""Filters and smoothers of one series over ranks: the bits of one rank, and the numbers of a call without ranks."""

import hashlib

import numpy as np
import pytest

from ensemble import distributed
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, rts_smoother, time_range, two_filter_smoother
from ensemble.scalar import Ensemble
from tests.apps.kalman.models import random_parts, with_gaps

STEPS = ("F", "Q", "H", "R", "u", "d")

PREDICTED = 5
"""The place of predicted means, which follow from stacks of matrices: alike to rounding."""


def values(a):
    return np.asarray(getattr(a, "samples", a))


def problem(name):
    """Parts of a model, observations, and options of `LinearGaussianModel`."""
    T, nx, ny, batch, prior = {
        "long": (1500, 2, 1, (), "before"),
        "short": (70, 2, 1, (), "first_observation"),
        "three observations": (70, 2, 3, (), "first_observation"),
        "constant": (333, 2, 1, (), "first_observation"),
        "batch": (150, 2, 1, (2, 2), "before"),
        "samples": (150, 2, 1, (), "first_observation"),
        "float32": (400, 2, 1, (), "before"),
        "four states": (1500, 4, 2, (), "before"),
        "three states, float32": (400, 3, 2, (), "before"),
        "large": (60, 9, 2, (), "before"),
        "exact": (80, 2, 1, (), "before"),
        "singular": (80, 2, 1, (), "before"),
        "wide": (200, 2, 1, (), "before"),
        "one lost": (150, 2, 1, (3,), "before"),
    }[name]
    dtype = np.float32 if "float32" in name else np.float64
    parts, y = random_parts(T, nx, ny, batch=batch, dtype=dtype)
    y = with_gaps(y).astype(dtype)
    if name == "constant":
        parts = {key: a[:1] if key in ("F", "Q", "R") else a for key, a in parts.items()}
    if name == "samples":
        parts["Q"] = Ensemble(np.linspace(1.0, 2.0, 3)) * parts["Q"]
    if name == "exact":
        parts["R"] = 0.0 * parts["R"]
    if name == "singular":  # no density of an observation given the state before
        parts["R"], parts["Q"] = 1e-300 * parts["R"], 0.0 * parts["Q"]
        y = y + np.nan
        y[::9] = 0.0
        parts["Q"][1::9] = np.eye(2)
    if name == "wide":
        parts["P0"], parts["H"] = 1e14 * np.eye(2), np.ones_like(parts["H"])
    if name == "one lost":
        parts["P0"] = parts["P0"] * np.array([1.0, 1e15, 1.0])[:, None, None]
        parts["H"][1] = [1.0, 1.0]
    return parts, y, {"prior_at": prior}


def part_of(a, steps, n_steps, axis):
    """The steps of a rank, of what varies."""
    if isinstance(a, Ensemble):
        return Ensemble(part_of(a.samples, steps, n_steps, axis))
    return a if a.shape[axis] != n_steps else a[(slice(None),) * axis + (steps,)]


def run(comm, name, **options):
    """The smoother of a problem, and the filter: each rank has its steps, and rank 0 gets the results."""
    parts, y, about = problem(name)
    axis = y.ndim - 2
    steps = time_range(y.shape[axis], comm, n_ranges=options.get("n_ranges", 64))
    own = {key: part_of(a, steps, y.shape[axis], axis) if key in STEPS else a for key, a in parts.items()}
    if comm.rank:  # that of rank 0 counts
        own["m0"], own["P0"] = 0.0 * own["m0"], np.eye(parts["m0"].shape[-1], dtype=y.dtype)
    model = LinearGaussianModel(**own, **about)
    mine = y[(slice(None),) * axis + (steps,)]
    smooth, filters = rts_smoother(model, mine, comm=comm, **options), kalman_filter(model, mine, comm=comm, **options)
    two = two_filter_smoother(model, mine, comm=comm, **{k: v for k, v in options.items() if k != "method"})
    assert options.get("method") or np.array_equal(values(two.mean), values(smooth.mean), equal_nan=True)
    for key in ("mean", "covariance", "log_likelihoods", "log_likelihood"):
        same = np.array_equal(values(getattr(filters, key)), values(getattr(smooth.filtered, key)), equal_nan=True)
        assert same, key
    assert np.array_equal(values(filters.predicted_mean)[..., 0, :].shape[:axis], y.shape[:axis])
    last = smooth.filtered
    arrays = [smooth.mean, smooth.covariance, last.mean, last.covariance, last.log_likelihoods, last.predicted_mean]
    told = comm.gather([values(a) for a in arrays])
    roots = None if last.by_roots is None else values(last.by_roots).tolist()
    if comm.rank:
        return None
    whole = [np.concatenate([said[k] for said in told], axis=axis) for k in range(len(arrays))]
    return [*whole, values(smooth.log_likelihood), roots]


def several(comm, names, kept=None):
    """Digests of results by the name of the problem; results of rank 0 are added to the dictionary `kept`."""
    found = {}
    for name in names:
        results = run(comm, name)
        if comm.rank == 0:
            if kept is not None:
                kept[name] = results
            bits = [a for k, a in enumerate(results[:-1]) if k != PREDICTED]
            found[name] = [hashlib.md5(np.ascontiguousarray(a).tobytes()).hexdigest() for a in bits]
    return found


# States of more numbers, or of another type: seconds of compilation.
SLOW = (
    "large", "wide", "four states", "three states, float32", "float32", "long", "constant", "singular",
    "three observations",
)  # fmt: skip
FAST = ("short", "batch", "samples", "exact", "one lost")


@pytest.fixture(scope="module")
def one_rank():
    """Digests and results."""
    kept = {}
    return several(distributed.serial(), FAST, kept), kept


@pytest.fixture(scope="module")
def of_one(one_rank):
    return one_rank[0]


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_results_have_the_bits_of_one_rank(mpi, of_one, ranks):
    assert mpi(several, ranks, FAST, limit=200.0)[0] == of_one


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [5, 8])
def test_results_of_many_ranks_have_the_bits_of_one(mpi, ranks):
    names = (*FAST, *SLOW)
    want = several(distributed.serial(), names)
    assert mpi(several, ranks, names, limit=300.0)[0] == want


def expected(name):
    parts, y, about = problem(name)
    return rts_smoother(LinearGaussianModel(**parts, **about), y)


@pytest.mark.parametrize("name", [*FAST, *SLOW[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW[2:])])
def test_results_are_those_without_ranks(one_rank, name):
    mean, covariance, *filtered, terms, predicted, total, _ = one_rank[1].get(name) or run(distributed.serial(), name)
    exact = expected(name)
    tolerance = 1e-3 if "float32" in name else 1e-5 if name in ("wide", "one lost") else 1e-9
    scale = np.sqrt(np.max(values(exact.covariance)[np.isfinite(values(exact.covariance))]))
    for got, other in (
        (mean, exact.mean), (covariance, exact.covariance), (filtered[0], exact.filtered.mean),
        (terms, exact.log_likelihoods), (predicted, exact.filtered.predicted_mean),
    ):  # fmt: skip
        np.testing.assert_allclose(got, np.broadcast_to(values(other), got.shape), rtol=tolerance,
                                   atol=tolerance * max(1.0, scale))  # fmt: skip
    np.testing.assert_allclose(total, values(exact.log_likelihood), rtol=max(tolerance, 1e-10))


@pytest.mark.parametrize("name", ["large", "singular"])
def test_what_has_no_elements_has_the_bits_of_the_recursion(name):
    mean, covariance, *_ = run(distributed.serial(), name)
    np.testing.assert_array_equal(mean, expected(name).mean)
    np.testing.assert_array_equal(covariance, expected(name).covariance)


def test_a_series_that_is_lost_leaves_the_others_their_bits(one_rank):
    together = one_rank[1]["one lost"]
    parts, y, about = problem("one lost")
    for k in (0, 2):
        alone = rts_smoother(
            LinearGaussianModel(**{name: a[k] for name, a in parts.items()}, **about), y[k], comm=distributed.serial()
        )
        np.testing.assert_array_equal(alone.mean, together[0][k])
        np.testing.assert_array_equal(alone.covariance, together[1][k])


def test_samples_have_the_bits_of_their_own_runs(one_rank):
    parts, y, about = problem("samples")
    together = one_rank[1]["samples"]
    for k in range(3):
        own = {name: a.samples[..., k] if isinstance(a, Ensemble) else a for name, a in parts.items()}
        alone = rts_smoother(LinearGaussianModel(**own, **about), y, comm=distributed.serial())
        np.testing.assert_array_equal(alone.mean, together[0][..., k])
        np.testing.assert_array_equal(alone.covariance, together[1][..., k])
        assert alone.log_likelihood == together[6][..., k]


def sequential(comm):
    return run(comm, "short", method="sequential")


def test_the_sequential_method_has_the_bits_of_one_process(mpi):
    got = mpi(sequential, 2)[0]
    for a, b in zip(got, (expected("short").mean, expected("short").covariance), strict=False):
        np.testing.assert_array_equal(a, b)


def wrong(comm):
    """Messages of each wrong call, on every rank."""
    said = []
    y = problem("three observations")[1]
    steps = time_range(70, comm)
    model = LinearGaussianModel(F=np.eye(2), Q=np.eye(2), H=np.ones((3, 2)), R=np.eye(3), m0=np.zeros(2), P0=np.eye(2))
    calls = [
        lambda: kalman_filter(model, y, comm=comm),
        lambda: kalman_filter(model, y[steps] if comm.rank else y[steps][:, :2], comm=comm),
        lambda: kalman_filter(
            model, y[steps].astype(np.float32 if comm.rank else float), comm=comm, n_ranges=comm.rank + 64
        ),
        lambda: rts_smoother(model, y[steps], comm=comm, form="square_root"),
        lambda: rts_smoother(model, y[steps], comm=comm, n_ranges=1),
        lambda: kalman_filter(model, y[steps], comm=comm, mean_dtype="float64"),
        lambda: kalman_filter(model, y[steps], comm=7),
        lambda: time_range(0, comm),
    ]
    for call in calls:
        try:
            call()
        except (TypeError, ValueError) as error:
            said.append(str(error))
        else:
            said.append("")
    return said


def test_what_does_not_fit_is_said_on_all_ranks(mpi):
    first, second = mpi(wrong, 2)
    assert first == second
    for text, start in zip(first, (
        "kalman_filter: y must have the 76 steps from 0 to 76 on rank 0; got 70 steps. They are those of time_range(",
        "kalman_filter: y must have shape (..., T, 3)",
        "kalman_filter: sizes, batch, type, samples, n_ranges and method of y must be the same on every rank",
        "rts_smoother: form must be 'covariance' with comm",
        "rts_smoother: comm must have no more ranks than there are ranges of time, 1; got 2.",
        "kalman_filter: mean_dtype must be None with comm",
        "kalman_filter: comm must be a communicator",
        "time_range: n_steps must be",
    ), strict=True):  # fmt: skip
        assert text.startswith(start), text


@pytest.mark.parametrize("T", [1, 2, 63, 64, 1023, 1024, 1027, 5000, 10**7])
@pytest.mark.parametrize("n_ranges", [1, 7, 64])
def test_ranges_depend_on_the_length_alone(T, n_ranges):
    from ensemble.apps.kalman.devices.time_cuts import time_cuts

    one = time_cuts(T, 1, n_ranges, "test")
    assert one.steps[0] == 0 and one.steps[-1] == T and np.diff(one.steps).min() > 0
    for size in range(1, min(one.n_ranges, 9) + 1):
        cuts = time_cuts(T, size, n_ranges, "test")
        np.testing.assert_array_equal(cuts.steps, one.steps)
        steps = [cuts.of_rank(rank) for rank in range(size)]
        assert [s.start for s in steps] == [0, *(s.stop for s in steps[:-1])] and steps[-1].stop == T
        for rank in range(size):
            lengths = [n for _, count, length in cuts.groups(rank) for n in [length] * count]
            np.testing.assert_array_equal(lengths, np.diff(cuts.steps)[cuts.ranks[rank] : cuts.ranks[rank + 1]])


# --- on devices
def on_devices(comm, T, nx, dtype, prior):
    """Results of all ranks with their arrays on devices, on rank 0."""
    import cupy

    comm = distributed.devices(comm)
    parts, y = random_parts(T, nx, 2, dtype=dtype)
    y = with_gaps(y).astype(dtype)
    steps = time_range(T, comm)
    own = {key: cupy.asarray(a[steps] if key in STEPS else a) for key, a in parts.items()}
    model = LinearGaussianModel(**own, prior_at=prior)
    smooth = rts_smoother(model, cupy.asarray(y[steps]), comm=comm)
    filters = kalman_filter(model, cupy.asarray(y[steps]), comm=comm)
    assert isinstance(smooth.mean, cupy.ndarray)
    cupy.testing.assert_array_equal(filters.mean, smooth.filtered.mean)
    cupy.testing.assert_array_equal(filters.log_likelihood, smooth.log_likelihood)
    arrays = [smooth.mean, smooth.covariance, smooth.filtered.mean, smooth.filtered.covariance, smooth.log_likelihoods]
    told = comm.gather([cupy.asnumpy(a) for a in arrays])
    if comm.rank:
        return None
    return [*(np.concatenate([said[k] for said in told]) for k in range(5)), cupy.asnumpy(smooth.log_likelihood)]


ON_DEVICES = [(20_000, 4, np.float32, "before"), (3001, 3, np.float64, "first_observation"), (900, 6, float, "before")]


@pytest.mark.cuda
@pytest.mark.parametrize("T, nx, dtype, prior", ON_DEVICES)
def test_ranks_that_share_a_device_have_the_bits_of_one(mpi, T, nx, dtype, prior):
    one = on_devices(distributed.serial(), T, nx, dtype, prior)
    for got, expected_bits in zip(mpi(on_devices, 3, T, nx, dtype, prior, limit=200.0)[0], one, strict=True):
        np.testing.assert_array_equal(got, expected_bits)
    parts, y = random_parts(T, nx, 2, dtype=dtype)
    wide = {name: a.astype(float) for name, a in parts.items()}
    exact = rts_smoother(LinearGaussianModel(**wide, prior_at=prior), with_gaps(y).astype(dtype).astype(float))
    tolerance = 1e-3 if dtype == np.float32 else 1e-9
    for got, other in zip(one, (exact.mean, exact.covariance), strict=False):
        assert np.max(np.abs(got - other)) < tolerance * np.sqrt(np.max(exact.covariance))
    np.testing.assert_allclose(one[-1], exact.log_likelihood, rtol=10 * tolerance)


@pytest.mark.cuda
def test_a_series_without_elements_is_smoothed_by_rank_0(mpi):
    mean = mpi(exact_on_devices, 2, limit=200.0)[0]
    np.testing.assert_allclose(mean, np.tile([1.0, 0.0], (80, 1)), atol=1e-9)


def exact_on_devices(comm):
    import cupy

    comm = distributed.devices(comm)
    eye = cupy.eye(2)
    model = LinearGaussianModel(F=eye, Q=0 * eye, H=eye[:1], R=cupy.zeros((1, 1)), m0=cupy.zeros(2), P0=eye)
    y = np.full((80, 1), np.nan)
    y[55] = 1.0
    mean = rts_smoother(model, cupy.asarray(y[time_range(80, comm)]), comm=comm).mean
    told = comm.gather(cupy.asnumpy(mean))
    return None if told is None else np.concatenate(told)
