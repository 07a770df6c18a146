"""Gauss rules over many variables: exact answers, generated loops, their fallback, and parameters of samples."""

import math
import sys
import types

import numba
import numpy as np
import pytest

import ensemble as en
from ensemble._compile import device
from ensemble._compile.trace.cuda_source import OPTIONS
from ensemble._kernels.quadrature import quadrature_generated, quadrature_launch
from ensemble._kernels.quadrature.levels import arranged, digit_order
from ensemble.quadrature import Integrand, gauss
from ensemble.quadrature.gauss import traced
from tests import cuda_on_cpu, nvrtc

MODULE = sys.modules["ensemble.quadrature.gauss"]
NO_PARAMETERS = np.zeros((0, 1))


@pytest.fixture(params=["numpy", "cupy"])
def backend(request, monkeypatch):
    """Both implementations, that for CUDA devices on the emulator."""
    if request.param == "cupy":
        if cuda_on_cpu.COMPILER is None:
            pytest.skip("no g++")
        monkeypatch.setattr(device, "raw_module", cuda_on_cpu.Module)
        monkeypatch.setattr(device, "device_empty", np.empty)
        monkeypatch.setattr(device, "device_array", np.array)
        monkeypatch.setattr(MODULE, "prototype", lambda name: np.empty(0))
        monkeypatch.setattr(quadrature_launch, "THREADS_WANTED", 64)
        quadrature_launch.kernels_of.cache_clear()
    return request.param


def squares(q, xp):
    return sum(x * x for x in q)


def mixed(q, xp):
    """Functions, tables, conditions, and terms in no order of the variables."""
    total = 0.1
    for i, x in enumerate(q):
        total = total + (0.3 - 0.1 * i) * x * q[-1 - i] - xp.exp(-0.2 * x) / (2.0 + xp.cos(x + q[0]))
    bounded = xp.where(total > 0.5, xp.sqrt(xp.abs(total)), 0.25 * total)
    return bounded, xp.interp(q[0], [-1.0, 0.0, 2.0], [0.5, 1.0, -2.0]) * total, 1.0


def tensor(f, dim, n, rule, p=None):
    """The sum over all points, at once."""
    nodes, weights = rule(n)
    q = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij")).reshape(dim, -1)
    w = np.prod(np.stack(np.meshgrid(*[weights] * dim, indexing="ij")).reshape(dim, -1), axis=0)
    found = f(tuple(q), np) if p is None else f(tuple(q), p, np)
    return [math.fsum(value * w) for value in (found if isinstance(found, tuple) else (found,))]


def hermite(n):
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return x, w / w.sum()


@pytest.mark.parametrize("dim, n, dtype", [(6, 4, np.float64), (6, 4, np.float32), (2, 3, np.float64)])
def test_the_mean_of_the_squared_norm_of_normal_variables_is_their_number(backend, dtype, dim, n):
    result = gauss(squares, dim, n, dtype=dtype, backend=backend)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, dim, rtol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dim, n", [(1, 70), (2, 9), (5, 3)])
def test_an_integrand_of_functions_is_the_sum_over_all_points(backend, dim, n):
    expected = tensor(lambda q, xp: (*mixed(q, xp)[:2], np.ones_like(q[0])), dim, n, hermite)
    np.testing.assert_allclose(gauss(mixed, dim, n, backend=backend), expected, rtol=2e-14, atol=1e-14)


def test_a_quadratic_form_costs_two_multiply_adds_per_point():
    dim = 8
    weights = np.random.default_rng(52369).standard_normal((dim, dim))

    def form(q, xp):
        return sum(weights[i, j] * q[i] * q[j] for i in range(dim) for j in range(dim))

    graph = traced(form, dim, NO_PARAMETERS, None, np.dtype(np.float64))
    made = arranged(graph, digit_order(graph, dim), 0)
    inner = [node.operation for node, level in zip(made.graph.nodes, made.levels, strict=True) if level == dim - 1]
    assert sorted(inner) == ["add", "add", "input", "multiply", "multiply", "multiply"]
    assert len(made.fused()) > dim


def test_sums_that_are_used_twice_are_not_reordered():
    """The rounding error of a sum, which is zero in exact arithmetic."""

    def rest(q, xp):
        small = q[1] * 2.0**-30
        total = q[0] + small
        return total, xp.abs((total - q[0]) - small) * 1e17

    nodes, weights = hermite(5)
    values = rest(np.meshgrid(nodes, nodes, indexing="ij"), np)[1]
    expected = (values * np.outer(weights, weights)).sum()
    assert abs(expected) > 0.1
    np.testing.assert_allclose(gauss(rest, 2, 5)[1], expected, rtol=1e-12)


@pytest.mark.parametrize("rule, exact", [("legendre", 2.0 * 3.0 * (1.0 / 3.0 + 4.0)), ("laguerre", 3.0)])
def test_other_weights(backend, rule, exact):
    bounds = [(-1.0, 1.0), (0.5, 3.5)] if rule == "legendre" else None
    result = gauss(lambda q, xp: q[0] ** 2 + (2.0 * q[1] if bounds else q[1]), 2, 3, rule, bounds=bounds,
                   backend=backend)  # fmt: skip
    np.testing.assert_allclose(result, exact, rtol=1e-14)


def with_parameters(q, p, xp):
    return xp.exp(p[0] * q[0]) + p[1] * q[1] ** 2, p[1] + 0.0 * q[0]


def test_each_sample_of_the_parameters_has_the_bits_of_its_own_run(backend):
    values = np.random.default_rng(51413).uniform(0.1, 0.9, (2, 5))
    values[1, 3] = np.nan
    together = gauss(with_parameters, 2, 8, p=en.Ensemble(values), backend=backend)
    for s in range(5):
        alone = gauss(with_parameters, 2, 8, p=values[:, s], backend=backend)
        for value, own in zip(together, alone, strict=True):
            np.testing.assert_array_equal(value.sample(s), own)
    expected = np.exp(values[0] ** 2 / 2) + values[1]
    np.testing.assert_allclose(together[0].samples, expected, rtol=1e-9)
    assert np.isnan(together[0].samples).tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("given", [[0.5, 2.0], en.Ensemble(np.array([[0.5, 0.6], [2.0, 3.0]]))])
def test_a_choice_between_equal_values_is_that_value(backend, given):
    value = gauss(lambda q, p, xp: xp.where(q[1] > q[2], p[1], p[1]) + q[0] ** 2, 3, 3, p=given, backend=backend)
    expected = given.samples[1] + 1.0 if isinstance(given, en.Ensemble) else 3.0
    np.testing.assert_allclose(getattr(value, "samples", value), expected, rtol=1e-14)


def test_parts_of_a_large_ensemble_are_put_together(backend, monkeypatch):
    monkeypatch.setattr(quadrature_generated, "MOST_PARTIALS", 64)
    monkeypatch.setattr(quadrature_launch, "MOST_BLOCKS", 2)
    values = np.linspace(0.1, 0.8, 22).reshape(2, 11)
    result = gauss(with_parameters, 2, 8, p=en.Ensemble(values), backend=backend)
    np.testing.assert_allclose(result[0].samples, np.exp(values[0] ** 2 / 2) + values[1], rtol=1e-9)


def test_an_integrand_that_cannot_be_traced_gives_the_same_answers(monkeypatch):
    monkeypatch.setattr(MODULE, "CHUNK", 100)

    def untraceable(q, p, xp):
        assert q[0].n_samples  # a traced value has none
        return with_parameters(q, p, xp)

    values = np.random.default_rng(50021).uniform(0.1, 0.9, (2, 3))
    for p in (values[:, 0], en.Ensemble(values)):
        got, expected = gauss(untraceable, 2, 13, p=p), gauss(with_parameters, 2, 13, p=p)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(getattr(a, "samples", a), getattr(b, "samples", b), rtol=1e-13)


OF_ONE_POINT = {
    "norm": (lambda q, xp: np.linalg.norm(q) ** 2, 3.0),
    "sum": (lambda q, xp: np.sum(np.square(q)), 3.0),
    "math": (lambda q, xp: math.exp(0.1 * q[0]), math.exp(0.005)),
}


@pytest.mark.parametrize("name", OF_ONE_POINT)
@pytest.mark.parametrize("options", [{"n_nodes": 4}, {"kind": "sparse", "level": 2}], ids=str)
def test_a_function_of_one_point_mixes_no_points(name, options):
    f, exact = OF_ONE_POINT[name]
    np.testing.assert_allclose(gauss(f, 3, **options), exact, rtol=1e-7)


def test_a_function_of_one_point_may_branch():
    np.testing.assert_allclose(gauss(lambda q, xp: q[0] ** 2 if q[1] > 0.0 else 0.0, 2, 4), 0.5, rtol=1e-12)


def test_parameters_of_an_integrand_that_cannot_be_traced_are_arguments_of_functions():
    def bounded(q, p, xp):
        return xp.minimum(p[0], 0.3) * q[0] ** 2 if q[0] > 0.0 else xp.maximum(p[0], p[1]) * q[0] ** 2

    value = gauss(bounded, 1, 4, p=en.Ensemble(np.array([[0.1, 0.5], [0.2, 0.4]])))
    np.testing.assert_allclose(value.samples, [0.5 * (0.1 + 0.2), 0.5 * (0.3 + 0.5)], rtol=1e-14)


def test_parameters_may_be_a_list_of_numbers_and_ensembles():
    found = gauss(lambda q, p, xp: p[0] * q[0] ** 2 + p[1], 1, 3, p=[en.Ensemble(np.array([1.0, 2.0])), 3.0])
    np.testing.assert_allclose(found.samples, [4.0, 5.0])


def test_an_integrand_is_traced_once_for_each_kind_of_call():
    calls, counter = [], types.SimpleNamespace()
    counter.add = lambda q: calls.append(len(q))  # the list itself would be a value that the integrand reads

    def counted(q, p, xp):
        counter.add(q)
        return p[0] * q[0] ** 2 + 1.0

    f = Integrand(counted)
    for _ in range(2):
        assert [float(gauss(f, 1, 4, p=[a]).round(12)) for a in (1.0, 2.0)] == [2.0, 3.0]
        np.testing.assert_allclose(gauss(f, 2, 4, "legendre", p=[3.0], bounds=(0.0, 1.0)), 2.0)
        np.testing.assert_allclose(gauss(f, 2, 4, "legendre", p=[3.0], bounds=(0.0, 2.0)), 20.0)
    assert calls == [1, 2, 2]


def test_an_integrand_is_traced_again_where_a_number_that_it_reads_has_changed():
    factors = [1.0]
    f = Integrand(lambda q, xp: factors[0] * q[0] ** 2)
    found = []
    for factors[0] in (1.0, 2.0, 1.0):
        found.append(float(gauss(f, 1, 4).round(12)))
    assert found == [1.0, 2.0, 1.0]
    assert len(f.graphs) == 2


def test_sparse_grids_are_exact_to_their_degree(backend):
    result = gauss(lambda q, xp: (q[0] ** 2 * q[7] ** 2 + q[3] ** 4, 2.5), 10, kind="sparse", level=2, backend=backend)
    np.testing.assert_allclose(result, (4.0, 2.5), rtol=1e-12)


def test_sources_of_many_loops_are_python():
    """Two nodes in 36 variables: 7e10 points take minutes, but the source must be one that Python reads."""
    graph = traced(squares, 36, NO_PARAMETERS, None, np.dtype(np.float64))
    compile(quadrature_generated.source(graph, quadrature_generated.shape_of(36, 2, "float64")), "sums", "exec")


def test_no_number_of_threads_changes_a_bit():
    import numba

    threads = numba.get_num_threads()
    several = gauss(mixed, 9, 4)
    try:
        numba.set_num_threads(1)
        assert gauss(mixed, 9, 4) == several
    finally:
        numba.set_num_threads(threads)


@pytest.mark.parametrize(
    "arguments, options, error, text",
    [
        ((squares, 0, 4), {}, ValueError, "dim must be an integer of at least 1"),
        ((squares, 3), {}, ValueError, "n_nodes must be an integer of at least 1"),
        ((squares, 3, 151), {}, ValueError, "n_nodes must be at most 150"),
        ((squares, 40, 4), {}, ValueError, "n_nodes must give at most 1099511627776 points; got 4\\*\\*40"),
        ((squares, 3, 4, "simpson"), {}, ValueError, "rule must be one of"),
        ((squares, 3, 4), {"kind": "dense"}, ValueError, "kind must be one of"),
        ((squares, 3, 4), {"level": 2}, ValueError, "level must be given with kind='sparse'"),
        ((squares, 3, 4), {"kind": "sparse", "level": 2}, ValueError, "n_nodes must be given with kind='tensor'"),
        ((squares, 3), {"kind": "sparse"}, ValueError, "level must be an integer of at least 0"),
        ((squares, 3, 4), {"bounds": (0, 1)}, ValueError, "bounds must be given with rule='legendre'"),
        ((squares, 3, 4, "legendre"), {"bounds": (0, 1, 2)}, ValueError, r"bounds must have shape \(2,\) or \(3, 2\)"),
        ((squares, 3, 4, "legendre"), {"bounds": (0, np.inf)}, ValueError, "bounds must be finite"),
        ((squares, 3, 4, "legendre"), {"bounds": ((0, 0, 0), (1, 1, 1))}, ValueError,
         r"bounds must have shape .*\(lower, upper\) pair"),
        ((squares, 2, 4, "legendre"), {"bounds": ((0, 0), (1, 1))}, ValueError,
         r"bounds must have lower limits below the upper ones; got \(0, 0\) for variable 0. A row is .* transposed"),
        ((squares, 2, 4, "legendre"), {"bounds": ((0, 1), (3, 2))}, ValueError,
         r"bounds must .* got \(3, 2\) for variable 1"),
        ((squares, 2, 4, "legendre"), {"bounds": (1, 0)}, ValueError, r"bounds must .* got \(1, 0\) for variable 0"),
        ((squares, 3, 4), {"dtype": "int32"}, ValueError, "dtype must be float32 or float64"),
        ((lambda q, xp: "text", 3, 4), {}, TypeError, "f must return numbers; got a str"),
        ((lambda q, xp: np.ones(3), 2, 4), {}, ValueError, "f must return one number for each point"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(arguments, options, error, text):
    with pytest.raises(error, match=f"gauss: {text}"):
        gauss(*arguments, **options)


def test_the_innermost_operations_are_packed():
    """The machine code of qTq multiplies and adds whole registers only."""
    graph = traced(squares, 6, NO_PARAMETERS, None, np.dtype(np.float64))
    source = quadrature_generated.source(graph, quadrature_generated.shape_of(6, 4, "float64"))
    kept = quadrature_generated.load_module(source).block
    block = numba.njit(error_model="numpy", nogil=True)(kept.py_func)  # code from the disk cannot be read
    nodes = np.ones(4)
    block(0, nodes, np.ones(32), nodes, np.ones(16), np.zeros((0, 1)), np.zeros(1 << 12))
    (code,) = block.inspect_asm().values()
    lines = [line for line in code.split("\n") if "fmadd" in line]
    packed = [line for line in lines if "pd\t" in line or "pd " in line]
    assert len(packed) > len(lines) // 2


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("dim, n", [(15, 4), (3, 20)])
def test_cuda_source_compiles(dtype, dim, n):
    library = nvrtc.library()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    graph = traced(mixed, dim, NO_PARAMETERS, None, np.dtype(dtype))
    nodes, weights = (part.astype(dtype) for part in hermite(n))
    assert nvrtc.compiled(library, quadrature_launch.source(graph, dim, nodes, weights), *OPTIONS)


@pytest.mark.cuda
def test_a_device_gives_the_sums_of_the_cpu():
    for f, dim, n in ((squares, 15, 4), (mixed, 4, 9), (mixed, 1, 70)):
        got = gauss(f, dim, n, backend="cupy")
        np.testing.assert_allclose(got, gauss(f, dim, n), rtol=1e-12)


@pytest.mark.parametrize("name", ["exp", "cos", "sin"])
def test_functions_of_any_argument_are_those_of_the_library(name, backend):
    """Ordinary arguments by polynomials, others by the library; each beside ordinary ones."""
    arguments = np.array([0.3, 40.0, -40.0, 707.0, -707.5, -720.0, -1e300, 3e6, -3e6, 1e22, 709.5, 800.0,
                          math.nan, -math.nan, math.inf, -math.inf])  # fmt: skip

    def f(q, p, xp):
        return getattr(xp, name)(xp.where(q[0] > 1.0, p[0], q[0]))  # one of three nodes

    nodes, weights = hermite(3)
    found = gauss(f, 2, 3, p=en.Ensemble(arguments[None]), backend=backend)
    with np.errstate(all="ignore"):
        x = np.where(nodes[:, None] > 1.0, arguments, nodes[:, None])
        np.testing.assert_allclose(found.samples, weights @ getattr(np, name)(x), rtol=4e-15, atol=1e-15)


@pytest.mark.parametrize(
    "f, text",
    [
        (lambda q, xp: 1j * q[0], "f must return real numbers; got dtype complex128. Return its real"),
        (lambda q, xp: (q[0], 1j), "f must return numbers; got a complex. Return its real"),
        (lambda q, xp: (), "f must return a number or some; got an empty tuple"),
        (lambda q, xp: None, "f must return numbers; got None"),
        (3.0, "f must be a function; got a float"),
    ],
)
@pytest.mark.parametrize("options", [{"n_nodes": 3}, {"kind": "sparse", "level": 1}], ids=str)
def test_what_an_integrand_returns_is_checked(f, text, options):
    with pytest.raises(TypeError, match=f"gauss: {text}"):
        gauss(f, 1, **options)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"p": [1j]}, "p must hold real numbers; got dtype complex128"),
        ({"p": ["a"]}, "p must hold real numbers"),
        ({"p": [None]}, "p must hold real numbers; got dtype object"),
        ({"bounds": [0, 1j]}, "bounds must hold real numbers; got dtype complex128"),
        ({"bounds": "ab"}, "bounds must hold real numbers"),
        ({"bounds": en.Ensemble(np.ones((2, 3)))}, "bounds must be the same for all samples; got an Ensemble"),
    ],
    ids=str,
)
def test_parameters_and_limits_are_real(options, text):
    with pytest.raises(TypeError, match=f"gauss: {text}"):
        gauss(lambda q, *rest: q[0], 1, 3, "legendre", **options)


@pytest.mark.parametrize("name", ["p", "bounds"])
def test_masked_entries_are_refused(name):
    given = {name: np.ma.masked_array([0.0, 1.0], [True, False])}
    with pytest.raises(ValueError, match=f"gauss: {name} must have no masked entries; got 1 of 2 masked"):
        gauss(lambda q, *rest: q[0], 1, 3, "legendre", **given)


@pytest.mark.parametrize("f", [lambda q, p, xp: p[0] * q[0] ** 2, lambda q, p, xp: p[0] * np.asarray(q[0]) ** 2])
def test_integrals_have_the_sample_set_of_their_parameters(f):
    samples = en.SampleSet.monte_carlo(3, 1, seed=20371)
    result = gauss(f, 1, 3, p=en.Ensemble(np.array([[1.0, np.nan, 2.0]]), samples))
    assert result.sample_set is samples
    np.testing.assert_allclose(result.samples, [1.0, np.nan, 2.0], rtol=1e-14)
