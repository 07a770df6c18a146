"""The five analyses: exact answers, each against another, both precisions, arrays of a device on the emulator."""

import sys

import numpy as np
import pytest
import scipy.linalg as sla
from scipy import stats

from ensemble import Ensemble, apps
from ensemble._compile import device
from ensemble._compile.lanes.types import load, store
from ensemble._compile.numba import compiled_serial
from ensemble._compile.processor import register_bytes
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._kernels.oscillator import noise, oscillator_launch, steps
from ensemble.apps.analyses import (
    ar1_load,
    ar1_spectrum,
    convolution_response,
    frequency_response,
    gauss_hermite,
    oscillator,
    static_beam,
)
from ensemble.apps.analyses.beam import cantilever, full
from tests import cuda_on_cpu, nvrtc

DTYPES = (np.float64, np.float32)
MODULE = sys.modules["ensemble.apps.analyses.oscillator"]


# --- the beam
def test_frequencies_of_the_elements_approach_those_of_the_beam():
    found = cantilever(24, "test").modes()
    np.testing.assert_allclose(
        found.frequencies[:3], np.array([1.8751040687, 4.6940911330, 7.8547574382]) ** 2, rtol=1e-3
    )
    np.testing.assert_allclose(found.ratios[:2], 0.02, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", ["banded", "dense"])
def test_a_tip_load_deflects_the_tip_by_a_third(method, dtype):
    response = static_beam(16, dtype=dtype, method=method)
    loads = np.random.default_rng(20731).normal(1.0, 0.2, 1000)
    bound = 1e-9 if dtype == np.float64 else 1e-3
    assert response.y.shape == (16,) and response.y.samples.dtype == dtype
    np.testing.assert_allclose(response.y.samples[14], loads / 3, rtol=bound)
    np.testing.assert_allclose(response.y.samples[15], loads / 2, rtol=bound)
    assert response.residual < bound


@pytest.mark.parametrize("load", [None, np.ones((192, 2))], ids=["tip loads", "loads on all unknowns"])
@pytest.mark.parametrize("method", ["banded", "dense"])
def test_a_beam_that_single_precision_cannot_resolve_warns_with_its_error(method, load):
    """The exact deflection of the tip is a third of the load: 81 % are missing at 192 unknowns."""
    with pytest.warns(RuntimeWarning, match=r"static_beam: dtype must resolve .* float32 and n_dofs 192, .* by 8\d %"):
        static_beam(192, load, n_samples=2, dtype=np.float32, method=method)
    static_beam(192, load, n_samples=2, method=method)  # no warning in double precision


@pytest.mark.parametrize("method", ["banded", "dense"])
def test_loads_on_all_unknowns_and_an_output_matrix(method):
    rng = np.random.default_rng(50333)
    load, C = rng.standard_normal((10, 3)), rng.standard_normal((2, 10))
    expected = C @ np.linalg.solve(full(cantilever(10, "test").stiffness), load)
    got = static_beam(10, Ensemble(load), output=C, method=method)
    np.testing.assert_allclose(got.y.samples, expected, rtol=1e-9)


@pytest.mark.parametrize("method", ["banded", "dense"])
def test_a_load_that_is_not_finite_or_zero_concerns_its_own_sample(method):
    loads = np.ones((10, 4)) * [1.0, np.nan, 3.0, 0.0]
    got, good = (static_beam(10, part, method=method) for part in (loads, loads[:, [0, 2]]))
    np.testing.assert_allclose(got.y.samples[:, [0, 2]], good.y.samples, rtol=1e-12)
    assert np.isnan(got.y.samples[:, 1]).all() and not got.y.samples[:, 3].any() and got.residual < 1e-12


# --- frequencies and times
@pytest.mark.parametrize("dtype", DTYPES)
def test_spectra_are_products_of_the_dynamic_stiffness(dtype):
    n, omega, C = 10, np.array([0.5, 3.5, 30.0]), np.random.default_rng(51001).standard_normal((3, 10))
    beam = cantilever(n, "test")
    K, M = full(beam.stiffness), full(beam.mass)
    D = beam.rayleigh[0] * M + beam.rayleigh[1] * K
    got = frequency_response(n, omega, [1.0, 2.0, 3.0], output=C, dtype=dtype)
    assert got.dtype == (np.complex128 if dtype == np.float64 else np.complex64)
    for k, w in enumerate(omega):
        H = np.linalg.inv(K + 1j * w * D - w**2 * M)
        density = np.zeros((n, n))
        density[n - 2, n - 2] = k + 1.0
        expected = C @ H @ density @ H.conj().T @ C.T
        np.testing.assert_allclose(got[k], expected, rtol=0, atol=1e4 * np.finfo(dtype).eps * np.abs(expected).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_response_in_time_is_that_of_the_exponential(dtype):
    n, n_times, step = 6, 40, 0.01
    rng = np.random.default_rng(52201)
    beam = cantilever(n, "test")
    K, M = full(beam.stiffness), full(beam.mass)
    D = beam.rayleigh[0] * M + beam.rayleigh[1] * K
    A = np.block([[np.zeros((n, n)), np.eye(n)], [-np.linalg.solve(M, K), -np.linalg.solve(M, D)]])
    B = np.concatenate([np.zeros(n), np.linalg.solve(M, np.eye(n)[n - 2])])
    f, start, C = rng.standard_normal((n_times, 2)), rng.standard_normal(2 * n), rng.standard_normal((3, 2 * n))
    E = [sla.expm(A * step * k) for k in range(n_times)]
    expected = np.array([E[k] @ start[:, None] + step * sum(np.outer(E[k - j] @ B, f[j]) for j in range(k + 1))
                         for k in range(n_times)])  # fmt: skip
    got = convolution_response(n, n_times, Ensemble(f), initial=start, step=step, dtype=dtype)
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    scale = np.abs(expected).max(axis=(0, 2))[:, None, None]
    np.testing.assert_allclose(got.samples / scale, np.moveaxis(expected, 0, 1) / scale, rtol=0, atol=tolerance)
    seen = convolution_response(n, n_times, f, initial=start, step=step, output=C, dtype=dtype)
    expected = np.moveaxis(np.einsum("oi,tis->ots", C, expected), 1, 1)
    np.testing.assert_allclose(seen.samples, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_the_spectrum_of_the_response_in_time_is_that_of_the_frequency_response():
    """Averaged periodograms: a chi-square interval at each frequency, at 99.9 % of all of them together."""
    n, n_samples, length, step = 4, 150, 4096, 2.0 * np.pi / 3.516 / 100.0
    load = ar1_load(2 * length, n_samples, seed=50551)
    C = np.eye(1, 2 * n, n - 2)
    y = convolution_response(n, 2 * length, load, output=C, step=step).samples[0, length:]
    window = np.hanning(length)[:, None]
    found = (np.abs(np.fft.rfft(window * y, axis=0)) ** 2).mean(axis=1) * step / (2.0 * np.pi * (window**2).sum())
    places = np.unique(np.round(np.geomspace(4, 160, 24)).astype(int))
    places = places[np.abs(places / (length * step / (2 * np.pi)) - 3.516) > 0.2]  # the window widens the resonance
    omega = 2.0 * np.pi * places / (length * step)
    expected = frequency_response(n, omega, output=C[:, :n], step=step)[:, 0, 0].real
    tail = 0.0005 / omega.size
    low, high = (stats.chi2.ppf(q, 2 * n_samples) / (2 * n_samples) for q in (tail, 1.0 - tail))
    ratio = found[places] / expected
    assert np.all((ratio > low * 0.98) & (ratio < high * 1.02)), (low, high, ratio)
    assert abs(ratio.mean() - 1.0) < 4.0 / np.sqrt(n_samples * omega.size)


def test_the_autoregressive_load_has_the_variance_of_its_spectrum():
    step = 0.3
    omega = np.linspace(-np.pi / step, np.pi / step, 20001)[:-1]
    variance = ar1_spectrum(omega, step, scale=2.0).mean() * 2.0 * np.pi / step
    np.testing.assert_allclose(variance, 4.0 / (1.0 - 0.81), rtol=1e-10)
    assert abs(ar1_load(4, 100_000, scale=2.0).var(axis=1) / variance - 1.0).max() < 0.02


# --- the oscillator
@pytest.fixture(autouse=True)
def two_widths(monkeypatch):
    """Fewer kernels to compile."""
    monkeypatch.setattr(steps, "NARROW", ((1, 1),))


@pytest.fixture(params=["numpy", "cupy"])
def backend(request, monkeypatch):
    """Both implementations, that for CUDA devices on the emulator."""
    if request.param == "cupy":
        if cuda_on_cpu.COMPILER is None:
            pytest.skip("no g++")
        monkeypatch.setattr(device, "raw_module", cuda_on_cpu.Module)
        monkeypatch.setattr(MODULE, "prototype", lambda name: np.empty(0))
        oscillator_launch.compiled_run.cache_clear()
    return request.param


def plain(noise, h=0.01, m=2.0, c=1.6, r=1.0, k=62.84):
    """The same steps over arrays."""
    x = v = np.zeros(noise.shape[1])
    history = [(x, v)]
    for i, e in enumerate(noise * h**-0.5):
        f = [np.sin((i + part) * h) + e for part in (0.0, 0.5, 1.0)]

        def rate(x, v, f):
            return v, (f - c * v - r * np.sign(v) * np.sqrt(np.abs(v)) - k * x) / m

        a = rate(x, v, f[0])
        b = rate(x + 0.5 * h * a[0], v + 0.5 * h * a[1], f[1])
        d = rate(x + 0.5 * h * b[0], v + 0.5 * h * b[1], f[1])
        g = rate(x + h * d[0], v + h * d[1], f[2])
        x, v = (y + h / 6 * (p + 2 * q + 2 * s + t) for y, p, q, s, t in zip((x, v), a, b, d, g, strict=True))
        history.append((x, v))
    return np.moveaxis(np.array(history), 0, 1)


@pytest.mark.parametrize("n", [67, 100])
@pytest.mark.parametrize(
    "layout, dtype", [("samples_fastest", np.float64), ("samples_fastest", np.float32), ("times_fastest", np.float64)]
)
def test_steps_are_those_of_the_method_in_both_layouts(backend, layout, dtype, n):
    noise = np.random.default_rng(53101).standard_normal((60, n)).astype(dtype)
    expected = plain(noise.astype(np.float64))
    turned = layout == "times_fastest"
    response = oscillator(n, n_steps=60, noise=noise.T if turned else noise, history=True, layout=layout,
                          output=[[2.0, 0.5]], dtype=dtype, backend=backend)  # fmt: skip
    history = np.moveaxis(response.history, 0, -1) if turned else response.history
    tolerance = 1e-10 if dtype == np.float64 else 2e-3
    np.testing.assert_allclose(history, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    np.testing.assert_array_equal(response.displacement.samples, history[0, -1])
    np.testing.assert_allclose(response.y.samples[0], 2.0 * history[0, -1] + 0.5 * history[1, -1], rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_noise_at_an_odd_place_in_memory(backend, dtype):
    """Pairs of samples are not read with one instruction there."""
    memory = np.random.default_rng(53101).standard_normal(9 * 10 + 1).astype(dtype)
    noise = memory[1:].reshape(9, 10)
    got = oscillator(10, n_steps=9, noise=noise, dtype=dtype, backend=backend).displacement.samples
    expected = oscillator(10, n_steps=9, noise=noise.copy(), dtype=dtype, backend=backend).displacement.samples
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sample_has_its_own_noise_in_any_ensemble(backend, dtype):
    together = oscillator(67, n_steps=33, seed=7, dtype=dtype, backend=backend)
    for first, count in ((0, 1), (9, 4), (31, 12)):
        part = oscillator(count, n_steps=33, seed=7, first_sample=first, dtype=dtype, backend=backend)
        np.testing.assert_array_equal(part.velocity.samples, together.velocity.samples[first : first + count])
    kept = oscillator(12, n_steps=33, seed=7, history=True, dtype=dtype, backend=backend).history
    np.testing.assert_array_equal(kept[1, -1], together.velocity.samples[:12])
    other = oscillator(67, n_steps=33, seed=8, dtype=dtype, backend=backend)
    assert np.all(other.velocity.samples != together.velocity.samples)
    on_cpu = oscillator(67, n_steps=33, seed=7, dtype=dtype)
    np.testing.assert_allclose(together.velocity.samples, on_cpu.velocity.samples, rtol=0,
                               atol=1e-12 if dtype == np.float64 else 1e-4)  # fmt: skip


def test_a_sample_that_is_not_finite_stays_alone(backend):
    stiffness = np.full(67, 62.84)
    stiffness[17] = np.nan
    got = oscillator(67, n_steps=9, stiffness=stiffness, backend=backend).displacement.samples
    expected = oscillator(67, n_steps=9, backend=backend).displacement.samples
    assert np.isnan(got).nonzero()[0].tolist() == [17]
    np.testing.assert_array_equal(np.delete(got, 17), np.delete(expected, 17))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_numbers_drawn_in_the_kernel_are_normal_and_independent(dtype):
    """The displacement of a body that takes the noise itself."""

    def body(x, v, f0, f1, f2, e, h, parameters):
        return e + 0.0 * parameters[0], v

    number = Scalar(dtype)
    graph = trace(body, *[number] * 7, [number] * 5)
    n_steps, n = 64, 4096
    run = steps.load_module(steps.source(graph, steps.Run(True, True), dtype, 32, 1)).run
    history = np.empty((2, n_steps + 1, n), dtype)
    real = history.dtype.type
    run(n // 32, 32, n_steps, 0, n, n_steps, np.arange(n), 12345, np.ones(5 * n, dtype),
        np.zeros(2 * n_steps + 1, dtype), np.zeros(1, dtype), np.zeros(2, np.int64), real(0.01), real(1.0),
        np.zeros(n, dtype), np.zeros(n, dtype), history.reshape(-1),
        np.array([(n_steps + 1) * n, n, 1]))  # fmt: skip
    drawn = history[0, 1:].astype(np.float64)
    assert np.unique(drawn).size > (1.0 if dtype == "float64" else 0.98) * drawn.size - 1
    assert stats.kstest(drawn.reshape(-1), "norm").pvalue > 1e-3
    correlation = np.corrcoef(drawn) - np.eye(n_steps)
    assert np.abs(correlation).max() < 5.5 / np.sqrt(n)
    assert abs(np.mean(drawn**4) / 3.0 - 1.0) < 0.05


def test_numbers_in_float32_are_those_of_float64_to_the_bits_of_their_words():
    """Both take the same words, float32 the leading 24 bits of two of them."""

    @compiled_serial
    def draw(numbers, double, single):
        for i in range(0, numbers.size, 8):
            for k, value in enumerate(noise.normal_pair_float64(load(numbers, i, 8), 5, 77)):
                store(double, k * numbers.size + i, value)
            for k, value in enumerate(noise.normal_pair_float32(load(numbers, i, 8), 5, 77)):
                store(single, k * numbers.size + i, value)

    numbers, double, single = np.arange(8000), np.empty(16000), np.empty(16000, np.float32)
    draw(numbers, double, single)
    radius = np.hypot(double[:8000], double[8000:])
    usual = np.tile((radius > 0.01) & (radius < 3.0), 2)  # u near 1 and near 0 has fewer digits
    assert usual.mean() > 0.98
    np.testing.assert_allclose(single[usual], double[usual], rtol=0, atol=1e-5)


def test_philox_gives_the_published_words():
    """The known answers of Random123 for Philox 4x32-10, its counter and key all zero and of the digits of pi."""
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert [w & 0xFFFFFFFF for w in noise.philox.py_func(0, 0, 0, 0, 0)] == words


@pytest.mark.skipif(register_bytes() < 64, reason="needs AVX-512")
@pytest.mark.parametrize("width", [32, 1])
@pytest.mark.parametrize(("dtype", "decades"), [("float64", 290), ("float32", 30)])
def test_quick_roots_err_by_less_than_one_unit_in_the_last_place(dtype, decades, width, rng):
    quick_root = getattr(steps, f"quick_root_{dtype}")

    @compiled_serial
    def roots(x, y):
        for i in range(0, x.size, width):
            store(y, i, quick_root(load(x, i, width)))

    x = np.concatenate([10.0 ** rng.uniform(-decades, decades, 6400), np.repeat([0.0, np.nan, 1.0, 4.0], 32)])
    x = x.astype(dtype)
    y = np.empty_like(x)
    roots(x, y)
    exact = np.sqrt(x.astype(np.longdouble))
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    error = np.abs(y - exact)[~np.isnan(x)]
    assert (error <= np.spacing(exact[~np.isnan(x)].astype(dtype)) * (exact[~np.isnan(x)] > 0)).all()


def test_the_statistics_of_the_response():
    response = oscillator(20_000)
    np.testing.assert_allclose(response.displacement.samples.std(), 0.0496, rtol=0.02)
    np.testing.assert_allclose(oscillator(20_000, noise_scale=1.0).displacement.samples.std(), 0.00344, rtol=0.15)


def test_the_order_without_the_root_is_four():
    def end(n):
        zero = np.zeros((n, 1))
        return oscillator(1, n_steps=n, step=2.0 / n, root_damping=0.0, noise=zero).displacement.samples[0]

    exact = end(4096)
    errors = [abs(end(n) - exact) for n in (64, 128, 256)]
    assert 3.7 < np.log2(errors[0] / errors[1]) < 4.3 and 3.7 < np.log2(errors[1] / errors[2]) < 4.3


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", [steps.Run(True, False), steps.Run(False, True)])
def test_cuda_source_compiles(kind, dtype):
    library = nvrtc.library()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    for more in (1, 2):
        assert nvrtc.compiled(library, oscillator_launch.source(kind, dtype, MORE=more), *oscillator_launch.OPTIONS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_of_the_squared_norm(dtype):
    np.testing.assert_allclose(gauss_hermite(6, dtype=dtype), 6.0, rtol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: static_beam(7), "static_beam: n_dofs must be even"),
        (lambda: static_beam(8, np.ones((7, 2))), r"static_beam: load must have shape \(n_samples,\) or \(8, n_"),
        (lambda: static_beam(8, output=np.eye(7)), r"static_beam: output must have shape \(n_outputs, 8\)"),
        (lambda: static_beam(8, method="sparse"), "static_beam: method must be one of"),
        (lambda: frequency_response(8, [[1.0]]), "frequency_response: omega must be a number or have one axis"),
        (lambda: frequency_response(8, [1.0], [1.0, 2.0]), r"frequency_response: spectrum must have shape \(1,\)"),
        (lambda: frequency_response(8, [1.0, 2.0], [1.0, -2.0]), "frequency_response: spectrum must be zero or above"),
        (lambda: convolution_response(8, 5, np.ones(5)), r"convolution_response: load must have shape \(5, n_"),
        (lambda: convolution_response(8, 5, initial=np.ones(8)), r"convolution_response: initial must have shape \(16"),
        (lambda: ar1_load(3, 2, correlation=1.0), "ar1_load: correlation must be between -1 and 1"),
        (lambda: oscillator(0), "oscillator: n_samples must be an integer of at least 1"),
        (lambda: oscillator(3, noise=np.ones((5, 3))), r"oscillator: noise must have shape \(1000, 3\)"),
        (lambda: oscillator(3, mass=[1.0, 2.0]), "oscillator: mass must be a number or 3 of them"),
        (lambda: oscillator(3, mass=[1.0, 0.0, 2.0]), "mass must be other than zero; got zero in 1 of 3 samples"),
        (lambda: oscillator(3, output=np.eye(3)), r"oscillator: output must have shape \(n_outputs, 2\)"),
        (lambda: oscillator(3, layout="rows"), "oscillator: layout must be one of"),
        (lambda: oscillator(3, noise_scale=np.nan), "oscillator: noise_scale must be finite"),
        (lambda: static_beam(8, n_samples=0), "static_beam: n_samples must be an integer of at least 1"),
        (lambda: static_beam(8, seed=-1), "static_beam: seed must be an integer of at least 0"),
        (lambda: convolution_response(8, 5, n_samples=0), "n_samples must be an integer of at least 1"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: static_beam(8, np.array([1j])), "load"),
        (lambda: static_beam(8, output=1j * np.eye(8)), "output"),
        (lambda: frequency_response(8, 1j), "omega"),
        (lambda: frequency_response(8, [1.0], [1j]), "spectrum"),
        (lambda: convolution_response(8, 2, 1j * np.ones((2, 1))), "load"),
        (lambda: convolution_response(8, 2, initial=1j * np.ones(16)), "initial"),
        (lambda: oscillator(3, noise=1j * np.ones((1000, 3))), "noise"),
        (lambda: oscillator(3, mass=["a", "b", "c"]), "mass"),
    ],
)
def test_the_imaginary_part_of_no_argument_is_lost(call, name):
    with pytest.raises(TypeError, match=f": {name} must hold real numbers; got dtype"):
        call()


@pytest.mark.parametrize("layout", ["samples_fastest", "times_fastest"])
def test_noise_may_be_an_ensemble(layout):
    noise = np.random.default_rng(50341).standard_normal((20, 20))
    expected = oscillator(20, n_steps=20, noise=noise)
    found = oscillator(20, n_steps=20, noise=Ensemble(noise), layout=layout)
    assert np.array_equal(found.y.samples, expected.y.samples)


@pytest.mark.parametrize("layout", ["samples_fastest", "times_fastest"])
def test_noise_may_be_a_part_of_an_array(layout):
    """A column of an array can be seen as a vector whose entries are not neighbours in memory."""
    noise = np.random.default_rng(50342).standard_normal((20, 3))
    whole = oscillator(3, n_steps=20, noise=noise)
    for s in range(3):
        column = noise[:, s : s + 1]
        part = oscillator(1, n_steps=20, noise=column if layout == "samples_fastest" else column.T, layout=layout)
        assert np.array_equal(part.y.samples[:, 0], whole.y.samples[:, s])


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: static_beam(8, output=Ensemble(np.ones((2, 8)))), "output"),
        (lambda: frequency_response(8, Ensemble(np.ones(2))), "omega"),
        (lambda: frequency_response(8, [1.0, 2.0], Ensemble(np.ones(2))), "spectrum"),
        (lambda: convolution_response(8, 2, initial=Ensemble(np.ones(16))), "initial"),
    ],
)
def test_an_ensemble_where_samples_share_an_argument_is_refused(call, name):
    """Its samples were taken for the last axis of the array."""
    with pytest.raises(TypeError, match=f": {name} must be the same for all samples; got an Ensemble"):
        call()


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda x: static_beam(8, x), "load"),
        (lambda x: frequency_response(8, x), "omega"),
        (lambda x: oscillator(3, mass=x), "mass"),
    ],
)
def test_masked_entries_are_refused(call, name):
    with pytest.raises(ValueError, match=f": {name} must have no masked entries; got 1 of 3 masked"):
        call(np.ma.masked_array(np.ones(3), [True, False, False]))


def test_the_analyses_are_found_under_uncertainty_quantification():
    assert apps.uq.oscillator is oscillator


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_device_gives_the_answers_of_the_cpu(dtype):
    tolerance = 1e-9 if dtype == np.float64 else 2e-3
    pairs = [
        (lambda b: static_beam(32, method="dense", dtype=dtype, backend=b).y.samples),
        (lambda b: static_beam(32, dtype=dtype, backend=b).y.samples),
        (lambda b: frequency_response(20, [1.0, 3.5], dtype=dtype, backend=b)),
        (lambda b: convolution_response(8, 200, n_samples=5, dtype=dtype, backend=b).samples),
        (lambda b: oscillator(300, dtype=dtype, backend=b, history=True).history),
    ]
    for run in pairs:
        expected, got = run("numpy"), run("cupy").get()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(got / scale, expected / scale, rtol=0, atol=tolerance)
