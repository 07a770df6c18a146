"""The CUDA kernels for any size, run on the CPU: a block of threads per chunk, against the recursions of the CPU."""

import numpy as np
import pytest

from ensemble._kernels.kalman import block_launch, time_ranges
from ensemble._kernels.kalman.scan import SCANS
from ensemble.apps.kalman import LinearGaussianModel, rts_smoother
from ensemble.apps.kalman.devices import compiled
from tests import nvrtc
from tests.apps.kalman import statsmodels_models
from tests.apps.kalman.emulation import emulate
from tests.apps.kalman.models import close, close_results, random_parts, with_gaps


@pytest.fixture(scope="module")
def on_cpu():
    """Launch the kernels on this machine's processor."""
    with pytest.MonkeyPatch.context() as patch:
        emulate(patch)
        yield


def arguments_of(B, T, nx, ny, dtype=np.float64):
    """A model and observations in float64, and the kernels' arguments in `dtype`."""
    parts, y = random_parts(T, nx, ny, batch=(B,))
    y = with_gaps(y)
    arrays = [parts[name] for name in ("F", "Q", "H", "R", "u", "d")]
    return parts, y, (*(a.astype(dtype) for a in (*arrays, y, parts["m0"], parts["P0"])), True)


def expected(parts, y, prior="before"):
    return rts_smoother(LinearGaussianModel(**parts, prior_at=prior), y)


@pytest.mark.parametrize("nx, ny", [(1, 1), (6, 2), (6, 6), (2, 6), (7, 5), (5, 8), (9, 2), (16, 3)])
def test_chunks_of_any_size_are_the_recursions(on_cpu, nx, ny):
    parts, y, arguments = arguments_of(2, 27, nx, ny)
    smooth = expected(parts, y)
    close_results(block_launch.two_filter_blocks(arguments, "chunked"), smooth)
    mean, covariance = block_launch.smooth_blocks(
        arguments, smooth.filtered.mean, smooth.filtered.covariance, "chunked"
    )
    close(mean, smooth.mean)
    close(covariance, smooth.covariance)


def test_prior_at_the_first_observation_and_constant_parts(on_cpu):
    parts, y, _ = arguments_of(1, 40, 6, 3)
    fixed = {name: a[:, :1] if name in "FQR" else a for name, a in parts.items()}
    arguments = (*(fixed[name] for name in ("F", "Q", "H", "R", "u", "d")), y, parts["m0"], parts["P0"], False)
    smooth = expected(fixed, y, "first_observation")
    close_results(block_launch.two_filter_blocks(arguments, "chunked"), smooth)
    close_results(block_launch.filter_blocks(arguments, None), smooth)
    for scan in ("chunked", None):
        got = block_launch.smooth_blocks(arguments, smooth.filtered.mean, smooth.filtered.covariance, scan)
        close(got[0], smooth.mean)
        close(got[1], smooth.covariance)


@pytest.mark.parametrize("T", [1, 2, 9])
@pytest.mark.parametrize("scan", sorted(SCANS))
def test_classical_scans_of_any_size(on_cpu, scan, T):
    parts, y, arguments = arguments_of(2, T, 6, 2)
    smooth = expected(parts, y)
    close_results(block_launch.two_filter_blocks(arguments, scan), smooth)
    got = block_launch.smooth_blocks(arguments, smooth.filtered.mean, smooth.filtered.covariance, scan)
    close(got[0], smooth.mean)
    close(got[1], smooth.covariance)


@pytest.mark.parametrize("cuts", [(11,), (1, 20), ()])
def test_ranges_of_several_devices_of_any_size(on_cpu, cuts):
    parts, y, (*steps, m0, P0, _) = arguments_of(1, 30, 6, 2)
    smooth = expected(parts, y)
    ranges = [tuple(a[:, i:j] for a in steps) for i, j in zip((0, *cuts), (*cuts, 30), strict=True)]
    got = time_ranges.two_filter_ranges(ranges, m0, P0, True)
    m, P, terms, sm, sP = (np.concatenate([piece[k] for piece in got], axis=1) for k in (0, 1, 2, 4, 5))
    close_results((m, P, terms, sum(piece[3] for piece in got), sm, sP), smooth)


@pytest.mark.parametrize("family", block_launch.KERNEL_FILES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compiles_for_sm_90(dtype, family):
    library = nvrtc.library()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    code = nvrtc.compiled(library, block_launch.source(family), *block_launch.compile_options(dtype))
    assert all(name.encode() in code for name in block_launch.KERNEL_FILES[family])


@pytest.mark.slow
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 2e-2)])
@pytest.mark.parametrize("ny", range(1, 17))
@pytest.mark.parametrize("nx", range(1, 17))
def test_every_size(on_cpu, nx, ny, dtype, tolerance):
    parts, y, arguments = arguments_of(1, 19, nx, ny, np.dtype(dtype))
    smooth = expected(parts, y)
    close_results(block_launch.two_filter_blocks(arguments, "chunked"), smooth, tolerance)
    states = (smooth.filtered.mean.astype(dtype), smooth.filtered.covariance.astype(dtype))
    got = block_launch.smooth_blocks(arguments, *states, "chunked")
    close(got[0], smooth.mean, tolerance)
    close(got[1], smooth.covariance, tolerance)


@pytest.mark.parametrize("name", ["seasonal", "ARIMA(0,1,1)(0,1,0)", "SARIMAX(1,1,1)(1,1,1)"])
def test_wide_priors_and_singular_predictions(on_cpu, monkeypatch, name):
    """Smoothed variances far below filtered ones, predicted covariances of low rank, and both at once."""
    model, params, _ = statsmodels_models.at_start(name)
    ours, y = LinearGaussianModel.from_statsmodels(model, params), statsmodels_models.observations(model)
    exact = rts_smoother(ours, y)
    monkeypatch.setattr(compiled, "backend_of", lambda *a: "cuda")
    for method in ("scan", "sequential"):
        got = rts_smoother(ours, y, method=method)
        assert not got.failed
        close(got.mean, exact.mean, 1e-9)
