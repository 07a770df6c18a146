"""Direct solves with exchanges: samples that take the same pivots together, and each sample the bits of its own run."""

import pickle
from importlib import import_module

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

from ensemble import Ensemble
from ensemble._kernels.direct.equilibration import SWEEPS, units_of
from ensemble._kernels.direct.pivot_sequences import follows
from ensemble.krylov import Status, direct
from ensemble.linalg import CrsGraph, CrsMatrix, Factorization
from ensemble.linalg.factorizations.sequences import PivotRule, exchanged_together, takes_exchanges_first
from tests.krylov.needing_exchanges import KINDS, family_of, fresh, largest_backward_error, shuffled


@pytest.mark.parametrize("family", ["values", "units"])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_equal_their_own_runs_whatever_the_graph_met_before(kind, family, rng):
    base = KINDS[kind](90, rng)
    A, b = family_of(base, family, 13, rng), rng.standard_normal((90, 13))
    other = family_of(base, "values", 5, rng)
    direct(CrsMatrix(A.graph, other.values), np.ones(90))
    first, again = direct(A, Ensemble(b)), direct(A, Ensemble(b))
    assert first.converged.all() and largest_backward_error(A, first.x.samples, b) <= 1e-13
    np.testing.assert_array_equal(again.x.samples, first.x.samples)
    for s in (0, 6, 12):
        alone = direct(fresh(A, s), b[:, s])
        np.testing.assert_array_equal(alone.x, first.x.samples[:, s])
        for name in ("status", "iterations", "repaired", "backward_errors", "true_residual_norms"):
            assert getattr(alone, name)[0] == getattr(first, name)[s]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_that_differ_by_units_take_the_same_pivots(kind, rng):
    A = family_of(KINDS[kind](90, rng), "units", 16, rng)
    together = max(group.samples.size for group in exchanged_together(A, np.arange(16)))
    assert together >= 8
    direct(A, np.ones(90))
    assert len(list(exchanged_together(A, np.arange(16)))) <= 4


@pytest.mark.parametrize("kind", KINDS)
def test_no_sample_is_factorised_alone_where_pivots_are_shared(kind, rng, monkeypatch):
    module = import_module("ensemble.krylov._direct_solution")
    monkeypatch.setattr(module, "pivoted", lambda A: pytest.fail("SuperLU was called"))
    assert direct(family_of(KINDS[kind](60, rng), "values", 8, rng), np.ones(60)).converged.all()


def test_samples_with_zeros_of_their_own_are_solved_apart(rng):
    A = family_of(shuffled(60, rng), "values", 9, rng)
    values = A.values.copy()
    values[A.graph.indptr[:-1][::3], 1::3] = 0.0
    values[A.graph.indptr[:-1][1::4], 2::3] = 0.0
    A = CrsMatrix(A.graph, values)
    result = direct(A, np.ones(60))
    for s in range(9):
        alone = direct(fresh(A, s), np.ones(60))
        np.testing.assert_array_equal(alone.x, result.x.samples[:, s])
        assert alone.status[0] is result.status[s]
        if result.converged[s]:
            exact = sla.spsolve(A.to_scipy(s).tocsc(), np.ones(60))
            np.testing.assert_allclose(alone.x, exact, rtol=1e-6, atol=1e-9 * np.abs(exact).max())


def test_bad_samples_change_no_other(rng):
    A, b = family_of(shuffled(60, rng), "values", 8, rng), np.ones(60)
    values = A.values.copy()
    values[3, 1], values[5, 2] = np.nan, np.inf
    values[A.graph.indptr[7] : A.graph.indptr[8], 4] = 0.0
    bad, good = direct(CrsMatrix(A.graph, values), b), direct(A, b)
    others = [0, 3, 5, 6, 7]
    np.testing.assert_array_equal(bad.x.samples[:, others], good.x.samples[:, others])
    assert bad.converged[others].all() and [bad.status[s] for s in (1, 2, 4)] == [Status.breakdown] * 3


def test_a_singular_matrix_without_a_diagonal_is_not_called_solved(rng):
    A = family_of(shuffled(50, rng, 0.0), "values", 4, rng)
    values, graph = A.values.copy(), A.graph
    dense = np.zeros((50, 50))
    dense[graph.row_of_entry, graph.indices] = values[:, 0]
    dense[11] = dense[3] + dense[20]  # on a graph of its own
    single = sp.csr_array(dense)
    assert takes_exchanges_first(CrsMatrix.from_scipy(single).graph)
    found = direct([single, single + 0.0 * single], rng.standard_normal(50))
    assert not found.converged.any()


@pytest.mark.parametrize("shared", [False, True])
def test_conditions_are_those_of_the_matrices(shared, rng):
    A = family_of(shuffled(40, rng), "values", 1 if shared else 5, rng)
    result = direct(A, Ensemble(rng.standard_normal((40, 5))))
    kept = pickle.loads(pickle.dumps(result))
    for s in range(5):
        exact = 1.0 / np.linalg.cond(A.to_scipy(0 if shared else s).toarray(), 1)
        assert 0.99 * exact <= kept.rcond[s] <= 10.0 * exact
    changed = direct(A, Ensemble(rng.standard_normal((40, 5))))
    A.values[:, 0] *= 1.5
    assert np.isnan(changed.rcond[0]) and (shared or np.isfinite(changed.rcond[1:]).all())


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_numbers_of_any_magnitude(scale, rng):
    A = family_of(shuffled(40, rng), "values", 4, rng)
    result, plain = direct(scale * A, np.ones(40)), direct(A, np.ones(40))
    assert result.converged.all()
    np.testing.assert_allclose(result.x.samples * scale, plain.x.samples, rtol=1e-9)


# --- kernels
@pytest.mark.parametrize("n_samples", [1, 8, 33])
def test_units_are_those_of_the_reference(n_samples, rng):
    base = shuffled(30, rng)
    values = base.data[:, None] * np.exp(rng.standard_normal((base.nnz, n_samples)))
    kept, row = rng.random(base.nnz) < 0.9, np.repeat(np.arange(30), np.diff(base.indptr))
    graph = CrsGraph(base.indptr, base.indices, base.shape).subgraph(kept)
    values[~kept] = 0.0
    values[np.flatnonzero(~kept)[0], n_samples - 1] = 3.0
    made = units_of(graph.indptr, graph.indices, np.flatnonzero(kept), np.flatnonzero(~kept), values)
    size, i, j = np.abs(values[kept]), row[kept], base.indices[kept]
    columns = np.ones((30, n_samples))
    inverse = lambda x: 1.0 / np.where(x > 0.0, x, 1.0)
    for _ in range(SWEEPS):
        rows, sums = np.zeros((2, 30, n_samples))
        np.add.at(rows, i, size * columns[j])
        np.add.at(sums, j, size * inverse(rows)[i])
        columns = inverse(sums)
    np.testing.assert_allclose(made.columns, columns, rtol=1e-4)
    assert (made.odd != 0.0).tolist() == [False] * (n_samples - 1) + [True]


@pytest.mark.parametrize("form", ["flat", "rows"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_elimination_is_a_samples_own_exactly_where_its_pivots_are(kind, form, rng, monkeypatch):
    from ensemble.linalg.factorizations import orderings

    if form == "rows":
        monkeypatch.setattr(orderings, "FLAT", -1)
    base = KINDS[kind](50, rng)
    rule = PivotRule(CrsGraph(base.indptr, base.indices, base.shape), base.data != 0.0)
    wild = base.data[:, None] * np.exp(6.0 * rng.standard_normal((base.nnz, 20)))
    units = rule.units(wild).columns
    own = [rule.sequence(wild[:, s], units[:, s]) for s in range(20)]
    for s in (0, 7, 19):
        kept = rule.remember(own[s])
        F = kept.F.update(CrsMatrix(rule.whole, wild))
        same = [np.array_equal(own[s].columns, other.columns) for other in own]
        assert (
            follows(F.values if F.tiles is None else F.tiles, F.plan, kept.columns, kept.marks, units).tolist() == same
        )
        np.testing.assert_array_equal(F.values[:, s], own[s].values)
        alone, b = rule.own_factors(own[s]), rng.standard_normal((50, 1))
        np.testing.assert_array_equal(alone.apply(b), F.take_samples([s]).apply(b))
        np.testing.assert_array_equal(alone.T.apply(b), F.take_samples([s]).T.apply(b))


def test_matching_of_the_mean_does_not_depend_on_units(rng):
    A = family_of(shuffled(80, rng), "units", 16, rng)
    plain = family_of(CrsMatrix(A.graph, A.values[:, 0]).to_scipy(0), "values", 16, rng)
    for matrix in (A, plain):
        F = Factorization(matrix, matching="mean")
        assert not direct(matrix, np.ones(80), factorization=F).repaired.any()
