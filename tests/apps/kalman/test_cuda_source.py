"""The CUDA kernels without a GPU: NVRTC compiles them for sm_90, and g++ runs them, a thread for a thread."""

import numpy as np
import pytest

from ensemble._kernels.kalman import kalman_launch, level_scans, recursions, time_ranges
from ensemble._kernels.kalman.scan import SCANS
from ensemble.apps.kalman import (
    LinearGaussianModel,
    filter_split_series,
    filters,
    kalman_filter,
    rts_smoother,
    smooth_split_series,
    smoothers,
    split_series,
    two_filter_smoother,
)
from ensemble.apps.kalman.devices import compiled, split
from ensemble.scalar import Ensemble
from tests import nvrtc
from tests.apps.kalman.emulation import emulate
from tests.apps.kalman.models import (
    arguments_of,
    close,
    close_results,
    exact_observations,
    random_parts,
    turned,
    with_gaps,
)


@pytest.fixture(scope="module")
def on_cpu():
    """Launch the kernels on this machine's processor."""
    with pytest.MonkeyPatch.context() as patch:
        emulate(patch)
        yield


@pytest.fixture
def cuda(monkeypatch):
    """Arrays of NumPy pass for arrays on a device."""
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "cuda")


CASES = [
    (1, 300, 4, 2, 2, True),
    (2, 5, 2, 3, 1, True),
    (1, 1, 4, 2, 3, False),
    (1, 600, 1, 1, 2, False),
    (2, 517, 1, 1, 4, True),
]


@pytest.mark.parametrize("B, T, nx, ny, chunk, predict_first", CASES)
def test_chunks_are_the_sequential_filter_and_smoother(on_cpu, B, T, nx, ny, chunk, predict_first):
    parts, y, arrays = arguments_of(B, T, nx, ny)
    prior = "before" if predict_first else "first_observation"
    smooth = rts_smoother(LinearGaussianModel(**parts, prior_at=prior), y)
    m, P, terms, sums, sm, sP = kalman_launch.two_filter_chunks(*arrays, predict_first, chunk)
    close_results((m, P, terms, sums, sm, sP), smooth, of_sum=1e-13)
    F, Q, u = parts["F"], parts["Q"], parts["u"]
    rm, rP = kalman_launch.smooth_chunks(F, Q, u, m, P, chunk)
    close(rm, smooth.mean)
    close(rP, smooth.covariance)


def test_one_chunk_a_series_is_the_plain_recursion(on_cpu):
    parts, y, arrays = arguments_of(3, 20, 2, 3)
    m, P, terms, sums = kalman_launch.filter_chunks(*arrays, True)
    smooth = rts_smoother(LinearGaussianModel(**parts), y)
    close_results((m, P, terms, sums), smooth, of_sum=1e-13)
    mean, covariance = kalman_launch.smooth_chunks(parts["F"], parts["Q"], parts["u"], m, P)
    close(mean, smooth.mean)
    close(covariance, smooth.covariance)


def test_float32_and_constant_parts(on_cpu):
    """Chunks with replay have the errors of the sequential filter in float32."""
    parts, y, _ = arguments_of(1, 400, 4, 2, np.float32)
    fixed = {**parts, "F": parts["F"][:, :1], "R": parts["R"][:, :1]}
    arrays = [fixed[name] for name in ("F", "Q", "H", "R", "u", "d")]
    m, P, *_ = kalman_launch.filter_chunks(*arrays, y, parts["m0"], parts["P0"], True, 5)
    wide = {name: a.astype(np.float64) for name, a in fixed.items()}
    exact = kalman_filter(LinearGaussianModel(**wide), y.astype(np.float64))
    deviation = np.sqrt(np.einsum("...ii->...i", exact.covariance))
    assert m.dtype == np.float32
    assert np.max(np.abs(m - exact.mean) / deviation) < 1e-4
    assert np.max(np.abs(P - exact.covariance)) < 1e-5 * np.max(exact.covariance)


@pytest.mark.parametrize("fixed", ["", "FRu", "FQHRud"])
@pytest.mark.parametrize("T, chunk", [(600, 4), (1033, 8), (1030, 6)])
def test_groups_of_steps_come_and_go_whole_and_in_part(on_cpu, T, chunk, fixed):
    """Whole warps and short ones, chunks that are whole groups and that are not, parts that change and that do not."""
    parts, y, _ = arguments_of(1, T, 4, 2, np.float32)
    parts = {name: a[:, :1] if name in fixed else a for name, a in parts.items()}
    arrays = [parts[name] for name in ("F", "Q", "H", "R", "u", "d")]
    m, P, terms, sums, sm, sP = kalman_launch.two_filter_chunks(*arrays, y, parts["m0"], parts["P0"], True, chunk)
    rm, rP = kalman_launch.smooth_chunks(parts["F"], parts["Q"], parts["u"], m, P, chunk)
    wide = {name: a.astype(np.float64) for name, a in parts.items()}
    exact = rts_smoother(LinearGaussianModel(**wide), y.astype(np.float64))
    for mean, covariance, states in ((m, P, exact.filtered), (sm, sP, exact), (rm, rP, exact)):
        deviation = np.sqrt(np.einsum("...ii->...i", states.covariance))
        assert np.max(np.abs(mean - states.mean) / deviation) < 1e-3
        assert np.max(np.abs(covariance - states.covariance)) < 1e-4 * np.max(states.covariance)
    assert np.max(np.abs(terms - exact.log_likelihoods)) < 1e-3 * np.max(np.abs(exact.log_likelihoods))
    close(sums, exact.log_likelihood, 1e-5)


@pytest.mark.parametrize("cuts, predict_first", [((200,), True), ((1, 280), False), ((), True)])
def test_ranges_of_several_devices_are_the_sequential_filter_and_smoother(on_cpu, cuts, predict_first):
    parts, y, (*steps, m0, P0) = arguments_of(1, 300, 4, 2)
    prior = "before" if predict_first else "first_observation"
    smooth = rts_smoother(LinearGaussianModel(**parts, prior_at=prior), y)
    ranges = [tuple(a[:, i:j] for a in steps) for i, j in zip((0, *cuts), (*cuts, 300), strict=True)]
    got = time_ranges.two_filter_ranges(ranges, m0, P0, predict_first, 2)
    m, P, terms, sm, sP = (np.concatenate([piece[k] for piece in got], axis=1) for k in (0, 1, 2, 4, 5))
    close_results((m, P, terms, sum(piece[3] for piece in got), sm, sP), smooth)


@pytest.mark.parametrize("scan", sorted(SCANS))
@pytest.mark.parametrize("B, T", [(1, 1), (1, 2), (1, 37), (3, 6)])
@pytest.mark.parametrize("predict_first", [True, False])
def test_scans_over_packed_elements_are_the_sequential_filter_and_smoother(on_cpu, scan, B, T, predict_first):
    parts, y, arrays = arguments_of(B, T, 4, 2)
    prior = "before" if predict_first else "first_observation"
    smooth = rts_smoother(LinearGaussianModel(**parts, prior_at=prior), y)
    given = (*arrays, predict_first)
    two = level_scans.scan_two_filters(given, scan)
    apart = level_scans.scan_two_filters(given, scan, elsewhere=given)
    for results in (level_scans.scan_filter(given, scan), two, apart):
        close_results(results, smooth)
    m, P = level_scans.scan_smoother(given, *two[:2], scan)
    close(m, smooth.mean)
    close(P, smooth.covariance)


@pytest.mark.parametrize("prior_at", ["before", "first_observation"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_split_series_run_side_by_side(on_cpu, cuda, monkeypatch, n, prior_at):
    parts, y = random_parts(290, 4, 2)
    y = with_gaps(y)
    model = LinearGaussianModel(**parts, prior_at=prior_at)
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "numba")
    exact = rts_smoother(model, y)
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "cuda")
    turns = []
    monkeypatch.setattr(
        split, "_filter_sequentially", lambda s, f=split._filter_sequentially: turns.append(len(s)) or f(s)
    )
    pieces = split_series(model, y, [None] * n)
    for states in (filter_split_series(pieces), [part.filtered for part in smooth_split_series(pieces)]):
        for attribute in ("mean", "covariance", "log_likelihoods"):
            close(np.concatenate([getattr(f, attribute) for f in states]), getattr(exact.filtered, attribute))
    smooth = smooth_split_series(pieces)
    close(np.concatenate([part.mean for part in smooth]), exact.mean)
    close(np.concatenate([part.covariance for part in smooth]), exact.covariance)
    close(sum(part.log_likelihood for part in smooth), exact.log_likelihood)
    assert turns == ([1] * 3 if n == 1 else [])


def test_split_series_take_turns_where_elements_say_nothing(on_cpu, cuda):
    parts, y = exact_observations(T=24, batch=(2,))
    one = {name: a[1] for name, a in parts.items()}
    model = LinearGaussianModel(**one)
    exact = rts_smoother(model, y[1])
    pieces = split_series(model, y[1], [None, None, None])
    smooth, states = smooth_split_series(pieces), filter_split_series(pieces)
    close(np.concatenate([part.mean for part in smooth]), exact.mean)
    close(np.concatenate([part.mean for part in states]), exact.filtered.mean)
    assert not any(part.failed for part in smooth)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("scan", ["chunked", "blelloch"])
def test_the_recursion_takes_over_where_elements_say_nothing(on_cpu, cuda, scan, hidden):
    """Series 1 is seen without noise and moves without noise in what is seen; rounding may hide it."""
    parts, y = exact_observations(T=23)
    parts, y = turned(parts, y) if hidden else (parts, y)
    smooth = rts_smoother(LinearGaussianModel(**parts), y)
    model = LinearGaussianModel(**parts)
    results = [rts_smoother(model, y, method="scan", scan=scan), two_filter_smoother(model, y, scan=scan)]
    for got in results:
        assert not got.failed.any()
        for attribute in ("mean", "covariance", "log_likelihoods", "log_likelihood"):
            close(getattr(got, attribute), getattr(smooth, attribute))
        close(got.filtered.covariance, smooth.filtered.covariance)


@pytest.mark.parametrize("scan", ["chunked", "blelloch"])
def test_a_prior_that_makes_the_first_observation_regular_is_enough(on_cpu, cuda, monkeypatch, scan):
    """An ARMA model as statsmodels writes it: no noise in what is seen, the prior at the first observation."""
    phi, theta = 0.8, 0.4
    selection = np.array([[1.0], [theta]])
    model = LinearGaussianModel(
        F=[[phi, 1.0], [0.0, 0.0]], Q=selection @ selection.T, H=[[1.0, 0.0]], R=[[0.0]], m0=[0.0, 0.0],
        P0=[[3.0, 0.4], [0.4, theta**2]], prior_at="first_observation",
    )  # fmt: skip
    y = np.random.default_rng(5).standard_normal((31, 1))
    monkeypatch.setattr(kalman_launch, "WHOLE", np.int32(kalman_launch.Pass.WHOLE_BY_CHUNKS))
    for module in (kalman_launch, level_scans):
        monkeypatch.setattr(module, "finish_filter", lambda m, c, redo, *a, f=module.finish_filter: f(m, c, False, *a))
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "numba")
    exact = rts_smoother(model, y)
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "cuda")
    for got in (rts_smoother(model, y, method="scan", scan=scan), two_filter_smoother(model, y, scan=scan)):
        close(got.mean, exact.mean)
        close(got.log_likelihood, exact.log_likelihood)


def test_a_series_without_density_fails_alone(on_cpu, cuda):
    parts, y = random_parts(19, 2, 1, batch=(3,))
    for name in ("Q", "P0", "R"):
        parts[name][1] = 0.0
    model = LinearGaussianModel(**parts)
    alone = rts_smoother(LinearGaussianModel(**{name: a[2] for name, a in parts.items()}), y[2], method="scan")
    for got in (rts_smoother(model, y, method="scan"), two_filter_smoother(model, y)):
        assert got.failed.tolist() == [False, True, False]
        close(got.mean[2], alone.mean)
        assert np.isfinite(got.covariance[::2]).all()


@pytest.mark.parametrize("scan", sorted(set(SCANS) - {"chunked"}))
@pytest.mark.parametrize("batch", [(), (2,)])
def test_public_scans_join_level_by_level(on_cpu, cuda, monkeypatch, batch, scan):
    """What users call is what is timed: nothing but the packed kernels, for one series, a batch and an Ensemble."""
    parts, y = random_parts(13, 2, 3, batch=batch)
    y = with_gaps(y)
    model = LinearGaussianModel(**parts)
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "numba")
    smooth = rts_smoother(model, y)
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "cuda")
    monkeypatch.setattr(filters, "prefix_scan", None)
    monkeypatch.setattr(smoothers, "prefix_scan", None)
    shifts = Ensemble(np.array([0.0, 2.0, 5.0]))
    for got in (rts_smoother(model, y, method="scan", scan=scan), two_filter_smoother(model, y, scan=scan)):
        close(got.filtered.mean, smooth.filtered.mean)
        close(got.mean, smooth.mean)
        close(got.log_likelihoods, smooth.log_likelihoods)
    lifted = rts_smoother(model, y + 0.0 * shifts, method="scan", scan=scan)
    close(lifted.covariance.sample(2), smooth.covariance)
    close(lifted.log_likelihood.sample(1), smooth.log_likelihood)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_public_functions_find_their_way_to_the_kernels(on_cpu, monkeypatch, batch):
    parts, y = random_parts(50, 2, 3, batch=batch)
    y = with_gaps(y)
    model = LinearGaussianModel(**parts)
    smooth = rts_smoother(model, y)
    called = []
    for name in ("filter_chunks", "smooth_chunks", "two_filter_chunks"):
        inner = getattr(kalman_launch, name)
        monkeypatch.setattr(compiled, name, lambda *a, n=name, f=inner: called.append(n) or f(*a))
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "cuda")
    for method in ("sequential", "scan"):
        got = rts_smoother(model, y, method=method)
        close(got.mean, smooth.mean)
        close(got.filtered.covariance, smooth.filtered.covariance)
        close(got.log_likelihood, smooth.log_likelihood)
    met = two_filter_smoother(model, y)
    close(met.covariance, smooth.covariance)
    close(met.log_likelihoods, smooth.log_likelihoods)
    assert called == ["filter_chunks", "smooth_chunks", "filter_chunks", "smooth_chunks", "two_filter_chunks"]
    narrow = LinearGaussianModel(**{name: a.astype(np.float32) for name, a in parts.items()})
    far = 1e6 + two_filter_smoother(narrow, y, mean_dtype="float64").mean
    assert far.dtype == np.float64 and called[5:] == ["filter_chunks", "two_filter_chunks"]
    close(far, 1e6 + smooth.mean, 1e-9)


@pytest.mark.parametrize("nx, ny, dtype", [(1, 1, "float64"), (2, 3, "float32"), (3, 2, "float64"), (4, 4, "float64")])
def test_the_recursion_has_the_bits_of_the_cpu(on_cpu, nx, ny, dtype):
    """A thread and a SIMD lane run code that is written from one text; only the logarithm is the device's own."""
    _, _, arrays = arguments_of(4, 30, nx, ny, dtype)
    arrays = tuple(np.broadcast_to(a, (4, *a.shape[1:])) for a in arrays)
    mean, covariance, terms, _ = kalman_launch.filter_chunks(*arrays, True)
    m, P, log_densities = recursions.filter_series(*arrays, True, False)
    above = np.triu_indices(nx)
    np.testing.assert_array_equal(mean, m)
    np.testing.assert_array_equal(covariance[..., *above], P[..., *above])
    close(terms, log_densities, 1e-5 if dtype == "float32" else 1e-13)


ONE_FAMILY = next(iter(kalman_launch.KERNEL_FILES))
COMPILED = [("float32", 4, 2, family) for family in kalman_launch.KERNEL_FILES] + [
    pytest.param(*size, family, marks=[] if (*size, family) == ("float64", 2, 3, ONE_FAMILY) else pytest.mark.slow)
    for size in (("float64", 2, 3), ("float64", 4, 4))
    for family in kalman_launch.KERNEL_FILES
]


@pytest.mark.parametrize("dtype, nx, ny, family", COMPILED)
def test_compiles_for_sm_90(dtype, nx, ny, family):
    library = nvrtc.library()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    options = kalman_launch.compile_options(dtype, nx, ny, family)
    code = nvrtc.compiled(library, kalman_launch.source(nx, ny, family), *options)
    assert all(name.encode() in code for name in kalman_launch.KERNEL_FILES[family][0])
