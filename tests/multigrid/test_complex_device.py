"""Complex hierarchies on a device or the emulator of one: the CPU's solutions, and each sample by itself."""

import numpy as np
import pytest

from ensemble._backend import asarray_like, prototype, to_numpy
from ensemble.krylov import bicgstab, cg, gmres, minres
from ensemble.linalg import CrsMatrix, Factorization, IncompleteFactorization
from ensemble.multigrid import approximate_ideal_restriction, smoothed_aggregation
from ensemble.scalar import Ensemble
from tests.multigrid.complex_problems import N_OF_TRANSPORT, PROBLEMS, SMOOTHERS, N, harmonic, numbers, shifted

SLOW = pytest.mark.slow
OPTIONS = {
    **SMOOTHERS, "float32": {"dtype": "float32"}, "strength": {"strength": 0.25}, "reordered": {"reorder": True},
}  # fmt: skip


@pytest.fixture(params=["emulator", pytest.param("device", marks=pytest.mark.cuda)])
def moved(request):
    """A function that gives matrices and vectors as the device has them; until its first call all runs on the CPU."""

    def move(value):
        if request.param == "emulator":
            request.getfixturevalue("as_device")
            return value
        home = prototype("cupy")
        return value.to(home) if isinstance(value, CrsMatrix) else Ensemble(asarray_like(value.samples, home))

    return move


def on_host(x):
    return to_numpy(x.samples if isinstance(x, Ensemble) else x[:, None])


def methods_of(problem):
    return (cg, minres, gmres, bicgstab) if problem == "hermitian" else (gmres, bicgstab)


CASES = [("hermitian", "Chebyshev"), ("shifted", "Gauss-Seidel")]
FURTHER = [(p, o) for o in OPTIONS for p in PROBLEMS if (p, o) not in CASES]


@pytest.mark.parametrize("problem, option", [*CASES, *(pytest.param(*c, marks=SLOW) for c in FURTHER)])
def test_solves_agree_with_the_cpu(problem, option, moved, rng):
    """In as many iterations; the second sample is its own scalar run to the bit."""
    A, b, options = PROBLEMS[problem](3), Ensemble(numbers(rng, N, 3)), {"coarse_size": 20, **OPTIONS[option]}
    host = smoothed_aggregation(A, **options)
    expected, cycle = [solve(A, b, M=host) for solve in methods_of(problem)], on_host(host @ b)
    A, b = moved(A), moved(b)
    M = smoothed_aggregation(A, **options)
    alone = smoothed_aggregation(A.sample(1), **options)
    error = np.abs(on_host(M @ b) - cycle).max() / np.abs(cycle).max()
    assert M.dtype == host.dtype and error < 200 * np.finfo(M.dtype).eps
    for solve, right in zip(methods_of(problem), expected, strict=True):
        found = solve(A, b, M=M)
        assert found.converged.all() and np.abs(found.iterations - right.iterations).max() <= (option == "float32")
        np.testing.assert_allclose(on_host(found.x), on_host(right.x), atol=1e-6 * np.abs(on_host(right.x)).max())
        own = solve(A.sample(1), b.sample(1), M=alone)
        assert np.array_equal(on_host(own.x)[:, 0], on_host(found.x)[:, 1])


@pytest.mark.parametrize("bad", [complex(0.0, np.nan), pytest.param(np.inf, marks=SLOW), pytest.param(0.0, marks=SLOW)])
def test_bad_samples_touch_no_others(bad, moved, rng):
    """Nor do samples of other magnitudes: scaling by powers of two changes no other bit."""
    A, b = shifted(3), Ensemble(numbers(rng, N, 3))
    A.values[:, 2] *= 2.0**-300
    good = A.take_samples([0, 0, 2])
    A.values[5, 1] = bad
    if bad == 0.0:
        A.values[:, 1] = bad
    A, good, b = moved(A), moved(good), moved(b)
    with np.errstate(all="ignore"):
        found = gmres(A, b, M=smoothed_aggregation(A))
    right = gmres(good, b, M=smoothed_aggregation(good))
    assert found.converged.tolist() == [True, False, True] and right.converged.all()
    assert np.array_equal(on_host(found.x)[:, [0, 2]], on_host(right.x)[:, [0, 2]])


@pytest.mark.parametrize(
    "options",
    [
        {},
        *(
            pytest.param({k: v}, marks=SLOW)
            for k, v in {"dtype": "float32", "strength": "graph", "reorder": True}.items()
        ),
    ],
    ids=str,
)
def test_reduction_has_the_bits_of_the_cpu(options, moved, rng):
    A, b = harmonic(3), Ensemble(numbers(rng, N_OF_TRANSPORT, 3))
    host = approximate_ideal_restriction(A, coarse_size=20, **options)
    cycle, expected = on_host(host @ b), gmres(A, b, M=host)
    other = A.values * 1.25
    other[7, 1] = complex(0.0, np.nan)
    updated = on_host(host.update(CrsMatrix(A.graph, other)) @ b)
    A, B, b = moved(A), moved(CrsMatrix(A.graph, other)), moved(b)
    M = approximate_ideal_restriction(A, coarse_size=20, **options)
    assert np.array_equal(on_host(M @ b), cycle)
    found = gmres(A, b, M=M)
    assert found.converged.all() and np.array_equal(found.iterations, expected.iterations)
    again = on_host(M.update(B) @ b)
    assert np.array_equal(again[:, [0, 2]], updated[:, [0, 2]]) and np.isnan(again[:, 1]).any()


def test_one_hierarchy_serves_many_right_hand_sides(moved, rng):
    A, b = shifted(1), Ensemble(numbers(rng, N, 3))
    expected = gmres(A, b, M=smoothed_aggregation(A))
    A, b = moved(A), moved(b)
    M = smoothed_aggregation(A)
    found = gmres(A, b, M=M)
    assert found.converged.all() and np.array_equal(found.iterations, expected.iterations)
    assert np.array_equal(on_host(M @ b)[:, 1], on_host(M @ b.sample(1))[:, 0])


@pytest.mark.cuda
@pytest.mark.parametrize("make", [IncompleteFactorization, Factorization])
@pytest.mark.parametrize("symmetric", [False, True])
def test_factorisations_have_the_bits_of_the_cpu(make, symmetric, rng):
    A, b, home = shifted(3), Ensemble(numbers(rng, N, 3)), prototype("cupy")
    kind = "ldlt" if symmetric else "lu"
    expected = make(A, kind=kind)
    F, y = make(A.to(home), kind=kind), Ensemble(asarray_like(b.samples, home))
    assert np.array_equal(on_host(F @ y), on_host(expected @ b))
    assert gmres(A.to(home), y, M=F).converged.all()
    if make is Factorization:
        np.testing.assert_allclose(on_host(F.logdet()), on_host(expected.logdet()), rtol=1e-12)
        np.testing.assert_allclose(on_host(F.sign()), on_host(expected.sign()), rtol=1e-10)
