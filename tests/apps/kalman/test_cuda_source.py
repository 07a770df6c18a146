"""The CUDA kernels without a GPU: NVRTC compiles them for sm_90, and g++ runs them, a thread for a thread."""

import ctypes
import functools
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ensemble._kernels import kalman_cuda, kalman_ranges, kalman_scans
from ensemble._kernels.scan import SCANS
from ensemble.apps.kalman import LinearGaussianModel, compiled, kalman_filter, rts_smoother, two_filter_smoother
from ensemble.apps.kalman.elements import combine_filter, combine_smoother, filter_elements, smoother_elements
from ensemble.apps.kalman.model import aligned
from tests import nvrtc
from tests.apps.kalman.models import close, random_parts, with_gaps

HERE = Path(__file__).parent


class Emulated:
    """A compiled kernel that is called as CuPy calls one."""

    def __init__(self, library, name):
        self.kernel = getattr(library, f"launch_{name}")

    def __call__(self, grid, block, arguments, shared_mem=0):
        assert block == (128,)
        held = []
        for a in arguments:
            if isinstance(a, np.ndarray):
                held.append(ctypes.c_void_p(a.ctypes.data))
            elif isinstance(a, np.void):
                held.append(ctypes.create_string_buffer(a.tobytes()))
            else:
                kind = {"i4": ctypes.c_int, "i8": ctypes.c_longlong, "u8": ctypes.c_ulonglong}[a.dtype.str[1:]]
                held.append(kind(int(a)))
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(h) for h in held))
        self.kernel(grid[0], grid[1] if len(grid) > 1 else 1, pointers)


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    """Launch the kernels on this machine's processor."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    folder = tmp_path_factory.mktemp("kernels")
    libraries = {}

    def function(dtype, nx, ny, name):
        family = next(family for family, (names, _) in kalman_cuda.FAMILIES.items() if name in names)
        if (dtype, nx, ny, family) not in libraries:
            target = folder / f"{dtype}{nx}{ny}{family}.so"
            kernels = " ".join(f"LAUNCH({kernel})" for kernel in kalman_cuda.FAMILIES[family][0])
            options = [o for o in kalman_cuda.options(dtype, nx, ny, family) if o.startswith("-D")]
            options += [f'-DFAMILY="kalman_{family}.cu"', f"-DKERNELS={kernels}"]
            subprocess.run(
                [compiler, "-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-shared", "-fPIC", "-pthread", *options,
                 f"-I{Path(kalman_cuda.__file__).parent}", "-x", "c++", str(HERE / "cuda_on_cpu.h"), "-o", str(target)],
                check=True,
            )  # fmt: skip
            libraries[dtype, nx, ny, family] = ctypes.CDLL(str(target))
        return Emulated(libraries[dtype, nx, ny, family], name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kalman_cuda, "function", function)
        patch.setattr(kalman_scans, "function", function)
        patch.setattr(kalman_ranges, "function", function)
        yield


CASES = [(1, 300, 4, 2, 2, True), (2, 5, 2, 3, 1, True), (1, 1, 4, 2, 3, False), (1, 600, 1, 1, 2, False)]


def arguments_of(B, T, nx, ny, dtype=np.float64):
    parts, y = random_parts(T, nx, ny, batch=(B,), dtype=dtype)
    y = with_gaps(y).astype(dtype)
    arrays = [parts[name] for name in ("F", "Q", "H", "R", "u", "d")]
    return parts, y, (*arrays, y, parts["m0"], parts["P0"])


@pytest.mark.parametrize("B, T, nx, ny, chunk, predict_first", CASES)
def test_chunks_are_the_sequential_filter_and_smoother(on_cpu, B, T, nx, ny, chunk, predict_first):
    parts, y, arrays = arguments_of(B, T, nx, ny)
    prior = "before" if predict_first else "first_observation"
    smooth = rts_smoother(LinearGaussianModel(**parts, prior_at=prior), y)
    m, P, terms, sm, sP = kalman_cuda.two_filter_chunks(*arrays, predict_first, chunk)
    for got, expected in ((m, smooth.filtered.mean), (P, smooth.filtered.covariance), (terms, smooth.log_likelihoods)):
        close(got, expected)
    close(sm, smooth.mean)
    close(sP, smooth.covariance)
    F, Q, u = parts["F"], parts["Q"], parts["u"]
    rm, rP = kalman_cuda.smooth_chunks(F, Q, u, m, P, chunk)
    close(rm, smooth.mean)
    close(rP, smooth.covariance)


def test_one_chunk_a_series_is_the_plain_recursion(on_cpu):
    parts, y, arrays = arguments_of(3, 20, 2, 3)
    m, P, terms = kalman_cuda.filter_chunks(*arrays, True)
    smooth = rts_smoother(LinearGaussianModel(**parts), y)
    close(m, smooth.filtered.mean)
    close(terms, smooth.log_likelihoods)
    mean, covariance = kalman_cuda.smooth_chunks(parts["F"], parts["Q"], parts["u"], m, P)
    close(mean, smooth.mean)
    close(covariance, smooth.covariance)


def test_float32_and_constant_parts(on_cpu):
    """Chunks with replay have the errors of the sequential filter in float32."""
    parts, y, _ = arguments_of(1, 400, 4, 2, np.float32)
    fixed = {**parts, "F": parts["F"][:, :1], "R": parts["R"][:, :1]}
    arrays = [fixed[name] for name in ("F", "Q", "H", "R", "u", "d")]
    m, P, _ = kalman_cuda.filter_chunks(*arrays, y, parts["m0"], parts["P0"], True, 5)
    wide = {name: a.astype(np.float64) for name, a in fixed.items()}
    exact = kalman_filter(LinearGaussianModel(**wide), y.astype(np.float64))
    deviation = np.sqrt(np.einsum("...ii->...i", exact.covariance))
    assert m.dtype == np.float32
    assert np.max(np.abs(m - exact.mean) / deviation) < 1e-4
    assert np.max(np.abs(P - exact.covariance)) < 1e-5 * np.max(exact.covariance)


def test_pairs_join_as_the_matrix_formulas_say(on_cpu):
    parts, y, _ = arguments_of(1, 41, 4, 2)
    series = aligned(LinearGaussianModel(**{k: a[0] for k, a in parts.items()}), y[0], None, "test")
    e = filter_elements(series)
    left, right = tuple(a[1::2] for a in e), tuple(a[2::2] for a in e)
    for got, expected in zip(
        kalman_cuda.combine("combine_pairs", left, right, 4), combine_filter(left, right), strict=True
    ):
        close(got, expected)
    f = kalman_filter(LinearGaussianModel(**{k: a[0] for k, a in parts.items()}), y[0])
    e = smoother_elements(series, f.mean, f.covariance)
    left, right = tuple(a[:-1] for a in e), tuple(a[1:] for a in e)
    for got, expected in zip(
        kalman_cuda.combine("combine_links", left, right, 4), combine_smoother(left, right), strict=True
    ):
        close(got, expected)


@pytest.mark.parametrize("cuts, predict_first", [((200,), True), ((1, 280), False), ((), True)])
def test_ranges_of_several_devices_are_the_sequential_filter_and_smoother(on_cpu, cuts, predict_first):
    parts, y, (*steps, m0, P0) = arguments_of(1, 300, 4, 2)
    prior = "before" if predict_first else "first_observation"
    smooth = rts_smoother(LinearGaussianModel(**parts, prior_at=prior), y)
    ranges = [tuple(a[:, i:j] for a in steps) for i, j in zip((0, *cuts), (*cuts, 300), strict=True)]
    got = kalman_ranges.two_filter_ranges(ranges, m0, P0, predict_first, 2)
    m, P, terms, sm, sP = (np.concatenate(arrays, axis=1) for arrays in zip(*got, strict=True))
    close(m, smooth.filtered.mean)
    close(P, smooth.filtered.covariance)
    close(terms, smooth.log_likelihoods)
    close(sm, smooth.mean)
    close(sP, smooth.covariance)


@pytest.mark.parametrize("scan", sorted(set(SCANS) - {"sequential"}))
@pytest.mark.parametrize("T", [1, 2, 37])
@pytest.mark.parametrize("predict_first", [True, False])
def test_scans_over_packed_elements_are_the_sequential_filter_and_smoother(on_cpu, scan, T, predict_first):
    parts, y, arrays = arguments_of(1, T, 4, 2)
    prior = "before" if predict_first else "first_observation"
    smooth = rts_smoother(LinearGaussianModel(**parts, prior_at=prior), y)
    m, P = kalman_scans.scan_filter((*arrays, predict_first), scan)
    close(m, smooth.filtered.mean)
    close(P, smooth.filtered.covariance)
    given = (*arrays, predict_first)
    smoothers = [kalman_scans.scan_smoother, kalman_scans.scan_two_filters,
                 functools.partial(kalman_scans.scan_two_filters, elsewhere=given)]  # fmt: skip
    for smoother in smoothers:
        m, P = smoother(given, scan)
        close(m, smooth.mean)
        close(P, smooth.covariance)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_public_functions_find_their_way_to_the_kernels(on_cpu, monkeypatch, batch):
    parts, y = random_parts(50, 2, 3, batch=batch)
    y = with_gaps(y)
    model = LinearGaussianModel(**parts)
    smooth = rts_smoother(model, y)
    called = []
    for name in ("filter_chunks", "smooth_chunks", "two_filter_chunks"):
        inner = getattr(kalman_cuda, name)
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


@pytest.mark.parametrize("family", kalman_cuda.FAMILIES)
@pytest.mark.parametrize("dtype, nx, ny", [("float32", 4, 2), ("float64", 2, 3), ("float32", 7, 1)])
def test_compiles_for_sm_90(dtype, nx, ny, family):
    library = nvrtc.library()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    code = nvrtc.compiled(library, kalman_cuda.source(family), *kalman_cuda.options(dtype, nx, ny, family))
    assert all(name.encode() in code for name in kalman_cuda.FAMILIES[family][0])
