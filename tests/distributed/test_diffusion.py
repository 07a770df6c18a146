"""`RandomDiffusion` over ranks: rows with the serial bits, solutions with the same bits on any number of ranks."""

import hashlib

import numpy as np
import pytest

import ensemble as en
from ensemble.apps.fem import RandomDiffusion
from ensemble.distributed import serial

CELLS = (7, 6, 9)
DOMAINS = 7

PROBLEMS = {
    "linear": {},
    "source": {"source": 1.0, "variance": 0.1},
    "advection": {"advection": 0.7, "grading": 0.0},
    "lognormal": {"coefficient": "lognormal", "variance": 0.5},
}


def samples(n_samples, dtype=np.float64):
    return np.random.default_rng(517).uniform(-1.0, 1.0, (5, n_samples)).astype(dtype)


def digest(*arrays):
    found = hashlib.md5()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def solved(comm, cells, domains, cases, kept=None):
    """For each case the digest of all that a solve gives, the same on every number of ranks.

    Solutions and iterations of rank 0 are added to the list `kept`.
    """
    found = []
    for options, n_samples, solve in cases:
        problem = RandomDiffusion(cells, comm=comm, domains=domains, **options)
        result = problem.solve(en.Ensemble(samples(n_samples)), **solve)
        u = problem.partition.gather(result.u)
        own = result.newton_iterations, result.iterations, result.response.samples, result.newton.residual_norms
        found.append((None if u is None else digest(u.samples, *own), digest(*own), int(result.converged.sum())))
        if kept is not None:
            kept.append((u, result.iterations))
    return found


CASES = [
    (PROBLEMS["linear"], 1, {}),
    (PROBLEMS["linear"], 32, {}),
    (PROBLEMS["source"], 8, {}),
    (PROBLEMS["advection"], 8, {}),
    (PROBLEMS["lognormal"], 8, {"solver": "bicgstab"}),
    (PROBLEMS["linear"], 8, {"coupling": "ensemble"}),
    (PROBLEMS["source"], 8, {"max_newton_iterations": 0}),
    (PROBLEMS["source"], 8, {"max_newton_iterations": 1}),
]


def computed(comm, u, kept=None):
    """What the tests below look at of what is computed."""
    return {
        "solved": solved(comm, CELLS, DOMAINS, CASES, kept),
        "rows": [assembled(comm, CELLS, DOMAINS, options, u) for options in PROBLEMS.values()],
        "negative": negative(comm, 4),
    }


def everything(comm, u):
    """The same, and what is refused."""
    return {**computed(comm, u), "refused": refused(comm)}


@pytest.fixture(scope="module")
def state():
    return np.random.default_rng(7).standard_normal((np.prod(np.array(CELLS) + 1), 3))


@pytest.fixture(scope="module")
def one_rank(state):
    """Digests, and solutions with iterations."""
    kept = []
    return computed(serial(), state, kept)["solved"], kept


@pytest.fixture(scope="module")
def alone(one_rank):
    return one_rank[0]


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.slow), 3])
def found(request, mpi, state, alone):  # one process compiles before the ranks start
    return mpi(everything, request.param, state, limit=300.0)


def test_solutions_have_the_bits_of_one_rank(found, alone):
    assert found[0]["solved"] == alone
    assert all([own[1:] for own in each["solved"]] == [own[1:] for own in alone] for each in found)


def test_solutions_are_those_without_ranks(one_rank):
    for (options, n_samples, solve), (_, _, converged), (u, iterations) in zip(CASES, *one_rank, strict=True):
        whole = RandomDiffusion(CELLS, **options).solve(en.Ensemble(samples(n_samples)), **solve)
        assert converged == whole.converged.sum()
        np.testing.assert_allclose(u.samples, whole.u.samples, rtol=1e-5, atol=1e-6)
        assert np.all(iterations <= 1.15 * whole.iterations + whole.newton_iterations)


def assembled(comm, cells, domains, options, u):
    """This rank's rows, by the caller's numbers: rows, columns, values, residual; and the sample law on them."""
    problem = RandomDiffusion(cells, comm=comm, domains=domains, **options)
    y, partition = en.Ensemble(samples(3)), problem.partition
    u = en.Ensemble(u[partition.rows])
    A, residual = problem.assemble(y, u)
    again, _ = problem.assemble(y, u, out=A)
    assert again.values is A.values
    rows = np.repeat(partition.rows, np.diff(A.indptr))
    return rows, partition.caller_of(A.numbers), A.values, partition.rows, residual.samples


@pytest.mark.parametrize("place, name", list(enumerate(PROBLEMS)))
def test_entries_and_residuals_have_the_serial_bits(found, state, place, name):
    A, residual = RandomDiffusion(CELLS, **PROBLEMS[name]).assemble(en.Ensemble(samples(3)), en.Ensemble(state))
    whole = {(i, j): v.tobytes() for i, j, v in zip(A.graph.row_of_entry, A.graph.indices, A.values, strict=True)}
    seen = 0
    for each in found:
        rows, columns, values, own, r = each["rows"][place]
        assert r.tobytes() == np.ascontiguousarray(residual.samples[own]).tobytes()
        assert all(whole[i, j] == v.tobytes() for i, j, v in zip(rows, columns, values, strict=True))
        seen += rows.size
    assert seen == A.graph.nnz


def refused(comm):
    """The errors that every rank raises where one of them, or all, are wrong."""
    texts = []

    def note(call):
        with pytest.raises((ValueError, TypeError)) as error:
            call()
        texts.append(str(error.value).split("; got")[0])

    problem, last = RandomDiffusion(3, comm=comm), comm.rank == comm.size - 1
    note(lambda: RandomDiffusion(3, comm=comm, backend="cupy"))
    note(lambda: RandomDiffusion(-3 if last else 3, comm=comm))
    note(lambda: RandomDiffusion(4 if last else 3, comm=comm))
    note(lambda: problem.solve(samples(2)[:, 1] if last else samples(2)[:, 0]))
    note(lambda: problem.solve(np.ones(4) if last else np.ones(5)))
    note(lambda: problem.solve(np.zeros(5), u0=np.ones(3) if last else None))
    note(lambda: problem.solve(np.zeros(5), operator="affine"))
    note(lambda: problem.solve(np.zeros(5), solver="direct"))
    advected = RandomDiffusion(3, comm=comm, advection=0.5)
    note(lambda: advected.assemble(np.zeros(5), symmetric=True))
    note(lambda: problem.operator(np.ones(8 * 27)))
    return texts


def test_errors_are_raised_on_every_rank_alike(found):
    one = found[0]["refused"]
    assert all(each["refused"] == one for each in found)
    for text, argument in zip(
        one, ("backend", "cells", "n", "y", "y", "u0", "comm", "comm", "symmetric"), strict=False
    ):
        assert f": {argument} must" in text, text


def negative(comm, cells):
    problem = RandomDiffusion(cells, comm=comm, domains=4, variance=1.0)
    y = samples(4)
    y[:, 2] *= 9.0
    with pytest.raises(ValueError, match="sample 2") as error:
        problem.check(en.Ensemble(y))
    y[0, 2] = np.nan
    problem.check(en.Ensemble(y))
    result = problem.solve(en.Ensemble(y))
    return str(error.value).partition("\nRaised")[0], result.converged.tolist()


def test_a_negative_diffusivity_and_a_nan_are_named_as_without_ranks(found):
    problem = RandomDiffusion(4, variance=1.0)
    y = samples(4)
    y[:, 2] *= 9.0
    with pytest.raises(ValueError) as error:
        problem.check(en.Ensemble(y))
    assert [each["negative"] for each in found] == [(str(error.value), [True, True, False, True])] * len(found)


def test_domains_need_ranks():
    with pytest.raises(ValueError, match=r"RandomDiffusion: domains must be None without comm"):
        RandomDiffusion(3, domains=2)
    with pytest.raises(TypeError, match=r"RandomDiffusion: comm must be a communicator"):
        RandomDiffusion(3, comm=3)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("cells, domains", [(20, None), ((13, 30, 9), 11), (2, 2), ((1, 1, 40), 9)])
def test_four_meshes_have_the_bits_of_one_rank(mpi, cells, domains, ranks):
    cases = [(options, n, {}) for n in (1, 8, 32) for options in PROBLEMS.values()]
    want = solved(serial(), cells, domains, cases)
    assert mpi(solved, ranks, cells, domains, cases, limit=600.0)[0] == want
