"""The bits of solution, iterations, statuses and history do not depend on the number of ranks."""

import numpy as np
import pytest

import ensemble as en
from ensemble.distributed import serial
from ensemble.krylov import bicgstab, cg, gmres, minres
from ensemble.multigrid import Chebyshev, Jacobi, smoothed_aggregation
from tests.distributed.systems import box, digest, distributed_system, right_hand_side, shuffled

SAMPLES = (1, 8, 32)


def preconditioned(A, b, **options):
    return cg(A, b, M=smoothed_aggregation(A, **options))


def tolerances(b):
    return 10.0 ** -(2.0 + np.arange(b.n_samples) % 8)


METHODS = {
    "cg": cg,
    "cg, tolerances of each sample": lambda A, b: cg(A, b, rtol=tolerances(b), max_iterations=60),
    "cg, coupled": lambda A, b: cg(A, b, coupling="ensemble"),
    "cg, flexible": lambda A, b: cg(A, b, flexible=True, M=smoothed_aggregation(A)),
    "bicgstab": bicgstab,
    "gmres": lambda A, b: gmres(A, b, restart=15),
    "minres": minres,
    "smoothed aggregation": preconditioned,
    "smoothed aggregation, double": lambda A, b: preconditioned(A, b, dtype=np.float64),
    "smoothed aggregation, Jacobi": lambda A, b: preconditioned(A, b, smoother=Jacobi()),
    "smoothed aggregation, degree 3": lambda A, b: preconditioned(A, b, smoother=Chebyshev(degree=3, ratio=12.0)),
    "smoothed aggregation, two vectors": lambda A, b: preconditioned(A, b, near_nullspace=near(A)),
    "one iteration too few": lambda A, b: cg(A, b, max_iterations=5),
}


def near(A):
    """A constant and a ramp over the rows."""
    rows = A.space.first + np.arange(A.local_shape[0])
    return np.stack([np.ones(rows.size), rows / A.shape[0]], axis=1)


def systems(n_samples, cells):
    """Name, matrix, right-hand side and how it is cut."""
    A, at = box(cells, n_samples, spread=0.3)
    n = A.shape[0]
    b = right_hand_side(n, n_samples)
    yield "rows", A, b, {"domains": 7}
    yield "coordinates", A, b, {"domains": 7, "coordinates": at}
    yield "small numbers", A, 1e-200 * b, {"domains": 7}
    yield "large numbers", A, 1e200 * b, {"domains": 7}
    without = b.copy()
    without[: n // 2] = 0.0
    yield "zeros on a rank", A, without, {"domains": 7}
    some = b.copy()
    some[:, ::2] = 0.0
    yield "a sample of zeros", A, some, {"domains": 7}
    rough, at = box(cells, n_samples, spread=3.0)
    yield "rough coefficients", rough, b, {"domains": 5, "coordinates": at}
    mixed = shuffled(A)
    yield "shuffled, graph", mixed, b, {"domains": 6, "graph": mixed.graph}


def digests(comm, n_samples=8, cells=8, methods=None):
    """Digests of all systems and methods on rank 0."""
    found = {}
    for name, A, b, cut in systems(n_samples, cells):
        partition, M, right = distributed_system(comm, A, b, **cut)
        for method, solve in METHODS.items():
            if methods is None or method in methods:
                with np.errstate(all="ignore"):
                    found[name, method] = digest(partition, solve(M, right))
    return found


FEW = ("cg, tolerances of each sample", "smoothed aggregation")


@pytest.fixture(scope="module")
def of_one():
    return digests(serial(), 4, 6, FEW)


@pytest.mark.parametrize("ranks", [2, 3])
def test_several_ranks_give_the_bits_of_one(mpi, of_one, ranks):
    assert mpi(digests, ranks, 4, 6, FEW)[0] == of_one


@pytest.mark.slow
@pytest.mark.parametrize("n_samples", SAMPLES)
@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_many_ranks_give_the_bits_of_one_in_every_method(mpi, ranks, n_samples):
    """Eight ranks are more than there are domains: some have no row."""
    want = digests(serial(), n_samples, 10)
    assert mpi(digests, ranks, n_samples, 10, limit=1800.0)[0] == want  # 9 minutes on two busy cores


def lone_samples(comm):
    """Whether each sample of an ensemble has the bits of its own run, on this number of ranks."""
    A, at = box(7, 5, spread=0.5)
    b = right_hand_side(A.shape[0], 5)
    _, M, right = distributed_system(comm, A, b, domains=4, coordinates=at)
    alike = []
    for solve in (cg, bicgstab, preconditioned):
        together = solve(M, right)
        for i in range(5):
            alone = solve(M.take_samples([i]), en.Ensemble(np.ascontiguousarray(right.samples[:, i : i + 1])))
            alike.append(np.array_equal(together.x.samples[:, i], alone.x.samples[:, 0]))
            alike.append(together.iterations[i] == alone.iterations[0])
    return all(alike)


def test_each_sample_is_its_own_run_on_two_ranks(mpi):
    assert lone_samples(serial())
    assert all(mpi(lone_samples, 2))


def iterations(comm, cells, domains):
    A, at = box(cells, 2, spread=0.5)
    _, M, right = distributed_system(comm, A, right_hand_side(A.shape[0], 2), domains=domains, coordinates=at)
    return preconditioned(M, right).iterations.tolist(), preconditioned(A, en.Ensemble(right_hand_side(A.shape[0], 2)))


@pytest.mark.parametrize("domains", [2, 8])
def test_domains_cost_one_iteration_at_most(domains):
    found, whole = iterations(serial(), 16, domains)
    assert all(f <= w + 1 for f, w in zip(found, whole.iterations, strict=True))


def test_a_solution_over_ranks_is_that_of_the_whole_matrix(mpi):
    assert max(mpi(largest_difference, 3)) < 1e-6


def largest_difference(comm):
    A, at = box(9, 3, spread=0.3)
    b = right_hand_side(A.shape[0], 3)
    partition, M, right = distributed_system(comm, A, b, domains=5, coordinates=at)
    x = partition.gather(preconditioned(M, right).x)
    whole = cg(A, en.Ensemble(b), M=smoothed_aggregation(A)).x
    return 0.0 if x is None else float(np.abs(x.samples - whole.samples).max() / np.abs(whole.samples).max())


def by_norms_and_by_entries(comm, scale):
    """Digests of a solve whose V-cycle enters by norms, and by largest entries, on rank 0; and how often by norms."""
    A, at = box(8, 4, spread=0.3)
    b = scale * right_hand_side(A.shape[0], 4) * 10.0 ** (3.0 * np.arange(4) - 5.0)
    b[: A.shape[0] // 2, 1] = 0.0
    partition, M, right = distributed_system(comm, A, b, domains=5, coordinates=at)
    hierarchy, found, norms = smoothed_aggregation(M), [], []
    inner = type(hierarchy).precondition_dot

    def watched(self, r, out=None, workspace=None, norm=None):
        true = partition.norm(en.Ensemble(r)).samples
        norms.append(np.abs(norm / true - 1.0).max())
        return inner(self, r, out, workspace, None if len(found) else norm)

    type(hierarchy).precondition_dot = watched
    try:
        for _ in range(2):
            found.append(digest(partition, cg(M, right, M=hierarchy)))
    finally:
        type(hierarchy).precondition_dot = inner
    return found, norms


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_the_norm_that_a_v_cycle_enters_by_is_that_of_its_residual(mpi, scale):
    """A power of two rounds nothing: by norms and by largest entries a solve has the same bits."""
    ((by_norms, by_entries), norms), _ = mpi(by_norms_and_by_entries, 2, scale)
    assert by_norms == by_entries
    assert len(norms) > 8
    assert max(norms) < 1e-6


def of_gmres(comm, with_norms):
    """The digest of a solve by GMRES on rank 0, and how many maxima over all rows it took, of a sample of zeros too."""
    A, at = box(8, 4, spread=0.3)
    b = right_hand_side(A.shape[0], 4) * 10.0 ** (3.0 * np.arange(4) - 5.0)
    b[:, 2] = 0.0
    partition, M, right = distributed_system(comm, A, b, domains=5, coordinates=at)
    hierarchy, calls, largest = smoothed_aggregation(M), [], M.space.largest
    kind, takes = type(hierarchy), type(hierarchy).takes_norms
    M.space.largest = lambda values: (calls.append(1), largest(values))[1]
    try:
        if not with_norms:
            kind.takes_norms = False
        tolerances = 10.0 ** -(2.0 + 2.0 * np.arange(4))
        result = gmres(M, right, M=hierarchy, rtol=tolerances, restart=4)
        return digest(partition, result), len(calls), int(result.iterations.max())
    finally:
        kind.takes_norms = takes
        del M.space.largest


def test_gmres_spares_maxima_of_basis_vectors_and_keeps_its_bits(mpi):
    (found, few, steps), _ = mpi(of_gmres, 2, True)
    (want, many, _), _ = mpi(of_gmres, 2, False)
    assert found == want
    assert many - few >= steps
