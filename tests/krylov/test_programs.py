"""Iterations that a program repeats on the host have the bits of those that Python calls loop by loop."""

import gc
import pickle
import threading
import weakref
from functools import partial

import numpy as np
import pytest

from ensemble import Ensemble
from ensemble._compile import recording
from ensemble._compile.numba import SMALL
from ensemble._compile.programs import Program
from ensemble.gallery import convection_diffusion
from ensemble.krylov import _solve, bicgstab, cg, gmres, minres
from ensemble.krylov.cg import CgIteration
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import (
    Chebyshev,
    aggregation_hierarchy,
    approximate_ideal_restriction,
    hierarchy,
    reduction_hierarchy,
    smoothed_aggregation,
)
from tests.device_problems import problem


@pytest.fixture
def by_python(monkeypatch):
    """A function that solves without a program."""

    def solved(*arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr(_solve, "runs_as_program", lambda *_: False)
            return cg(*arguments, **options)

    return solved


@pytest.fixture
def called(monkeypatch):
    """How many iterations Python called loop by loop."""
    counts, iterate = [], CgIteration.iterate
    monkeypatch.setattr(CgIteration, "iterate", lambda state: (counts.append(1), iterate(state))[1])
    return counts


def right_hand_sides(b, count=3, seed=5):
    rng = np.random.default_rng(seed)
    return [Ensemble((b.samples * rng.uniform(0.5, 2.0, b.samples.shape)).astype(b.dtype)) for _ in range(count)]


def same(got, expected):
    np.testing.assert_array_equal(got.x.samples, expected.x.samples)
    np.testing.assert_array_equal(got.residual_norms, expected.residual_norms)
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    assert list(got.status) == list(expected.status)


HIERARCHIES = {
    "default": {},
    "three levels": {"coarse_size": 10},
    "factors": {"coarse_size": 300},
    "one level": {"max_levels": 1},
    "degree 1": {"smoother": Chebyshev(degree=1), "coarse_size": 60},
    "degree 3": {"smoother": Chebyshev(degree=3), "coarse_size": 60},
    "degree 4": {"smoother": Chebyshev(degree=4), "coarse_size": 60},
    "double": {"dtype": "float64", "coarse_size": 60},
}


@pytest.mark.parametrize("n_samples", [1, 2, 7, 33])
@pytest.mark.parametrize("name", HIERARCHIES)
def test_solves_have_the_bits_of_single_calls(name, n_samples, by_python, called):
    A, b = problem(n_samples)
    M = smoothed_aggregation(A, **HIERARCHIES[name])
    found = [cg(A, each, M=M, rtol=1e-9) for each in right_hand_sides(b)]
    if M.repeats_on_host:
        assert len(called) == 1  # of the first solve, which is recorded
    for each, got in zip(right_hand_sides(b), found, strict=True):
        same(got, by_python(A, each, M=smoothed_aggregation(A, **HIERARCHIES[name]), rtol=1e-9))


def test_most_hierarchies_repeat():
    A, _ = problem(2)
    kept = {name: smoothed_aggregation(A, **options).repeats_on_host for name, options in HIERARCHIES.items()}
    assert [name for name, repeats in kept.items() if not repeats] == ["one level"]  # it has no smoother


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_starting_guesses_scales_and_types(dtype, by_python):
    """Of one M: a program that kept the units of an earlier solve would lose numbers of another size."""
    A, given = problem(5)
    A = A.with_values(A.values.astype(dtype))
    M = smoothed_aggregation(A, coarse_size=60)
    for scale in (1.0, 1e-30, 1e30) if dtype == "float32" else (1.0, 1e-100, 1e100):
        b = Ensemble((given.samples * scale).astype(dtype))
        compare_options(A, b, M, by_python)


def compare_options(A, b, M, by_python):
    x0 = Ensemble((0.1 * b.samples).astype(b.dtype))
    for options in ({}, {"x0": x0}, {"rtol": np.array([1e-2, 1e-5, 1e-3, 1e-4, 1e-5])}, {"max_iterations": 3}):
        same(cg(A, b, M=M, **options), by_python(A, b, M=smoothed_aggregation(A, coarse_size=60), **options))


def test_samples_that_fail_reach_no_other_one(by_python):
    A, b = problem(9)
    values, rhs = A.values.copy(), b.samples.copy()
    values[:, 2] *= -1.0  # indefinite
    rhs[5, 3], rhs[:, 4], rhs[:, 5], rhs[:, 6] = np.nan, 0.0, 1e-200, np.inf
    M = smoothed_aggregation(A, coarse_size=60)
    broken = CrsMatrix(A.graph, values)
    for matrix, given in ((A, b), (A, Ensemble(rhs)), (broken, Ensemble(rhs)), (A, b), (broken, b)):
        same(cg(matrix, given, M=M), by_python(matrix, given, M=smoothed_aggregation(A, coarse_size=60)))


def test_samples_that_finish_early_are_taken_out(by_python):
    A, b = problem(12)
    M, rtol = smoothed_aggregation(A, coarse_size=60), np.repeat([1e-1, 1e-12], [9, 3])
    for _ in range(2):
        got = cg(A, b, M=M, rtol=rtol)
        assert got.converged.all() and got.iterations.max() > 2 * got.iterations.min()
        same(got, by_python(A, b, M=smoothed_aggregation(A, coarse_size=60), rtol=rtol))


def test_stagnation_is_that_of_single_calls(by_python):
    A, b = problem(3)
    M = smoothed_aggregation(A, coarse_size=60)
    got = cg(A, b, M=M, rtol=1e-16, max_iterations=200)
    assert not got.converged.all()
    same(got, by_python(A, b, M=smoothed_aggregation(A, coarse_size=60), rtol=1e-16, max_iterations=200))


def test_updates_and_new_matrices_are_recorded_again(by_python, called):
    A, b = problem(4)
    other = A.with_values(A.values * np.linspace(1.0, 2.0, A.values.size).reshape(A.values.shape)[:, ::-1] ** 0.01)
    M = smoothed_aggregation(A, coarse_size=60)
    for matrix in (A, other, A):
        M.update(matrix)
        called.clear()
        for _ in range(2):
            got = cg(matrix, b, M=M)
        assert len(called) == 1
        same(got, by_python(matrix, b, M=smoothed_aggregation(matrix, coarse_size=60)))


def test_values_that_change_in_place_are_read_again(by_python):
    A, b = problem(4)
    M = smoothed_aggregation(A, coarse_size=60)
    cg(A, b, M=M)
    A.values *= 1.25
    same(cg(A, b, M=M), by_python(A, b, M=smoothed_aggregation(problem(4)[0], coarse_size=60)))


def test_solutions_stay_what_they_were():
    A, b = problem(4)
    M = smoothed_aggregation(A, coarse_size=60)
    first, second = (cg(A, each, M=M) for each in right_hand_sides(b, 2))
    kept = first.x.samples.copy(), second.x.samples.copy()
    cg(A, 3.0 * b, M=M)
    np.testing.assert_array_equal(first.x.samples, kept[0])
    np.testing.assert_array_equal(second.x.samples, kept[1])


def solved_on_threads(method, A, M, sides, times):
    """Solve for each right-hand side several times, on a thread of its own; the last results."""
    found = [None] * len(sides)

    def work(k):
        for _ in range(times):
            found[k] = method(A, sides[k], M=M)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(sides))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def test_threads_have_programs_of_their_own(by_python):
    A, b = problem(3)
    M, sides = smoothed_aggregation(A, coarse_size=60), right_hand_sides(b, 4)
    for each, got in zip(sides, solved_on_threads(cg, A, M, sides, 20), strict=True):
        same(got, by_python(A, each, M=smoothed_aggregation(A, coarse_size=60)))


def test_programs_go_with_their_matrix():
    A, b = problem(3)
    M = smoothed_aggregation(A, coarse_size=60)
    cg(A, b, M=M)
    assert len(M.replays) == 1
    vector = weakref.ref(next(iter(M.replays.values())).memory["p"])
    del A
    gc.collect()
    assert vector() is None and not M.replays


def test_an_exception_while_it_is_recorded_leaves_nothing(by_python, monkeypatch):
    A, b = problem(3)
    M = smoothed_aggregation(A, coarse_size=60)
    with monkeypatch.context() as patch:
        patch.setattr(CgIteration, "iterate", lambda state: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cg(A, b, M=M)
    assert not recording.recordings
    same(cg(A, b, M=M), by_python(A, b, M=smoothed_aggregation(A, coarse_size=60)))


def test_what_cannot_be_repeated_is_called_again():
    calls = []

    def launches():
        calls.append(1)
        recording.note_gap()

    program = Program(launches)
    for _ in range(3):
        program()
    assert len(calls) == 3 and not program.release_launches()


def test_steps_of_python_are_repeated_between_loops():
    from ensemble._kernels.sparse.row_sums import _add_in_order

    partials, total, seen = np.ones((3, 2)), np.zeros(2), []

    def launches():
        _add_in_order(partials, total)
        recording.aside(lambda: seen.append(total.copy()))
        recording.aside(lambda: np.multiply(partials, 2.0, out=partials))

    program = Program(launches)
    for _ in range(3):
        program()
    assert [each.tolist() for each in seen] == [[3.0, 3.0], [6.0, 6.0], [12.0, 12.0]]
    assert program.release_launches()


# --- V-cycles in other methods
@pytest.fixture
def called_by_python(monkeypatch):
    """A function that computes something with V-cycles that Python calls."""

    def computed(function, *arguments, **options):
        with monkeypatch.context() as patch:
            for module in (hierarchy, aggregation_hierarchy, reduction_hierarchy):
                patch.setattr(module, "repeated_cycle", lambda *_: None)
            return function(*arguments, **options)

    return computed


def nonsymmetric(n_samples):
    rng = np.random.default_rng(7)
    A = convection_diffusion((21, 20), rng.uniform(-20.0, 20.0, (2, n_samples)))
    return A, Ensemble(rng.standard_normal((A.shape[0], n_samples)))


METHODS = {"gmres": gmres, "bicgstab": bicgstab, "minres": minres, "cg": partial(cg, callback=lambda *_: None)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_samples", [1, 5, 32])
@pytest.mark.parametrize("name", METHODS)
def test_v_cycles_have_the_bits_of_single_calls(name, n_samples, dtype, called_by_python):
    A, b = problem(n_samples)
    A, b = A.with_values(A.values.astype(dtype)), Ensemble(b.samples.astype(dtype))
    M = smoothed_aggregation(A, coarse_size=60)
    for each in right_hand_sides(b):
        alone = smoothed_aggregation(A, coarse_size=60)
        same(METHODS[name](A, each, M=M), called_by_python(METHODS[name], A, each, M=alone))
    assert len(M.cycles) == 1


@pytest.mark.parametrize("options", [{}, {"coarse_size": 20}, {"coarse_size": 20, "dtype": "float32"}], ids=str)
@pytest.mark.parametrize("n_samples", [1, 6])
@pytest.mark.parametrize("name", ["gmres", "bicgstab"])
def test_cycles_by_reduction_have_the_bits_of_single_calls(name, n_samples, options, called_by_python):
    A, b = nonsymmetric(n_samples)
    M = approximate_ideal_restriction(A, **options)
    for each in right_hand_sides(b):
        alone = approximate_ideal_restriction(A, **options)
        same(METHODS[name](A, each, M=M), called_by_python(METHODS[name], A, each, M=alone))
    assert len(M.cycles) == 1


@pytest.mark.parametrize("build", [smoothed_aggregation, approximate_ideal_restriction])
def test_v_cycles_follow_new_matrices(build, called_by_python):
    A, b = problem(4)
    M = build(A, coarse_size=60)
    gmres(A, b, M=M)
    other = A.with_values(A.values**1.0 * np.linspace(0.8, 1.3, 4))
    M.update(other)
    same(gmres(other, b, M=M), called_by_python(gmres, other, b, M=build(other, coarse_size=60)))
    assert len(M.cycles) == 1


def test_a_finest_matrix_with_other_values_is_followed(called_by_python):
    """A hierarchy in the type of its matrix holds that matrix itself."""
    A, b = problem(3)
    M, plain = (smoothed_aggregation(A, coarse_size=60, dtype="float64") for _ in range(2))
    gmres(A, b, M=M)
    A.values = A.values * 1.5
    same(gmres(A, b, M=M), called_by_python(gmres, A, b, M=plain))


def test_threads_have_v_cycles_of_their_own(called_by_python):
    A, b = problem(3)
    M, sides = smoothed_aggregation(A, coarse_size=60), right_hand_sides(b, 4)
    for each, got in zip(sides, solved_on_threads(gmres, A, M, sides, 10), strict=True):
        same(got, called_by_python(gmres, A, each, M=smoothed_aggregation(A, coarse_size=60)))


def test_many_samples_of_a_shared_matrix_take_the_loops_of_all_threads():
    """Few values of the matrix do not make the vectors few."""
    A, _ = problem(1)
    b = Ensemble(np.random.default_rng(9).standard_normal((A.shape[0], 300)))
    assert A.values.size <= SMALL < b.samples.size
    M = smoothed_aggregation(A, coarse_size=60)
    assert cg(A, b, M=M).converged.all() and gmres(A, b, M=M).converged.all()
    assert not M.replays and not M.cycles


def test_hierarchies_with_programs_are_pickled_and_freed():
    A, b = problem(3)
    M = smoothed_aggregation(A, coarse_size=60)
    expected = gmres(A, b, M=M)
    same(gmres(A, b, M=pickle.loads(pickle.dumps(M))), expected)
    cg(A, b, M=M)
    kept = weakref.ref(M)
    del M
    gc.collect()
    assert kept() is None
