"""The simulated machine: counts worked out by hand, and what must hold whatever they are."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import operation_counts, simulated_machine
from benchmarks.operation_counts import Counted, CountingNamespace, count_flops
from benchmarks.simulated_machine import Machine, simulate, step_flops
from ensemble._kernels.kalman.scan import prefix_scan
from ensemble.apps.kalman.alignment import aligned
from ensemble.apps.kalman.array.elements import advance_filter, combine_filter, extend_filter, filter_elements
from ensemble.apps.kalman.filters import sequential_filter
from ensemble.apps.kalman.model import LinearGaussianModel
from tests.apps.kalman.models import close, random_parts, with_gaps

SIZE = st.integers(1, 6)


@given(SIZE, SIZE, SIZE)
def test_a_matrix_product_is_its_loops(n, m, k):
    products, sums = n * m * k, n * (m - 1) * k
    assert count_flops(lambda a, b: a @ b, np.ones((n, m)), np.ones((m, k))) == products + sums


def eliminated(n, k):
    """Operations of LU by its loops and of two triangular solves of k columns."""
    flops = 0
    for j in range(n):
        for _ in range(j + 1, n):
            flops += 1 + 2 * (n - j - 1)  # the factor, then the rest of the row
    for i in range(n):
        flops += k * (2 * i) + k * (2 * (n - i - 1) + 1)
    return flops


@given(SIZE, SIZE, st.integers(1, 4))
def test_a_solve_is_its_loops(n, k, batch):
    A, b = np.broadcast_to(np.eye(n), (batch, n, n)), np.ones((batch, n, k))
    assert count_flops(lambda A, b: A.__array_namespace__().linalg.solve(A, b), A, b) == batch * eliminated(n, k)


def test_elementwise_operations_count_their_results():
    x, y = np.ones((3, 1)), np.ones(4)
    assert count_flops(lambda x, y: x + y, x, y) == 12
    assert count_flops(lambda x, y: 0.5 * x - y / 2, x, y) == 3 + 4 + 12
    assert count_flops(lambda x: x.__array_namespace__().sum(x, axis=0), np.ones((5, 2))) == 8
    assert count_flops(lambda x: -x[1:] > 0, y) == 0


def test_joining_scalars_is_its_formula():
    """I + C J and b + C eta, three quotients, A, b, C with its symmetric part, eta, J with its symmetric part."""
    flops = step_flops(1, 1)
    assert flops["combine"] == 2 + 2 + 3 + 1 + 2 + (2 + 1 + 2) + 4 + (2 + 1 + 2)
    assert flops["combine smoother"] == 1 + 2 + (2 + 1 + 2)


def test_unknown_functions_are_named():
    with pytest.raises(AttributeError, match="no function 'cumulative_prod'"):
        count_flops(lambda x: x.__array_namespace__().cumulative_prod(x), np.ones(3))
    with pytest.raises(TypeError, match="function must be callable"):
        count_flops(3)


def test_counting_changes_no_number():
    parts, y = random_parts(5, 4, 2)
    series = aligned(LinearGaussianModel(**parts), with_gaps(y), None, "test")
    xp = CountingNamespace()
    names = ("F", "Q", "H", "R", "u", "d", "y", "m0", "P0")
    counting = {name: Counted(getattr(series, name), xp) for name in names}
    counted = type(series)(**counting, batch=(), predict_first=True)
    for got, expected in zip(filter_elements(counted), filter_elements(series), strict=True):
        np.testing.assert_array_equal(got.values, expected)
    for got, expected in zip(sequential_filter(counted), sequential_filter(series), strict=True):
        np.testing.assert_array_equal(got.values, expected)


def test_operations_grow_with_the_batch():
    one = tuple(np.ones((1, *shape)) for shape in ((2, 2), (2,), (2, 2), (2,), (2, 2)))
    many = tuple(np.ones((7, *a.shape[1:])) for a in one)
    for a in (one, many):
        a[2][...] = np.eye(2)
    assert count_flops(combine_filter, many, many) == 7 * count_flops(combine_filter, one, one)


# --- scans: 16 items and one operation each; on 16 threads time is depth
SCANS = {
    "hillis_steele": (4, 15 + 14 + 12 + 8),
    "ladner_fischer": (7, 15 + 11),
    "sengupta": (7, 15 + 11),
    "blelloch": (9, 15 + 15 + 16),
}


@pytest.mark.parametrize("scan", SCANS)
def test_depth_and_work_of_scans_are_those_of_the_literature(scan):
    machine = Machine(16)
    machine.scan(16, 1, scan)
    assert (machine.depth, machine.work) == SCANS[scan]
    assert machine.time == machine.depth


@pytest.mark.parametrize("scan", SCANS)
def test_the_machine_counts_what_a_scan_of_sums_does(scan):
    """The operations that the machine records are the additions that counting arrays see."""
    machine = Machine(1)
    machine.scan(37, 1, scan)
    zero = (np.zeros(()),)
    run = lambda a: prefix_scan(lambda x, y: (x[0] + y[0],), (a,), algorithm=scan, identity=zero)
    if scan != "blelloch":
        assert count_flops(run, np.ones(37)) == machine.work
    assert machine.time == machine.work  # one thread


@given(st.integers(1, 300), st.integers(1, 40), st.sampled_from(["PKF", "PRTS", "PTFS"]),
       st.sampled_from([*SCANS, "chunked", "replay"]))  # fmt: skip
def test_time_lies_between_the_bounds(T, threads, method, scan):
    """Work shared by all threads, and never less than with one thread an item, or more than with one for all."""
    run = simulate(method, T, scan=scan, threads=threads)
    assert run.work / threads <= run.time <= run.work
    if scan != "replay":  # whose chunks depend on the threads
        assert run.time >= simulate(method, T, scan=scan, threads=T).time
        assert run.work == simulate(method, T, scan=scan, threads=1).work


def test_the_papers_order_of_methods_and_scans():
    """Figures 6 and 7: the filter before its smoothers; Hillis and Steele best for short series, worst for long
    ones."""
    for T in (1000, 100_000):
        filtered, smoothed, met = (simulate(name, T).time for name in ("PKF", "PRTS", "PTFS"))
        assert filtered < smoothed < met
    classical = [scan for scan in SCANS if scan != "hillis_steele"]
    time = lambda T, scan: simulate("PKF", T, scan=scan).time
    assert all(time(1000, "hillis_steele") < time(1000, scan) for scan in classical)
    assert all(time(10**6, "hillis_steele") > time(10**6, scan) for scan in classical)


def test_one_thread_without_a_scan_is_the_recursion():
    assert simulate("KF", 1000).time == 1000 * step_flops()["step"]
    assert simulate("RTS", 10, nx=2, ny=1).work == 10 * (step_flops(2, 1)["step"] + step_flops(2, 1)["smooth"])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"scan": "sequential"}, "scan must be one of"),
        ({"threads": 0}, "threads must be"),
        ({"scan": "replay", "chunk": 3}, "options must be left out"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        simulate("PKF", 10, **options)


# --- chunks with replay
@pytest.mark.parametrize("nx, ny", [(1, 1), (4, 2), (2, 3)])
def test_extending_is_joining_with_the_step(nx, ny):
    parts, y = random_parts(6, nx, ny)
    y = with_gaps(y)
    series = aligned(LinearGaussianModel(**parts), y, None, "test")
    elements = filter_elements(series)
    steps = [series.each(name, slice(2, 6)) for name in ("F", "Q", "u", "H", "R", "d")]
    earlier = tuple(a[1:5] for a in elements)
    extended = extend_filter(earlier, *steps, series.y[2:6])
    for got, expected in zip(extended, combine_filter(earlier, tuple(a[2:6] for a in elements)), strict=True):
        close(got, expected)
    m, P, _ = sequential_filter(series)
    for got, expected in zip(advance_filter(extended, m[:4], P[:4]), (m[2:6], P[2:6]), strict=True):
        close(got, expected)


@pytest.mark.parametrize("module", [operation_counts, simulated_machine], ids=lambda module: module.__name__)
def test_examples_of_docstrings_run(module):
    assert doctest.testmod(module).attempted > 0
    assert doctest.testmod(module).failed == 0
