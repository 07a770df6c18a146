"""Solutions by known sequences of pivots, a tile of samples in one pass: they have the bits of groups."""

import warnings
from importlib import import_module

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

from ensemble import Ensemble
from ensemble._kernels.direct.solved_at_once import _solutions, solved_at_once
from ensemble.krylov import Status, direct
from ensemble.linalg import CrsMatrix
from ensemble.linalg.factorizations.sequences import rules_of
from tests.krylov.needing_exchanges import KINDS, family_of, fresh, largest_backward_error, shuffled

PER_SAMPLE = ("status", "iterations", "repaired", "alone", "backward_errors", "true_residual_norms", "target")

MODULE = import_module("ensemble.krylov._exchanged_solution")


def by_groups(A, b, monkeypatch, **options):
    """What `direct` finds without solutions by known pivots."""
    with monkeypatch.context() as patched:
        patched.setattr(MODULE, "solved_by_known", lambda *arguments: None)
        return direct(A, b, **options)


def by_known(A, b, monkeypatch, **options):
    """What `direct` finds where no sample may be left to groups."""
    with monkeypatch.context() as patched:
        patched.setattr(MODULE, "exchanged_together", lambda *arguments: pytest.fail("a sample was left"))
        return direct(A, b, **options)


def require_equal(found, expected):
    np.testing.assert_array_equal(found.x.samples, expected.x.samples)
    np.testing.assert_array_equal(found.residual_norms, expected.residual_norms)
    for name in PER_SAMPLE:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


@pytest.mark.parametrize("family", ["values", "units"])
@pytest.mark.parametrize("kind", KINDS)
def test_known_pivots_give_the_bits_of_groups(kind, family, rng, monkeypatch):
    A, b = family_of(KINDS[kind](90, rng), family, 32, rng), Ensemble(rng.standard_normal((90, 32)))
    rtol = np.geomspace(1e-18, 1e-6, 32)
    for _ in range(3):  # until each sequence has been met twice
        direct(A, b)
    groups = by_groups(A, b, monkeypatch, rtol=rtol)
    known = by_known(A, b, monkeypatch, rtol=rtol)
    require_equal(known, groups)
    np.testing.assert_array_equal(known.rcond, groups.rcond)
    assert known.converged.all() and largest_backward_error(A, known.x.samples, b.samples) <= 1e-13


@pytest.mark.parametrize("n_samples", [1, 2, 8, 9, 17])
def test_any_number_of_samples_has_the_same_bits(n_samples, rng, monkeypatch):
    A, b = family_of(shuffled(60, rng), "units", 17, rng), rng.standard_normal((60, 17))
    for _ in range(3):
        whole = direct(A, Ensemble(b))
    some = CrsMatrix(A.graph, np.ascontiguousarray(A.values[:, :n_samples]))
    part = by_known(some, Ensemble(b[:, :n_samples].copy()), monkeypatch)
    np.testing.assert_array_equal(part.x.samples, whole.x.samples[:, :n_samples])
    np.testing.assert_array_equal(part.backward_errors, whole.backward_errors[:n_samples])


def test_bad_samples_among_known_pivots_change_no_other(rng):
    A, b = family_of(shuffled(60, rng), "values", 20, rng), rng.standard_normal((60, 20))
    good = [direct(A, Ensemble(b)) for _ in range(3)][-1]
    values, right = A.values.copy(), b.copy()
    values[3, 1], values[5, 17], right[4, 2] = np.nan, np.inf, np.nan
    values[A.graph.indptr[7] : A.graph.indptr[8], 5] = 0.0  # singular
    values[::7, 9] = 0.0  # zeros of its own
    values[:, 11] *= 1e200
    values[:, 12] *= 1e-200
    values[:, 13] *= np.exp(12.0 * rng.standard_normal(A.graph.nnz))  # other pivots
    right[:, 14] = 0.0
    right[:, 15] *= 1e-250
    bad = direct(CrsMatrix(A.graph, values), Ensemble(right))
    others = [0, 3, 4, 6, 7, 8, 10, 16, 18, 19]
    np.testing.assert_array_equal(bad.x.samples[:, others], good.x.samples[:, others])
    assert bad.converged[[*others, 11, 12, 14, 15]].all() and not bad.converged[[1, 2, 5, 17]].any()
    for s in (9, 11, 12, 13, 14, 15):
        alone = direct(fresh(CrsMatrix(A.graph, values), s), right[:, s])
        np.testing.assert_array_equal(alone.x, bad.x.samples[:, s])
        for name in ("status", "iterations", "repaired", "backward_errors", "true_residual_norms"):
            assert getattr(alone, name)[0] == getattr(bad, name)[s]
    exact = sla.spsolve(A.to_scipy(12).tocsc(), right[:, 12]) * 1e200
    np.testing.assert_allclose(bad.x.samples[:, 12], exact, rtol=1e-8, atol=1e-12 * np.abs(exact).max())


@pytest.mark.parametrize("distance", [1e-9, 1e-15])
def test_a_nearly_singular_sample_is_judged_as_in_its_own_run(distance, rng):
    dense = shuffled(50, rng, 0.0).toarray()
    own = rng.standard_normal(50) * (dense[[3, 11, 20]] != 0.0).any(axis=0)
    dense[11] = own
    A, b = family_of(sp.csr_array(dense), "values", 20, rng), rng.standard_normal((50, 20))
    direct(A, Ensemble(b))
    values, row = A.values.copy(), A.graph.row_of_entry
    single = np.zeros((50, 50))
    single[row, A.graph.indices] = values[:, 4]
    single[11] = single[3] + single[20] + distance * own
    values[:, 4] = single[row, A.graph.indices]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            together = direct(CrsMatrix(A.graph, values), Ensemble(b))
        alone = direct(fresh(CrsMatrix(A.graph, values), 4), b[:, 4])
    assert together.converged[4] == (distance == 1e-9) and together.converged[[3, 5, 19]].all()
    assert together.rcond[4] == alone.rcond[0] < 1e-8
    np.testing.assert_array_equal(together.x.samples[:, 4], alone.x)
    for name in ("status", "iterations", "repaired", "backward_errors"):
        assert getattr(alone, name)[0] == getattr(together, name)[4]


def test_most_samples_are_served_in_one_call(rng, monkeypatch):
    A = family_of(shuffled(60, rng), "values", 16, rng)
    direct(A, np.ones(60))
    counts = []
    module = import_module("ensemble.linalg.factorizations.known_sequences")
    once = module.solved_at_once

    def counted(*arguments):
        found = once(*arguments)
        counts.append(found.left.size)
        return found

    monkeypatch.setattr(module, "solved_at_once", counted)
    assert by_known(A, np.ones(60), monkeypatch).converged.all()
    assert counts == [16] and len(rules_of(A.graph).known[0].plans) == 1
    assert _solutions(16).by_numba == ""  # which takes ten times as long


def test_statuses_of_samples_that_no_pivots_serve_are_those_of_own_runs(rng):
    A = family_of(shuffled(60, rng), "values", 10, rng)
    direct(A, np.ones(60))
    values = A.values.copy()
    values[:, ::3] = 0.0
    found = direct(CrsMatrix(A.graph, values), np.ones(60))
    assert [s is Status.converged for s in found.status] == [s % 3 != 0 for s in range(10)]


@pytest.mark.parametrize("n_samples", [1, 20])
@pytest.mark.parametrize("given", ["vector", "strided vector", "ensemble"])
def test_a_call_with_new_values_is_one_pass_with_the_result_of_the_long_way(given, n_samples, rng, monkeypatch):
    """A graph that was met: nothing is checked, joined or copied beside the pass, and nothing else differs."""
    A, module = family_of(shuffled(60, rng), "units", n_samples, rng), import_module("ensemble.krylov.direct")
    b = rng.standard_normal((60, n_samples))
    right = {"vector": b[:, 0].copy(), "strided vector": b[:, 0], "ensemble": Ensemble(b)}[given]
    for _ in range(3):
        direct(A, right)
    again = CrsMatrix(A.graph, np.exp(0.01 * rng.standard_normal(A.values.shape)) * A.values)
    with monkeypatch.context() as patched:
        patched.setattr(module, "solved_again", lambda *arguments: None)
        expected = direct(again, right)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_solution", lambda *arguments: pytest.fail("took the long way"))
        found = direct(again, right)
    assert type(found.x) is type(expected.x) and found.summary == expected.summary
    np.testing.assert_array_equal(
        np.asarray(getattr(found.x, "samples", found.x)), getattr(expected.x, "samples", expected.x)
    )
    for name in (*PER_SAMPLE, "residual_norms", "rcond"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
        assert getattr(found, name).dtype == getattr(expected, name).dtype


@pytest.mark.parametrize(
    "other", [{"dtype": "float32"}, {"kind": "ldlt"}, {"ordering": "amd"}, {"matching": "mean"}, {"rtol": 0}]
)
def test_other_options_are_not_taken_for_defaults(other, rng, monkeypatch):
    A, module = family_of(shuffled(60, rng), "units", 3, rng), import_module("ensemble.krylov.direct")
    for _ in range(2):
        direct(A, np.ones(60))
    called = []
    monkeypatch.setattr(module, "_solution", lambda *arguments: called.append(arguments))
    direct(A, np.ones(60), **other)
    assert called


def test_errors_of_a_repeated_call_are_those_of_the_first(rng):
    A = family_of(shuffled(60, rng), "units", 3, rng)
    wrong = [(np.ones(59), {}), (Ensemble(np.ones((60, 2))), {}), (np.ones(60), {"rtol": -1.0}), (np.ones((60, 2)), {})]

    def messages():
        found = []
        for b, options in wrong:
            with pytest.raises(ValueError) as error:
                direct(A, b, **options)
            found.append(str(error.value))
        return found

    first = messages()
    for _ in range(2):
        direct(A, np.ones(60))
    assert messages() == first


@pytest.mark.parametrize(
    "chosen",
    [
        [6, 13], [0, 7], [2, 17], [2, 3, 9], [1, 6, 8], [0, 8, 9, 15], [5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8], [5],
        [*range(1, 9), 16], [*range(16), 20, 35],
    ],
)  # fmt: skip
def test_some_samples_are_those_named(chosen, rng, monkeypatch):
    """The last sample stands in the lanes that are left: 6 and 13, six times again, are no eight neighbours."""
    A, b = family_of(shuffled(60, rng), "values", 36, rng), rng.standard_normal((60, 36))
    whole = [direct(A, Ensemble(b)) for _ in range(2)][-1]
    values = A.values.copy()
    others = np.setdiff1d(np.arange(36), chosen)
    values[:, others] *= np.exp(12.0 * rng.standard_normal((A.graph.nnz, others.size)))  # other pivots
    (pivots,) = [kept.at_once for kept in rules_of(A.graph).known[0].plans.values()]
    x, places = np.full((60, 36), np.nan), np.array(chosen)
    found = solved_at_once(values, b, places, 1e-12, pivots, MODULE.LIMITS, x, places)
    assert not found.left.any()
    np.testing.assert_array_equal(x[:, places], whole.x.samples[:, places])
    assert np.isnan(x[:, others]).all()
