"""Noise from a counter, and the methods of stochastic systems."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import Ensemble, SampleSet, ode
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.tracer import trace
from ensemble.ode.methods.runge_kutta import RK4
from ensemble.ode.methods.stochastic import EULER_MARUYAMA, MILSTEIN, StochasticSystem
from ensemble.ode.noise import noise_numbers, normals, philox
from ensemble.ode.system import System
from tests.bodies import F32, F64

METHODS = {"euler-maruyama": EULER_MARUYAMA, "milstein": MILSTEIN}


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_the_bits_are_those_that_the_authors_of_philox_publish(counter, key, words):
    arrays = [np.array([value], dtype=np.int64) for value in (*counter, *key)]
    assert [int(word[0]) for word in philox(arrays[:4], arrays[4:])] == words


def drawn(n_samples, n_steps, count, seed=1, dtype="float64"):
    numbers = noise_numbers(np.arange(n_samples), seed, dtype)
    return np.array([normals(np.full(n_samples, k, dtype), numbers, count, np) for k in range(n_steps)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_numbers_are_normal_and_independent(dtype):
    z = drawn(2000, 5, 3, dtype=dtype)
    assert z.dtype == dtype and z.shape == (5, 3, 2000)
    assert stats.kstest(z.ravel(), "norm").pvalue > 0.01
    flat = z.reshape(15, -1).astype(np.float64)
    correlations = np.corrcoef(flat) - np.eye(15)
    assert np.abs(correlations).max() < 4.5 / math.sqrt(2000)
    assert abs(np.corrcoef(flat[:, 1:].ravel(), flat[:, :-1].ravel())[0, 1]) < 4.5 / math.sqrt(30000)


def test_the_noise_of_a_sample_depends_on_its_number_and_the_seed_alone():
    z = drawn(10, 3, 2)
    numbers = noise_numbers(np.array([7]), 1, "float64")
    assert np.array_equal(normals(np.array([2.0]), numbers, 2, np), z[2, :, 7:8])
    assert not np.isclose(drawn(10, 3, 2, seed=2), z).any()
    large = noise_numbers(np.array([3 + (5 << 24)]), (9 << 24) + 4, "float32")
    assert large[:, 0].tolist() == [3.0, 5.0, 4.0, 9.0]
    far = noise_numbers(np.array([7 + (1 << 24)]), 1, "float64")
    assert not np.isclose(normals(np.array([2.0]), far, 2, np), z[2, :, 7:8]).any()
    with pytest.raises(ValueError, match="seed must be less than"):
        noise_numbers(np.arange(3), 1 << 48, "float64")


@pytest.mark.parametrize("real", [F32, F64])
def test_traced_noise_is_that_of_arrays(real):
    graph = trace(lambda step, *numbers: normals(step, numbers, 3, step.__array_namespace__()), *[real] * 5)
    numbers = noise_numbers(np.arange(50), 3, real.dtype)
    step = np.full(50, 4, real.dtype)
    assert np.array_equal(replay(graph, [step, *numbers], np), normals(step, numbers, 3, np))


# --- methods
def growth(t, y, p, xp):
    return [p[0] * y[0], 0.3 * xp.cos(t) - y[1]]


def volatility(t, y, p, xp):
    return [p[1] * y[0], 0.5]


def paths(method, n_samples, n_steps, seed=5):
    """Both unknowns at t = 1, and the values of the first Brownian motion there."""
    p = [0.5, 0.8, *noise_numbers(np.arange(n_samples), seed, "float64")]
    system = StochasticSystem(growth, volatility, 2, len(p), np)
    ones = np.ones(n_samples)
    y, h, w = [ones, ones], ones / n_steps, 0.0 * ones
    carried = method.start(system, 0.0 * ones, y, p)
    for k in range(n_steps):
        w = w + np.sqrt(h) * normals(carried[0], p[2:], 2, np)[0]
        step = method.step(system, k * h, h, y, carried, p)
        y, carried = step.y, step.carried
    return y, w


@pytest.mark.parametrize(("name", "order"), [("euler-maruyama", 0.5), ("milstein", 1.0)])
def test_the_strong_order(name, order):
    """Geometric Brownian motion: ``y = exp((mu - sigma**2 / 2) t + sigma W)``."""
    errors = []
    for n_steps in (16, 64, 256):
        y, w = paths(METHODS[name], 3000, n_steps)
        errors.append(np.abs(y[0] - np.exp(0.5 - 0.32 + 0.8 * w)).mean())
    slopes = np.log(np.array(errors[:-1]) / errors[1:]) / math.log(4.0)
    assert np.abs(slopes - order).max() < 0.12


def test_additive_noise_has_the_moments_of_the_process_of_ornstein_and_uhlenbeck():
    (_, y), _ = paths(EULER_MARUYAMA, 20000, 200)
    mean = math.exp(-1.0) + 0.15 * (math.cos(1.0) + math.sin(1.0) - math.exp(-1.0))
    variance = 0.125 * (1.0 - math.exp(-2.0))
    assert abs(y.mean() - mean) < 4.0 * math.sqrt(variance / 20000) + 2e-3
    assert abs(y.var() / variance - 1.0) < 0.06


@pytest.mark.parametrize("name", METHODS)
def test_a_traced_step_is_the_step_on_arrays(name):
    method, k = METHODS[name], 6
    system = StochasticSystem(growth, volatility, 2, k, None).traced()

    def body(t, h, y, carried, p):
        step = method.step(system.bound(t.__array_namespace__()), t, h, y, carried, p)
        return [*step.y, *step.carried]

    graph = trace(body, F64, F64, [F64] * 2, [F64], [F64] * k)
    rng = np.random.default_rng(0)
    t, h, y, count = rng.random(5), rng.random(5), rng.random((2, 5)), np.arange(5.0)
    p = [*rng.random((2, 5)), *noise_numbers(np.arange(5), 8, "float64")]
    bound = StochasticSystem(growth, volatility, 2, k, np)
    step = method.step(bound, t, h, list(y), [count], p)
    assert np.array_equal(replay(graph, [t, h, *y, count, *p], np), [*step.y, *step.carried])


def test_a_system_without_noise_is_refused():
    with pytest.raises(TypeError, match="must have a diffusion"):
        MILSTEIN.check(System(growth, 2, 6, np))
    RK4.check(System(growth, 2, 6, np))


# --- solve
def one_dimensional(t, y, p, xp):
    return [p[0] * y[0]]


def solved(n_samples=40, sample_set=None, **options):
    start = Ensemble(np.full((1, n_samples), 1.5), sample_set)
    options = {"method": "milstein", "noise": lambda t, y, p, xp: [p[1] * y[0]], "seed": 5, "step": 1 / 64} | options
    return ode.solve(one_dimensional, start, (0.0, 1.0), p=[0.5, 0.8], **options)


def test_the_compiled_loop_integrates_the_paths_of_the_steps():
    result = solved()
    p = [0.5, 0.8, *noise_numbers(np.arange(40), 5, "float64")]
    system = StochasticSystem(one_dimensional, lambda t, y, p, xp: [p[1] * y[0]], 1, 6, np)
    h = np.full(40, 1 / 64)
    y, carried = [np.full(40, 1.5)], [np.zeros(40)]
    for k in range(64):
        y, carried, *_ = MILSTEIN.step(system, k * h, h, y, carried, p)
    assert np.allclose(result.y.samples, y[0], rtol=1e-12)
    assert np.unique(result.y.samples).size == 40


def test_a_sample_has_its_noise_in_any_ensemble():
    whole, part = solved(), solved(3, noise_samples=[7, 0, 39])
    assert np.array_equal(part.y.samples, whole.y.samples[:, [7, 0, 39]])
    assert not np.isclose(solved(seed=6).y.samples, whole.y.samples).any()


def test_a_sample_has_the_noise_of_its_id():
    """The groups of a set of samples are the parts of one ensemble."""
    samples = SampleSet.monte_carlo(40, 1, seed=1)
    whole = solved()
    for group in samples.groups(16):
        part = solved(len(group), group)
        assert np.array_equal(part.y.samples, whole.y.samples[:, group.ids])


def test_another_diffusion_is_another_loop():
    def additive(t, y, p, xp):
        return [p[1]]

    y = solved(method="euler-maruyama", noise=additive).y.samples
    same = solved(method="milstein", noise=additive).y.samples
    assert np.allclose(y, same, rtol=1e-13)
    other = solved(method="euler-maruyama").y.samples
    assert not np.isclose(y, other, rtol=1e-3).all()


def test_events_and_output_times_of_a_path():
    def above(t, y, p, xp):
        assert len(p) == 2
        return y[0] - 2.0

    result = solved(events=above, t_eval=[0.5, 1.0])
    y, first = result.y.samples[:, 0], result.t_events[0].samples[0]
    assert (result.n_events[0] > 0)[y[1] > 2.0].all()
    assert ((first >= 0.0) & (first <= 1.0))[result.n_events[0] > 0].all()


@pytest.mark.parametrize("part", [0, 1])
def test_functions_that_cannot_be_traced_give_the_same_paths(part):
    functions = [one_dimensional, lambda t, y, p, xp: [p[1] * y[0]]]
    expected = solved(5, method="euler-maruyama", noise=functions[1], t_eval=[0.3, 1.0])
    traceable = functions[part]
    functions[part] = lambda t, y, p, xp: np.array(traceable(t, y, p, xp))
    start = Ensemble(np.full((1, 5), 1.5))
    options = {"method": "euler-maruyama", "noise": functions[1], "seed": 5, "step": 1 / 64, "t_eval": [0.3, 1.0]}
    found = ode.solve(functions[0], start, (0.0, 1.0), p=[0.5, 0.8], **options)
    np.testing.assert_allclose(found.y.samples, expected.y.samples, rtol=1e-13)


def test_wrong_arguments_of_noise_are_clear_errors():
    with pytest.raises(ValueError, match="noise must be a function for a stochastic method"):
        solved(noise=None)
    with pytest.raises(ValueError, match="noise must be a function for a stochastic method"):
        solved(method="rk4")
    with pytest.raises(ValueError, match=r"noise_samples must have shape \(40,\)"):
        solved(noise_samples=[1, 2])
    with pytest.raises(ValueError, match=r"noise\(t, y, p, xp\) must return 1 values; got 2"):
        solved(noise=lambda t, y, p, xp: [1.0, 2.0])
    with pytest.raises(ValueError, match="noise_samples must be an array of integers"):
        solved(noise_samples=np.full(40, -1))
    with pytest.raises(ValueError, match="noise_samples must have no masked entries; got 1 of 40"):
        solved(noise_samples=np.ma.masked_array(np.arange(40), np.arange(40) == 3))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", METHODS)
def test_a_device_has_the_noise_of_the_cpu(method, dtype):
    """The words are equal, so the paths agree to the rounding of logarithm, sine and cosine."""
    cupy = pytest.importorskip("cupy")

    def unit(t, y, p, xp):
        return [1.0 + 0.0 * y[0], 0.1 * y[1]]

    def still(t, y, p, xp):
        return [0.0 * y[0], 0.5 * y[1]]

    start = np.zeros((2, 5000), dtype) + np.array([[0.0], [1.0]], dtype)
    options = {"method": method, "step": 0.25, "noise": unit, "seed": (9 << 24) + 4}
    expected = ode.solve(still, Ensemble(start), (0.0, 1.0), **options).y.samples
    made = ode.solve(still, Ensemble(cupy.asarray(start)), (0.0, 1.0), **options).y.samples.get()
    tolerance = 64 * float(np.finfo(dtype).eps)
    assert np.allclose(made, expected, rtol=tolerance, atol=tolerance)
    assert stats.kstest(made[0].astype(np.float64), "norm").pvalue > 0.01


# --- models of studies
def walk_of(x, **options):
    made = ode.solve(
        lambda t, y, p, xp: [0.0 * y[0]], [x.start], (0.0, 1.0), method="euler-maruyama", step=0.25,
        noise=lambda t, y, p, xp: [1.0], seed=20731, **options,
    )  # fmt: skip
    return {"y": made.y[0]}


def plain_walk_of(x):
    return {"y": walk_of(x)["y"].samples[0]}


@pytest.mark.parametrize("model", [walk_of, en.vectorize(plain_walk_of)], ids=["ensembles", "plain"])
@pytest.mark.parametrize("ensemble_size", [4, 16])
def test_the_noise_of_a_study_belongs_to_its_samples(model, ensemble_size):
    inputs = en.Inputs(start=stats.uniform())
    x = inputs.samples(16, seed=3)
    found = en.propagate(model, inputs, 16, seed=3, ensemble_size=ensemble_size, progress=False).samples("y").samples
    assert np.array_equal(found, walk_of(x)["y"].samples)
    assert np.unique(found - x.start.samples).size == 16


@pytest.mark.parametrize("ensemble_size", [1, 3, 8, 16])
def test_samples_whose_arguments_are_shared_have_noise_of_their_own_in_a_study(ensemble_size):
    def model(x):
        return {"y": walk_of(SimpleNamespace(start=0.0))["y"] + 0.0 * x.start}

    inputs = en.Inputs(start=stats.uniform())
    found = en.propagate(model, inputs, 16, seed=3, ensemble_size=ensemble_size, progress=False).samples("y").samples
    ids = np.arange(16)
    alone = [walk_of(SimpleNamespace(start=Ensemble(np.zeros(1))), noise_samples=[i])["y"].samples[0] for i in ids]
    together = walk_of(SimpleNamespace(start=0.0), noise_samples=ids)["y"].samples
    assert np.array_equal(found, alone) and np.array_equal(together, alone) and np.unique(found).size == 16


def test_noise_for_other_samples_than_those_of_the_model_names_them():
    def model(x):
        return {"y": walk_of(SimpleNamespace(start=Ensemble(np.zeros(3))))["y"][..., None] + x.start}

    inputs = en.Inputs(start=stats.uniform())
    text = r"noise_samples must be given in a model of a study .* its 8; got none for 3 samples"
    with pytest.raises(ValueError, match=text):
        en.propagate(model, inputs, 16, seed=3, ensemble_size=8, on_failure="raise", progress=False)
