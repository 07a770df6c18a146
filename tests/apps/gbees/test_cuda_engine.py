"""The CUDA engine where no GPU is: NVRTC compiles its kernels, and g++ runs them, a thread for a thread."""

import argparse
import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest

from ensemble._compile import device
from ensemble._kernels.gbees import gbees_launch
from ensemble.apps.gbees.engines import cuda as cuda_engine
from ensemble.apps.gbees.engines import cuda_grid
from ensemble.apps.gbees.engines.array import ArrayEngine
from ensemble.apps.gbees.engines.cuda import CudaEngine
from ensemble.apps.gbees.engines.keys import Packing
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.mixing import mixing_of
from ensemble.apps.gbees.problem import Drift, Problem
from ensemble.apps.gbees.systems.lorenz import lorenz63, lorenz96
from tests import cuda_on_cpu, nvrtc
from tests.apps.gbees.references import assert_same, distance, reference, run_lorenz63, start
from tests.conftest import examples


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    """Launch the kernels on this machine's processor, with NumPy's arrays in the role of the device's."""
    if cuda_on_cpu.COMPILER is None:
        pytest.skip("no g++")
    monkeypatch.setattr(device, "raw_module", functools.partial(cuda_on_cpu.Module, level="-O1"))  # millions of steps
    monkeypatch.setattr(device, "multiprocessors", lambda: 1)
    monkeypatch.setattr(device, "device_array", lambda values: np.array(values))
    # what nobody has written must not matter
    monkeypatch.setattr(device, "device_empty", lambda shape, dtype: np.full(shape, 77, dtype))
    monkeypatch.setattr(cuda_engine, "CLUSTER_THREADS", 64)
    monkeypatch.setattr(cuda_engine, "GRID_THREADS", 64)
    monkeypatch.setattr(cuda_engine, "GRID_BLOCKS", {4: 1, 8: 1})
    monkeypatch.setattr(cuda_engine, "SINGLE_GRID_THREADS", 64)
    monkeypatch.setattr(cuda_engine, "SINGLE_GRID_BLOCKS", 1)
    monkeypatch.setattr(device, "release_device_memory", lambda: None)
    gbees_launch.kernels.cache_clear()
    yield
    gbees_launch.kernels.cache_clear()


WAYS = ["small", "large", "large, put in order"]
QUICK = {("small", "single precision"), ("small", "parallel"), ("large", "single precision")}
"""With each rule or precision one way always, and all of them with the plain run."""


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """The ways that grids of different sizes go."""
    if request.param != "small":
        monkeypatch.setattr(cuda_engine, "SMALL", 0)
    if request.param == "large, put in order":
        monkeypatch.setattr(cuda_grid, "PRUNE_LIMIT", 0)


def same_bits(one, other):
    for a, b in zip(one.cells(), other.cells(), strict=True):
        np.testing.assert_array_equal(a, b)


# --- the public program's runs
def test_lorenz63_step_for_step(way):
    done = None
    for run, data, record, done in run_lorenz63(CudaEngine):  # noqa: B007
        assert_same(run, data, record, rtol=1e-11)
    assert done == (963, 6_512_143)


OTHER_RULES = {"single precision": ({"dtype": np.float32}, 1e-6), "parallel": ({"prune": "parallel"}, 2e-5)}
WAYS_OF_RULES = [
    pytest.param(way, rule, marks=[] if (way, rule) in QUICK else pytest.mark.slow)
    for way in WAYS
    for rule in OTHER_RULES
]


@pytest.mark.parametrize("way, rule", WAYS_OF_RULES, indirect=["way"])
def test_lorenz63_in_single_precision_and_with_the_parallel_rule(way, rule):
    options, bound = OTHER_RULES[rule]
    for run, data, record, _ in itertools.islice(run_lorenz63(CudaEngine, **options), examples(10)):
        assert distance(run, data, record) < bound


@pytest.mark.slow
def test_lorenz96_in_six_dimensions():
    problem, indices, p = start("l96_short")
    data, run = reference("l96_short"), CudaEngine(problem, indices, p)
    taken = [run.advance(0.0, 0.1), run.advance(0.1, 0.1)]
    assert_same(run, data, "P0_pdf_2", rtol=1e-11)
    assert sum(len(part) for part in taken) == 35
    assert sum(int(part.cells.sum()) for part in taken) == 3_096_283


# --- against the Array API engine, option by option
def pendulum(x, t, xp, damping, push):
    return x[1], -xp.sin(x[0]) - damping * x[1] + push * xp.cos(3.0 * t)


def blob(problem, half=4, sigma=1.5):
    """A Gaussian on the cells about the origin."""
    axes = [np.arange(-half, half + 1)] * problem.n
    indices = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, problem.n)
    p = np.exp(-0.5 * np.sum((indices / sigma) ** 2, axis=1))
    return problem, indices, p / p.sum()


def swing(**options):
    drift = Drift(pendulum, (0.2, 0.3 if options.get("time_varying") else 0.0), ("damping", "push"))
    drift = options.pop("drift", drift)
    return Problem(drift, np.array([0.3, 0.1]), np.array([2 * np.pi / 48, 0.2]), 1e-6, prune_every=7, **options)


TURN = np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])

TABLE = np.array([-1.0, -0.2, 0.1, 0.5, 2.0]), np.array([0.3, 0.4, 0.2, -0.9, -0.5])
NOISE = np.array([[0.01, 0.012], [0.012, 0.03]])

VARIANTS = {
    "plain": {},
    "time_varying": {"time_varying": True},
    "rotated": {"rotation": TURN},
    "periodic": {"periods": (48, None), "time_varying": True},
    "diffusive": {"diffusion": np.array([0.01, 0.03])},
    "diffusive_rotated": {"diffusion": np.array([0.0, 0.03]), "rotation": TURN},
    "mixing": {"diffusion": np.array([0.01, 0.03]), "mixing": mixing_of(NOISE, np.array([2 * np.pi / 48, 0.2]))},
    "second_order": {"time_order": 2},
    "second_order_in_all": {"time_order": 2, "time_varying": True, "diffusion": np.array([0.01, 0.03])},
    "tables": {
        "drift": Drift(lambda x, t, xp: (x[1], xp.interp(x[0], *TABLE))),
        "bounds": lambda x, xp: xp.interp(x[0], *TABLE) + x[1],
        "bounds_range": (-3.0, 2.0),
    },
    "bounded": {"bounds": lambda x, xp: 0.5 * x[1] ** 2 - xp.cos(x[0]), "bounds_range": (-1.1, 0.3)},
    "cfl": {"cfl": 0.6},
    "parallel": {"prune": "parallel"},
    **{limiter: {"limiter": limiter} for limiter in ("superbee", "van_leer", "minmod", "none")},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_option_gives_the_cells_of_the_array_engine(variant):
    made = blob(swing(**dict(VARIANTS[variant])))
    got, expected = CudaEngine(*made, 0.25), ArrayEngine(*made, 0.25)
    for time in (0.25, 0.85):
        steps, wanted = got.advance(time, 0.6), expected.advance(time, 0.6)
        np.testing.assert_allclose(steps.lengths, wanted.lengths, rtol=1e-13)
        np.testing.assert_array_equal(steps.cells, wanted.cells)
        np.testing.assert_allclose(steps.masses, wanted.masses, rtol=1e-13)
        np.testing.assert_array_equal(got.cells()[0], expected.cells()[0])
        np.testing.assert_allclose(got.cells()[1], expected.cells()[1], rtol=1e-11, atol=1e-18)
        assert (got.count, got.velocity_time) == (expected.count, pytest.approx(expected.velocity_time, rel=1e-13))
    weights = -0.5 * (got.cells()[0][:, 1] * 0.2 - 0.1) ** 2
    assert got.reweight(weights) == pytest.approx(expected.reweight(weights), rel=1e-12)
    np.testing.assert_array_equal(got.cells()[0], expected.cells()[0])
    np.testing.assert_allclose(got.cells()[1], expected.cells()[1], rtol=1e-11, atol=1e-18)


# --- what no bit may depend on
def lorenz_start(**options):
    problem, indices, p = start("l63_p5e-6", **options)
    return problem, indices, p


def test_bits_depend_neither_on_threads_nor_on_pauses(monkeypatch):
    """Threads decide in which order cells are appended, pauses where the host steps in."""
    plain = CudaEngine(*lorenz_start())
    plain.advance(0.0, 0.1)
    for threads in (32, 128):
        monkeypatch.setattr(cuda_engine, "SINGLE_GRID_THREADS", threads)
        run = CudaEngine(*lorenz_start())
        run.advance(0.0, 0.1)
        same_bits(run, plain)
    monkeypatch.setattr(cuda_engine, "MAX_CELL_STEPS", 5000)
    seen = []
    run = CudaEngine(*lorenz_start())
    run.advance(0.0, 0.1, lambda *told: seen.append(told))
    same_bits(run, plain)
    assert len(seen) > 10 and seen[-1] == (0.1, run.n_cells, int(run.taken.cells.sum()))


class StoppedError(Exception):
    """Somebody had enough."""


def test_a_run_cut_short_goes_on_to_the_bit_also_in_another_engine(monkeypatch):
    problem, indices, p = lorenz_start()
    plain = CudaEngine(problem, indices, p)
    plain.advance(0.0, 0.1)
    monkeypatch.setattr(cuda_engine, "MAX_CELL_STEPS", 5000)
    run = CudaEngine(problem, indices, p)

    def stop(elapsed, n_cells, cell_steps):
        if elapsed > 0.03:
            raise StoppedError

    with pytest.raises(StoppedError):
        run.advance(0.0, 0.1, stop)
    gone = 0.0
    for length in run.taken.lengths:
        gone += float(length)
    other = CudaEngine(problem, *run.cells(), run.velocity_time)
    other.count = run.count
    for engine in (run, other):
        engine.advance(0.0, 0.1, None, gone)
        same_bits(engine, plain)


def test_each_step_is_reported_where_that_is_asked_for():
    plain, watched = (CudaEngine(*lorenz_start()) for _ in range(2))
    plain.advance(0.0, 0.02)
    watched.report_each_step, seen = True, []
    watched.advance(0.0, 0.02, lambda elapsed, cells, work: seen.append((elapsed, cells)))
    assert len(plain.taken) > 3
    np.testing.assert_allclose([elapsed for elapsed, _ in seen], np.cumsum(plain.taken.lengths), rtol=1e-12)
    same_bits(plain, watched)


def test_too_little_room_only_costs_time(monkeypatch):
    plain = CudaEngine(*lorenz_start())
    plain.advance(0.0, 0.1)
    monkeypatch.setattr(CudaEngine, "_reserve", lambda self, n: self.grid.reserve(n + 16))
    narrow = CudaEngine(*lorenz_start())
    capacity = narrow.grid.capacity
    narrow.advance(0.0, 0.1)
    assert narrow.grid.capacity > capacity
    same_bits(narrow, plain)


def test_keys_are_packed_anew_at_the_rim(monkeypatch, way):
    plain = CudaEngine(*lorenz_start())
    plain.advance(0.0, 0.15)
    around = Packing.around.__func__

    def narrow(cls, lowest, highest, periods):
        """No spare bits."""
        packing = around(cls, lowest, highest, periods)
        bits = tuple((high - low + 2).bit_length() for low, high in zip(lowest, highest, strict=True))
        return cls(tuple(low - 1 for low in lowest), bits, packing.periods)

    monkeypatch.setattr(Packing, "around", classmethod(narrow))
    run = CudaEngine(*lorenz_start())
    bits = run.grid.packing.bits
    run.advance(0.0, 0.15)
    assert sum(run.grid.packing.bits) > sum(bits)
    same_bits(run, plain)


def test_many_boundary_cases_of_a_sequential_prune_go_to_the_host(monkeypatch):
    plain = CudaEngine(*lorenz_start())
    plain.advance(0.0, 0.1)
    monkeypatch.setattr(cuda_grid, "LIST", 0)
    run = CudaEngine(*lorenz_start())
    run.advance(0.0, 0.1)
    same_bits(run, plain)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_grid_among_others_is_its_own_run(dtype):
    problem, indices, p = lorenz_start(dtype=dtype)
    problems = [replace(problem, drift=lorenz63.with_parameters(r=r)) for r in (44.0, 48.0, 51.0)]
    together, alone = ([CudaEngine(each, indices, p) for each in problems] for _ in range(2))
    spans = [0.05, 0.1, 0.0]
    assert CudaEngine.advance_many(together, [0.0] * 3, spans) == [None] * 3
    for engine, span, other in zip(alone, spans, together, strict=True):
        engine.advance(0.0, span)
        same_bits(engine, other)
        np.testing.assert_array_equal(engine.taken.lengths, other.taken.lengths)


def test_grids_of_different_kinds_go_together():
    made = [lorenz_start(), blob(swing()), lorenz_start(dtype=np.float32)]
    together, alone = ([CudaEngine(*each) for each in made] for _ in range(2))
    CudaEngine.advance_many(together, [0.0] * 3, [0.05, 0.5, 0.05])
    for engine, span, other in zip(alone, (0.05, 0.5, 0.05), together, strict=True):
        engine.advance(0.0, span)
        same_bits(engine, other)


# --- errors, and what they leave behind
def pole(x, t, xp):
    return 1.0 + 0.0 * x[0], 1.0 / xp.maximum(1.0 - x[0], 0.0)


def near_a_pole():
    return blob(Problem(Drift(pole), np.zeros(2), np.array([0.1, 0.1]), 1e-6), half=2)


def test_a_drift_that_is_not_finite_is_named_and_the_grid_stays():
    problem, indices, p = near_a_pole()
    run, twin = CudaEngine(problem, indices, p), CudaEngine(problem, indices, p)
    message = r"drift must be finite; got -?inf in component 1 at x = \(1, .*\), t = 0\."
    with pytest.raises(GridError, match=message):
        run.advance(0.0, 5.0)
    assert len(run.taken) > 0
    elapsed = float(run.taken.lengths.sum())
    indices, p = run.cells()
    assert indices[:, 0].max() < 11 and p.sum() == pytest.approx(1.0, rel=1e-12)
    twin.advance(0.0, elapsed - 1e-9)  # the last step is as good as whole, and none comes after it
    np.testing.assert_allclose(run.taken.lengths, twin.taken.lengths, rtol=1e-6)
    with pytest.raises(GridError, match="drift must be finite"):
        run.advance(elapsed, 5.0)
    with pytest.raises(GridError, match="drift must be finite"):
        CudaEngine(replace(problem, origin=np.array([1.0, 0.0])), indices, p)


def test_a_failing_grid_stops_no_other():
    failing, fine, alone = CudaEngine(*near_a_pole()), CudaEngine(*lorenz_start()), CudaEngine(*lorenz_start())
    failure, nothing = CudaEngine.advance_many([failing, fine], [0.0, 0.0], [5.0, 0.1])
    assert isinstance(failure, GridError) and "drift must be finite" in str(failure) and nothing is None
    alone.advance(0.0, 0.1)
    same_bits(fine, alone)


def test_a_grid_that_outgrows_the_memory_says_so_and_stays():
    limit = 7000 * cuda_grid.bytes_per_cell(3, 8)
    run = CudaEngine(*lorenz_start(memory_limit=limit))
    with pytest.raises(MemoryError, match=r"the grid must fit .* GB; got [\d,]+ cells of about 72 bytes"):
        run.advance(0.0, 1.0)
    twin = CudaEngine(*lorenz_start())
    steps = len(run.taken)
    twin.advance(0.0, float(np.sum(run.taken.lengths)))
    assert steps > 100
    np.testing.assert_allclose(run.taken.lengths, twin.taken.lengths[:steps], rtol=1e-12)
    assert run.n_cells < 7000 and run.cells()[1].sum() == pytest.approx(1.0, rel=1e-12)


def test_an_impossible_measurement_leaves_the_grid():
    run, twin = CudaEngine(*lorenz_start()), CudaEngine(*lorenz_start())
    for weights, message in ((-np.inf, "above zero somewhere"), (np.nan, "a number in every cell")):
        with pytest.raises(GridError, match=f"the likelihood must be {message}"):
            run.reweight(np.full(run.n_cells, weights))
        same_bits(run, twin)


def test_a_threshold_that_no_cell_reaches_leaves_the_grid(way):
    problem, indices, p = lorenz_start()
    run = CudaEngine(replace(problem, threshold=0.9, prune="parallel"), indices, p)
    with pytest.raises(GridError, match="threshold must leave some cells"):
        run.advance(0.0, 0.5)
    assert run.n_cells == 2197 and run.cells()[1].sum() == pytest.approx(1.0, rel=1e-12)


# --- NVRTC
@pytest.fixture(scope="module")
def compiler():
    library = nvrtc.library()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    return library


@pytest.fixture
def compiled(compiler, monkeypatch):
    """The CUBIN of a problem's kernels."""
    given = []

    def module(text, options, instances):
        given.append(nvrtc.compiled(compiler, text, *options, instances=instances))
        return argparse.Namespace(get_function=lambda name: name)

    monkeypatch.setattr(device, "raw_module", module)

    def of(problem, cluster, small=True):
        gbees_launch.kernels.cache_clear()
        cuda_engine._kernels(problem, cluster, small)
        return given.pop()

    return of


SIZES = [
    (2, np.float64, 0), (6, np.float32, 0), (3, np.float32, 8), (3, np.float64, 1),
    *(pytest.param(n, np.float64, 0, marks=pytest.mark.slow) for n in (3, 4, 5, 6)),
]  # fmt: skip


@pytest.mark.parametrize("n, dtype, cluster", SIZES)
def test_nvrtc_compiles_every_dimension(compiled, n, dtype, cluster):
    drift = {2: Drift(pendulum, (0.2, 0.0)), 3: lorenz63}.get(n, lorenz96(4.0))
    problem = Problem(drift, np.zeros(n), np.ones(n), 1e-6, dtype=dtype)
    assert compiled(problem, cluster, small=False)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["time_varying", "rotated", "periodic", "mixing", "tables"])
def test_nvrtc_compiles_every_option(compiled, variant):
    assert compiled(swing(**VARIANTS[variant]), 8)
