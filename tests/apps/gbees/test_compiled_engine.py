"""The compiled engine against the Array API engine, which is its definition, and its own promises."""

import numba
import numpy as np
import pytest
from numba.core import event

from ensemble import Ensemble
from ensemble._compile.numba import compiled_serial
from ensemble._kernels.gbees import grid as kernels
from ensemble.apps.gbees import Gbees, lorenz96
from ensemble.apps.gbees.engines import cpu as compiled_engine
from ensemble.apps.gbees.engines.array import ArrayEngine
from ensemble.apps.gbees.engines.cpu import CompiledEngine
from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.mixing import mixing_of
from ensemble.apps.gbees.problem import Drift
from tests.apps.gbees.grids import boxed, normal


def spiral(x, t, xp, rate):
    """In any number of dimensions: each turns into the next, and all are drawn inwards."""
    n = len(x)
    return [rate * (x[(i + 1) % n] - 0.3 * x[i - 1]) - 0.4 * x[i] * x[i] * x[i] for i in range(n)]


def driven(x, t, xp, rate):
    """Depends on time, and changes sign in space and time."""
    return [xp.cos(3.0 * t) * rate - 0.5 * x[1], xp.sin(x[0]) + 0.2 * rate]


def case(n, drift=spiral, half=3, rate=1.5, threshold=1e-6, **options):
    width = 0.2 + 0.05 * np.arange(n)
    density = normal(np.full(n, 0.35), np.diag((2.0 * width) ** 2))
    drift = Drift(drift, (rate,), ("rate",))
    return boxed(drift, np.full(n, 0.4), width, half, density, threshold=threshold, **options)


def noise(Q):
    """Correlated noise on the cells of `case`."""
    Q = np.array(Q)
    return {"diffusion": np.diag(Q).copy(), "mixing": mixing_of(Q, 0.2 + 0.05 * np.arange(len(Q)))}


TABLE = np.array([-1.0, -0.2, 0.1, 0.5, 2.0]), np.array([0.3, -0.4, 0.2, 0.9, -0.5])
turned = np.linalg.qr(np.random.default_rng(3).standard_normal((2, 2)))[0]
CASES = {
    "one dimension": case(1, half=6),
    "two dimensions": case(2),
    "three dimensions": case(3),
    "eight dimensions": case(8, half=[1] * 4 + [0] * 4, threshold=1e-3),
    "superbee": case(2, limiter="superbee"),
    "donor cells": case(2, limiter="none", cfl=0.7),
    "parallel prune": case(2, prune="parallel", prune_every=5),
    "time": case(2, driven, time_varying=True),
    "rotation": case(2, rotation=turned),
    "bounds": case(2, bounds=lambda x, xp: x[0] * x[0] + 0.5 * x[1], bounds_range=(-0.4, 1.2)),
    "diffusion": case(2, diffusion=np.array([0.05, 0.0])),
    "periods": case(2, lambda x, t, xp, rate: (rate + xp.sin(x[1]), 0.3 * x[1]), periods=(9, None)),
    "a table in bounds": case(2, bounds=lambda x, xp: xp.interp(x[0], *TABLE) + x[1], bounds_range=(-0.4, 1.2)),
    "all of the second order": case(2, driven, time_varying=True, time_order=2, **noise([[0.05, 0.03], [0.03, 0.04]])),
}
PATIENT_CASES = {
    "five dimensions": case(5, half=1, threshold=1e-5),
    "van Leer": case(2, limiter="van_leer"),
    "minmod": case(2, limiter="minmod"),
    "a table": case(2, lambda x, t, xp, rate: (rate - x[1], xp.interp(x[0], *TABLE))),
    "functions in bounds": case(2, bounds=lambda x, xp: xp.exp(x[0]) % 4.0 + x[1], bounds_range=(-0.4, 2.2)),
    "second order": case(2, time_order=2),
    "second order, three dimensions": case(3, time_order=2),
    "noise over edges": case(2, **noise([[0.05, -0.02], [-0.02, 0.04]])),
    "noise by central differences": case(2, **noise([[0.01, 0.05], [0.05, 0.3]])),
    "noise over edges, three dimensions": case(3, **noise(np.full((3, 3), 0.02) + 0.01 * np.eye(3))),
    "noise over edges, single precision": case(2, dtype=np.float32, **noise([[0.05, -0.02], [-0.02, 0.04]])),
}
CASES |= PATIENT_CASES


def assert_like(run, oracle, rtol=1e-12):
    """The same cells, with the same probabilities up to rounding."""
    (mine, p), (theirs, q) = run.cells(), oracle.cells()
    np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_allclose(p, q, rtol=rtol, atol=1e-18)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in PATIENT_CASES else []) for name in CASES]
)
def test_the_step_is_that_of_the_definition(name):
    problem, indices, p = CASES[name]
    rtol = 1e-12 if problem.dtype is np.float64 else 1e-4
    run, oracle = CompiledEngine(problem, indices, p, 0.2), ArrayEngine(problem, indices, p, 0.2)
    for span in (0.01, 0.5):
        steps, expected = run.advance(0.2, span), oracle.advance(0.2, span)
        np.testing.assert_array_equal(steps.cells, expected.cells)
        np.testing.assert_allclose(steps.lengths, expected.lengths, rtol=1e-2 * rtol)
        np.testing.assert_allclose(steps.masses, expected.masses, rtol=0.1 * rtol)
        np.testing.assert_allclose(steps.clipped, expected.clipped, rtol=1e-9, atol=0.1 * rtol)
        assert_like(run, oracle, rtol)
    weights = -0.5 * ((run.cells()[0][:, 0] - 2.0) / 3.0) ** 2
    assert run.reweight(weights) == pytest.approx(oracle.reweight(weights), rel=rtol)
    assert_like(run, oracle, rtol)
    run.advance(0.7, 0.1)
    oracle.advance(0.7, 0.1)
    assert_like(run, oracle, rtol)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Gbees.update:ensemble.apps.gbees.GridWarning")  # the cells are wide
@pytest.mark.parametrize("n", [7, 8])
def test_a_run_in_seven_and_eight_dimensions_comes_to_its_end(n):
    options = {"threshold": 1e-4, "factor": 1 / 3, "prune_every": 4}
    runs = [
        Gbees(lorenz96(4.0), [4.5] + [4.0] * (n - 1), [0.04] * n, backend=backend, **options)
        for backend in ("numpy", "array")
    ]
    for run in runs:
        run.advance(0.15)
        run.update(lambda x, xp: x[n - 1], y=4.1, R=0.02)
        run.advance(0.2)
    mine, theirs = (run.cells() for run in runs)
    assert runs[0].n_steps == runs[1].n_steps > 8
    np.testing.assert_array_equal(mine.indices, theirs.indices)
    np.testing.assert_allclose(mine.probabilities, theirs.probabilities, rtol=1e-11)
    assert runs[0].log_evidence == pytest.approx(runs[1].log_evidence, rel=1e-12)


def bits(run):
    indices, p = run.cells()
    return indices.tobytes(), p.tobytes()


def test_results_depend_neither_on_threads_nor_on_pauses_nor_on_capacity(monkeypatch):
    problem, indices, p = case(2, half=18)

    def run(threads, small, looks):
        monkeypatch.setattr(compiled_engine, "SMALL", small)
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        try:
            engine = CompiledEngine(problem, indices[::-1], p[::-1])
            engine.advance(0.0, 0.3)
            if looks:  # one that goes on from what can be seen: in other order, in other memory
                engine, seen = CompiledEngine(problem, *engine.cells(), engine.velocity_time), engine
                engine.count = seen.count
            engine.advance(0.3, 0.3)
        finally:
            numba.set_num_threads(before)
        return bits(engine)

    alone = run(1, 1 << 30, False)
    assert run(1, 1 << 30, True) == alone
    for threads in range(2, numba.config.NUMBA_NUM_THREADS + 1):
        assert run(threads, 0, False) == alone


def test_a_new_number_needs_no_new_code():
    first, second = (CompiledEngine(*case(2, rate=rate)) for rate in (1.5, 1.7))
    closed = [CompiledEngine(*case(2, lambda x, t, xp, _, a=a: (a * x[1], -x[0] - 0.3))) for a in (0.7, 0.9)]
    for one, other in ((first, second), closed):
        one.advance(0.0, 0.1)
        other.advance(0.0, 0.1)
        assert one.loops.code.addresses == other.loops.code.addresses
        assert bits(one) != bits(other)


def test_samples_of_one_drift_are_traced_once():
    """By what the drift reads: a number that has changed meanwhile gives another trace."""
    traced, factor = compiled_engine.gbees_generated.trace_face_velocities, [0.7]

    def drift(x, t, xp, rate):
        return (rate * x[1], -factor[0] * x[0])

    made = []
    with pytest.MonkeyPatch.context() as patch:
        count = lambda *arguments: made.append(factor[0]) or traced(*arguments)
        patch.setattr(compiled_engine.gbees_generated, "trace_face_velocities", count)
        run = Gbees(Drift(drift, (Ensemble(np.array([1.0, 1.1, 1.2])),)), np.full(2, 0.4), np.eye(2), threshold=1e-4)
        factor[0] = 0.9
        other = Gbees(Drift(drift, (1.1,)), np.full(2, 0.4), np.eye(2), threshold=1e-4)
    assert made == [0.7, 0.9]
    assert len({id(one.engine.loops.code) for one in run._runs.runs}) == 1
    assert not np.array_equal(other._runs.runs[0].engine.grid[3], run._runs.runs[1].engine.grid[3])


class Compiled(event.Listener):
    """The names of the functions that Numba compiled while this listened."""

    def __init__(self):
        self.names = set()

    def on_start(self, event):
        self.names.add(event.data["dispatcher"].__name__)

    def on_end(self, event):
        pass


def test_a_new_drift_compiles_nothing_but_itself(tmp_path, monkeypatch):
    CompiledEngine(*case(2)).advance(0.0, 0.01)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))  # the next module is not there yet
    listener = Compiled()
    with event.install_listener("numba:compile", listener):
        CompiledEngine(*case(2, lambda x, t, xp, rate: (x[1] - rate * x[0], xp.cos(x[0]) - x[1]))).advance(0.0, 0.01)
    assert "drift" in listener.names
    assert not {"advance", "grow", "grow_cell", "flow", "outflow", "prune"} & listener.names


def test_arrays_and_keys_grow_with_the_grid():
    def outwards(x, t, xp, rate):
        return rate * x[0], -0.2 * x[1]

    problem, indices, p = case(2, outwards, half=1, rate=2.0, threshold=1e-9)
    run, oracle = CompiledEngine(problem, indices, p), ArrayEngine(problem, indices, p)
    capacity = run.grid[0].size
    few = run.packing.around([-1, -1], [1, 1], (None, None))
    run.packing = type(few)((-3, -3), (3, 3), (None, None))
    cells = slice(kernels.BASE, kernels.BASE + run.n_cells)
    run.grid[0][cells] = run.packing.pack(list(oracle.cells()[0].T))
    run.packing_rows = run._packing_rows()
    kernels.build_table(run.grid[0], cells.stop, run.grid[9])
    run.advance(0.0, 2.0)
    oracle.advance(0.0, 2.0)
    assert run.grid[0].size > capacity and sum(run.packing.bits) > 6
    assert_like(run, oracle)


def test_what_stops_a_step_leaves_the_grid_of_the_last_one():
    problem, indices, p = case(2, lambda x, t, xp, rate: (xp.sqrt(1.2 - x[0]), 0.0 * x[1] + rate), half=1)
    run = CompiledEngine(problem, indices, p)
    with pytest.raises(GridError, match=r"drift must be finite; got nan in component 0 at x = \(1\.\d+"):
        run.advance(0.0, 3.0)
    before = bits(run)
    assert len(run.taken) > 0
    oracle = ArrayEngine(problem, indices, p)
    with pytest.raises(GridError, match="drift must be finite"):
        oracle.advance(0.0, 3.0)
    assert_like(run, oracle)
    with pytest.raises(GridError, match="drift must be finite"):
        run.advance(float(run.taken.lengths.sum()), 3.0)
    assert bits(run) == before
    with pytest.raises(GridError, match="likelihood must be above zero somewhere"):
        run.reweight(np.full(run.n_cells, -np.inf))
    with pytest.raises(GridError, match="likelihood must be a number"):
        run.reweight(np.full(run.n_cells, np.nan))
    assert bits(run) == before


def test_a_grid_that_outgrows_its_memory_says_so_and_stays():
    problem, indices, p = case(3, half=2, threshold=1e-12, memory_limit=30_000)
    run = CompiledEngine(problem, indices, p)
    with pytest.raises(MemoryError, match=r"the grid must fit 3e-05 GB; got [\d,]+ cells of about \d+ bytes"):
        run.advance(0.0, 5.0)
    assert len(run.taken) > 0 and run.cells()[1].sum() == pytest.approx(1.0, abs=1e-13)
    assert run.n_cells == len(run.cells()[0])


def test_the_callback_may_interrupt(monkeypatch):
    monkeypatch.setattr(compiled_engine, "BUDGET", 200)
    problem, indices, p = case(2, half=4)
    told = []
    run, other = CompiledEngine(problem, indices, p), CompiledEngine(problem, indices, p)
    run.advance(0.0, 1.0, lambda *seen: told.append(seen))
    assert len(told) > 3 and told[-1] == (1.0, run.n_cells, int(run.taken.cells.sum()))

    def interrupt(elapsed, n_cells, cell_steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        other.advance(0.0, 1.0, interrupt)
    done = 0.0
    for length in other.taken.lengths:
        done += float(length)
    assert 0.0 < done < 1.0 and other.n_cells == len(other.cells()[0])
    other.advance(0.0, 1.0, elapsed=done)
    assert bits(other) == bits(run)


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_numbers_are_ordered_as_numpys_stable_sort_orders_them(dtype, rng):
    """Few numbers, runs sorted by insertion, and their merges; equal numbers keep their order."""

    @compiled_serial
    def write_places(values, places):
        kernels.sort_places(values, values.size, places)

    def ordered(values):
        places = np.full(values.size, -1)
        write_places(values, places)
        return places

    run = kernels.SORTED_RUN
    for n in (0, 1, 2, run - 1, run, run + 1, 2 * run, 3 * run + 5, 1000):
        for values in (rng.integers(0, 1 + n // 3, n), rng.integers(0, 1 << 20, n), np.arange(n), np.arange(n)[::-1]):
            values = np.ascontiguousarray(values, dtype)
            np.testing.assert_array_equal(ordered(values), np.argsort(values, kind="stable"))
