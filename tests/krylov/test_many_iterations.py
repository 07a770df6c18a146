"""Plain CG, MINRES and BiCGSTAB: many iterations in one compiled call have the results of single ones, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from ensemble._kernels.krylov import many_iterations
from ensemble.gallery import poisson
from ensemble.krylov import bicgstab, cg, minres
from ensemble.krylov.host_scalars import scalars
from ensemble.krylov.host_scalars.minres import MinresHostScalars
from ensemble.linalg import CrsMatrix
from ensemble.scalar import Ensemble

GRID = poisson((34, 34))  # 1156 rows: two whole blocks of a sum and a part of one
RNG = np.random.default_rng(5)
B = RNG.standard_normal((GRID.shape[0], 3))


SKEW = GRID.values.reshape(-1, 1) * (1.0 + 0.2 * RNG.standard_normal((GRID.values.size, 1)))
"""Values of a matrix that is not symmetric."""


def one_by_one(iteration, norms):
    """A callback: with one, the loop returns to Python after each iteration."""


def matrix(scales, dtype=np.float64):
    return CrsMatrix(GRID.graph, (GRID.values.reshape(-1, 1) * np.asarray(scales)).astype(dtype))


def broken(kind):
    """Three samples, the middle one bad."""
    A = matrix([1.0, 1.0, 3.0])
    values = A.values.copy()
    values[:, 1] = {"not finite": np.nan, "indefinite": -values[:, 1], "zero": 0.0 * values[:, 1]}[kind]
    return CrsMatrix(GRID.graph, Ensemble(values))


def uneven():
    """Rows of very different sizes: norms of residuals rise and fall."""
    d = np.exp(np.linspace(0.0, 18.0, GRID.shape[0]))
    rows = np.repeat(np.arange(GRID.shape[0]), np.diff(GRID.graph.indptr))
    scale = np.sqrt(d[rows] * d[GRID.graph.indices])
    return CrsMatrix(GRID.graph, Ensemble(GRID.values.reshape(-1, 1) * scale[:, None] * np.array([1.0, 2.0, 5.0])))


def pair(values, scales=(1.0, 7.0), dtype=np.float64):
    return CrsMatrix(GRID.graph, (values.reshape(-1, 1) * np.asarray(scales)).astype(dtype))


def with_second(values, kind):
    """Two samples, the second one bad."""
    other = {"not finite": np.nan * values, "indefinite": -values, "zero": 0.0 * values}[kind]
    return CrsMatrix(GRID.graph, Ensemble(np.column_stack([values, other])))


def cases_of(values):
    """Two samples, as many as one tile takes."""
    flat = values.reshape(-1)
    laplacian = CrsMatrix(GRID.graph, values.reshape(-1, 1) - 4.0 * (flat == 4.0)[:, None])
    return {
        "one sample": (pair(values, [1.0]), B[:, 0], {}),
        "samples": (pair(values), Ensemble(B[:, :2]), {"max_iterations": 150}),
        "few iterations": (pair(values), Ensemble(B[:, :2]), {"max_iterations": 9}),
        "a start": (pair(values), Ensemble(B[:, :2]), {"x0": Ensemble(B[:, :2] * 0.01), "max_iterations": 130}),
        "stagnation": (pair(values, [1.0]), B[:, 0], {"rtol": 1e-30, "max_iterations": 2000}),
        "tolerances": (pair(values), Ensemble(B[:, :2]), {"rtol": np.array([1e-1, 1e-5]), "max_iterations": 150}),
        **{kind: (with_second(flat, kind), Ensemble(B[:, :2]), {"max_iterations": 70})
           for kind in ("not finite", "indefinite", "zero")},
        "another diagonal": (laplacian, B[:, 0], {"max_iterations": 100}),
    }  # fmt: skip


CASES = {
    "one sample": (matrix([1.0]), B[:, 0], {}),
    "float32": (matrix([1.0], np.float32), B[:, 0].astype(np.float32), {}),
    "samples": (matrix([1.0, 2.0, 7.0]), Ensemble(B), {}),
    "one matrix for all": (GRID, Ensemble(B[:, :2]), {}),
    "few iterations": (matrix([1.0, 2.0, 7.0]), Ensemble(B), {"max_iterations": 9}),
    "more than one call": (uneven(), Ensemble(B), {"max_iterations": 150, "rtol": 1e-12}),
    "residuals that rise": (uneven(), Ensemble(B), {"max_iterations": 60}),
    "a start": (matrix([1.0, 2.0, 7.0]), Ensemble(B), {"x0": Ensemble(B * 0.01)}),
    "stagnation": (matrix([1.0, 2.0, 7.0]), Ensemble(B), {"rtol": 1e-30}),
    "tolerances": (matrix([1.0, 2.0, 7.0]), Ensemble(B), {"rtol": np.array([1e-1, 1e-12, 1e-5])}),
    "not finite": (broken("not finite"), Ensemble(B), {}),
    "indefinite": (broken("indefinite"), Ensemble(B), {}),
    "zero": (broken("zero"), Ensemble(B), {}),
}
ALL = {("cg", name): (cg, *case) for name, case in CASES.items()}
ALL |= {("minres", name): (minres, *case) for name, case in cases_of(GRID.values).items()}
ALL |= {("bicgstab", name): (bicgstab, *case) for name, case in cases_of(SKEW).items()}


TURNS = np.exp(0.3j * np.sign(np.repeat(np.arange(GRID.shape[0]), np.diff(GRID.graph.indptr)) - GRID.graph.indices))
"""Factors of entries that leave a Hermitian matrix one."""

COMPLEX_B = (B + 1j * RNG.standard_normal(B.shape))[:, :2]
TURNED = {
    cg: GRID.values.reshape(-1) * TURNS + 0.2 * (TURNS == 1.0),
    minres: GRID.values.reshape(-1) * TURNS,
    bicgstab: SKEW[:, 0] * TURNS + 0.5j * (TURNS == 1.0),
}
for solver, turned in TURNED.items():
    ALL |= {
        (solver.__name__, "complex"): (solver, pair(turned, dtype=complex), Ensemble(COMPLEX_B), {}),
        (solver.__name__, "complex, a start"): (
            solver, pair(turned, dtype=complex), Ensemble(COMPLEX_B), {"x0": Ensemble(0.01 * COMPLEX_B), "rtol": 1e-30}
        ),
        (solver.__name__, "complex, one sample"): (
            solver, pair(turned, [1.0], dtype=np.complex64), COMPLEX_B[:, 0].astype(np.complex64), {}
        ),
        **{(solver.__name__, f"complex, {kind}"): (solver, with_second(turned, kind), Ensemble(COMPLEX_B), {})
           for kind in ("not finite", "indefinite", "zero")},
    }  # fmt: skip


def compare(solve, A, b, options, monkeypatch):
    """Solve by single iterations, then by many; the results have the same bits."""
    single = solve(A, b, callback=one_by_one, **options)
    calls = []
    run = many_iterations.many_iterations
    with monkeypatch.context() as patch:
        patch.setattr(scalars, "many_iterations", lambda *arguments: (calls.append(arguments), run(*arguments)))
        many = solve(A, b, **options)
    assert calls or not many.iterations.any()
    assert many.iterations.tolist() == single.iterations.tolist()
    assert many.status.tolist() == single.status.tolist()
    np.testing.assert_array_equal(many.residual_norms, single.residual_norms)
    np.testing.assert_array_equal(many.true_residual_norms, single.true_residual_norms)
    values = [x.samples if isinstance(x, Ensemble) else x for x in (many.x, single.x)]
    np.testing.assert_array_equal(*values)
    return many


@pytest.mark.parametrize("case", ALL, ids=" ".join)
def test_many_iterations_in_one_call_are_those_of_single_ones(case, monkeypatch):
    solve, A, b, options = ALL[case]
    compare(solve, A, b, options, monkeypatch)


@pytest.mark.parametrize("method", ["cg", "minres", "bicgstab"])
def test_the_cases_come_to_every_decision(method):
    found = [solve(A, b, **options) for (name, _), (solve, A, b, options) in ALL.items() if name == method]
    seen = {str(s) for result in found for s in result.status}
    assert len(seen) == 4, seen


def test_a_case_has_residuals_that_rise():
    A, b, options = CASES["residuals that rise"]
    norms = cg(A, b, **options).residual_norms
    assert (norms[1:] > 2.0 * np.minimum.accumulate(norms)[:-1]).any()


def test_minres_decides_in_the_middle_of_an_iteration_where_rounding_makes_it_doubtful(monkeypatch):
    """A singular matrix, rows of sum zero, and a right-hand side that no x solves."""
    rows = np.repeat(np.arange(GRID.shape[0]), np.diff(GRID.graph.indptr))
    values = GRID.values.reshape(-1).copy()
    diagonal = rows == GRID.graph.indices
    values[diagonal] -= np.bincount(rows, values)
    A = CrsMatrix(GRID.graph, values[:, None] * np.array([1.0, 7.0]))
    decided = []
    decide = MinresHostScalars.decide_doubtful
    with monkeypatch.context() as patch:
        patch.setattr(MinresHostScalars, "decide_doubtful", lambda *a: (decided.append(a[1]), decide(*a)))
        compare(minres, A, Ensemble(B[:, :2]), {"rtol": 1e-12, "max_iterations": 300}, monkeypatch)
    assert np.any(decided, axis=0).all()


@pytest.mark.parametrize("method", ["cg", "minres", "bicgstab"])
def test_samples_are_those_of_scalar_runs(method):
    solve, A, b, options = ALL[method, "samples"]
    together = solve(A, b, **options)
    for s in range(b.n_samples):
        alone = solve(A.sample(s), B[:, s], **options)
        np.testing.assert_array_equal(alone.x, together.x.samples[:, s])
        assert alone.iterations[0] == together.iterations[s]


N_HUNTED = 300


@pytest.mark.slow
@pytest.mark.parametrize("solve", [cg, minres, bicgstab])
def test_random_systems_of_every_kind_have_the_bits_of_single_iterations(solve, monkeypatch):
    """Samples singular, indefinite, badly scaled, not finite, with zero right-hand sides, beside good ones."""
    rng = np.random.default_rng(11)
    graph = poisson((7, 5)).graph
    rows = np.repeat(np.arange(35), np.diff(graph.indptr))
    mirror = {(i, j): k for k, (i, j) in enumerate(zip(rows, graph.indices, strict=True))}
    mirrored = np.array([mirror[j, i] for i, j in zip(rows, graph.indices, strict=True)])
    for _ in range(N_HUNTED):
        n_samples, dtype = int(rng.integers(1, 12)), rng.choice([np.float64, np.float32])
        values = rng.standard_normal((graph.indices.size, n_samples))
        if solve is not bicgstab:
            values = values + values[mirrored]
        values[rows == graph.indices] += rng.choice([0.0, 3.0, 6.0, -6.0], n_samples)
        values *= 10.0 ** rng.choice([0, 0, 0, -150, 150], n_samples) if dtype is np.float64 else 1.0
        values *= rng.choice([1.0, 1.0, 1.0, 1.0, 0.0, np.nan], n_samples)
        b = rng.standard_normal((35, n_samples)) * rng.choice([1.0, 1.0, 1.0, 0.0, 1e-9], n_samples)
        x0 = Ensemble(rng.standard_normal((35, n_samples)).astype(dtype)) if rng.random() < 0.3 else None
        options = {
            "rtol": float(rng.choice([1e-3, 1e-8, 1e-16])),
            "max_iterations": int(rng.integers(1, 120)),
            "x0": x0,
        }
        A, right = CrsMatrix(graph, Ensemble(values.astype(dtype))), Ensemble(b.astype(dtype))
        if np.isfinite(b).all() and (b != 0.0).any():
            compare(solve, A, right, options, monkeypatch)
