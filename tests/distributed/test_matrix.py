"""Distributed matrices: products, transposes, updates, and errors that all ranks raise."""

import numpy as np
import pytest
import scipy.sparse as sp

import ensemble as en
from ensemble.distributed import DistributedCrsMatrix, Partition, coarsening, serial
from ensemble.distributed.coarsening import aggregates_within_domains
from ensemble.krylov import cg
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.multigrid import GaussSeidel, smoothed_aggregation
from tests.distributed.systems import box, digest, distributed_system, right_hand_side, shuffled


def unsymmetric(n=150, n_samples=3, seed=4):
    """A random matrix with an empty row and an empty column, values of each sample's own."""
    rng = np.random.default_rng(seed)
    pattern = sp.random(n, n, 0.05, random_state=seed, format="lil")
    pattern[7], pattern[:, 11] = 0.0, 0.0
    pattern = sp.csr_array(pattern.tocsr())
    pattern.eliminate_zeros()
    graph = CrsGraph(pattern.indptr, pattern.indices, (n, n))
    return CrsMatrix(graph, rng.standard_normal((graph.nnz, n_samples)))


def products(comm):
    """A x, A^T x, their errors and the bits of both, on rank 0."""
    A = unsymmetric()
    x = right_hand_side(150, 3)
    found = []
    for cut in ({"domains": 6}, {"domains": 5, "graph": CrsMatrix.from_scipy(A.to_scipy(0) + A.to_scipy(0).T).graph}):
        partition, M, v = distributed_system(comm, A, x, **cut)
        for distributed, whole in ((M, A), (M.T, A.T), (M.T.T, A)):
            y = partition.gather(distributed @ v)
            inner = M.apply_dot(v.samples)[1]
            if y is not None:
                want = (whole @ en.Ensemble(x)).samples
                assert np.abs(y.samples - want).max() < 1e-13
                found += [y.samples.tobytes(), inner.tobytes()]
        assert distributed.shape == (150, 150) and distributed.nnz == A.nnz
    return found


@pytest.mark.parametrize("ranks", [2, 3])
def test_products_have_the_same_bits_on_any_number_of_ranks(mpi, ranks):
    want = products(serial())
    assert mpi(products, ranks)[0] == want


def updated(comm):
    """The digest of a solve after new values went into matrix and hierarchy, and of a solve from scratch."""
    A, at = box(7, 3)
    new, _ = box(7, 3, seed=8, spread=0.8)
    b = right_hand_side(A.shape[0], 3)
    cut = {"domains": 5, "coordinates": at}
    partition, M, right = distributed_system(comm, A, b, **cut)
    _, other, _ = distributed_system(comm, new, b, **cut)
    hierarchy = smoothed_aggregation(M)
    values = other.values.copy()
    again = hierarchy.update(M.with_values(values))
    first = digest(partition, cg(M.with_values(values), right, M=again))
    return first, digest(partition, cg(other, right, M=smoothed_aggregation(other)))


@pytest.mark.slow
def test_an_updated_hierarchy_is_that_of_the_new_matrix(mpi):
    one = updated(serial())
    assert one[0] == one[1]
    assert mpi(updated, 2)[0] == one


def test_update_takes_values_in_the_order_of_the_given_matrix():
    A = shuffled(box(5, 2)[0])
    partition = Partition(A.shape[0], serial(), 3, graph=A.graph)
    rows = partition.rows
    parts = [sp.csr_array(A.to_scipy(i)[rows]) for i in range(2)]
    M = DistributedCrsMatrix(partition, CrsMatrix.from_scipy(parts))
    x = partition.scatter(right_hand_side(A.shape[0], 2)[:, 0])
    before = M @ x
    values = np.stack([part.data for part in parts], axis=1)
    after = M.update(en.Ensemble(2.0 * values)) @ x
    assert np.array_equal(after.samples, 2.0 * before.samples)
    with pytest.raises(ValueError, match=r"DistributedCrsMatrix.update: values must have"):
        M.update(np.ones(3))


def test_a_plain_vector_gives_a_plain_product():
    A = box(4, 1)[0]
    shared = CrsMatrix(A.graph, A.values[:, 0])
    M = DistributedCrsMatrix(Partition(64, serial(), 2), shared)
    assert isinstance(M @ np.ones(64), np.ndarray)
    assert np.allclose(M @ np.ones(64), shared @ np.ones(64))


def wrong_shape(comm):
    partition = Partition(20, comm, 4)
    columns = 20 if comm.rank == 0 else 19
    with pytest.raises(ValueError, match="DistributedCrsMatrix: local must have shape") as raised:
        DistributedCrsMatrix(partition, sp.csr_array((partition.n_local, columns)))
    return raised.value.__notes__


def other_samples(comm):
    partition = Partition(20, comm, 4)
    local = CrsMatrix.from_scipy([sp.eye_array(20).tocsr()[partition.rows]] * (1 + comm.rank))
    with pytest.raises(ValueError, match="be the same on every rank"):
        DistributedCrsMatrix(partition, local)
    return True


def test_what_is_wrong_on_one_rank_is_raised_on_all(mpi):
    assert mpi(wrong_shape, 2) == [["Raised on rank 1 of 2."]] * 2
    assert mpi(other_samples, 2) == [True] * 2


OPTIONS = {"strength": 0.25, "improve_candidates": 2, "reorder": True, "smoother": GaussSeidel()}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_by_values_are_refused_by_name(name):
    A = box(4, 1)[0]
    M = DistributedCrsMatrix(Partition(64, serial(), 2), A)
    with pytest.raises(ValueError, match=f"smoothed_aggregation: {name} must"):
        smoothed_aggregation(M, **{name: OPTIONS[name]})


class PetscMatrix:
    """What `from_petsc` asks of a petsc4py matrix."""

    def __init__(self, comm, matrix):
        self.comm, n = comm, matrix.shape[0]
        self.size = n
        cuts = np.arange(comm.size + 1) * n // comm.size
        self.range = int(cuts[comm.rank]), int(cuts[comm.rank + 1])
        self.part = matrix[self.range[0] : self.range[1]]

    def getComm(self):
        return self

    def tompi4py(self):
        return self.comm

    def getSize(self):
        return self.size, self.size

    def getOwnershipRange(self):
        return self.range

    def getValuesCSR(self):
        return self.part.indptr, self.part.indices, self.part.data


def of_petsc(comm):
    A = unsymmetric(101, 1).to_scipy(0)
    M = DistributedCrsMatrix.from_petsc(PetscMatrix(comm, A), domains=5)
    x = right_hand_side(101, 1)[:, 0]
    y = M.partition.gather(M @ M.partition.scatter(x))
    return y is None or float(np.abs(y - A @ x).max())


def test_rows_of_a_petsc_matrix_go_to_the_ranks_of_the_partition(mpi):
    assert of_petsc(serial()) < 1e-14
    assert max(v for v in mpi(of_petsc, 3) if v is not True) < 1e-14


@pytest.mark.parametrize("block_size", [1, 2])
def test_a_domain_has_the_aggregates_of_a_box_of_its_own(block_size, monkeypatch):
    """Of 4 x 4 domains of 9 x 9 nodes the four in the middle have nine aggregates of 3 x 3 nodes each."""
    monkeypatch.setattr(coarsening, "LARGE_DOMAIN", 81)
    n = 36
    line = sp.diags_array([np.ones(n - 1), np.full(n, 8.0), np.ones(n - 1)], offsets=[-1, 0, 1])
    A = sp.csr_array(sp.kron(sp.kron(line, line), np.eye(block_size) + 1.0))
    at = np.stack(np.meshgrid(np.arange(n), np.arange(n), indexing="ij"), axis=-1).reshape(-1, 2).astype(float)
    at = np.repeat(at, block_size, axis=0)
    partition = Partition(A.shape[0], serial(), 16, coordinates=at)
    member, count, domain = aggregates_within_domains(DistributedCrsMatrix(partition, A[partition.rows]), block_size)
    inside = ((at[partition.rows] >= 9) & (at[partition.rows] < 27)).all(axis=1)
    own = np.unique(member[inside])
    np.testing.assert_array_equal(np.bincount(member)[own], 9 * block_size)
    np.testing.assert_array_equal(np.unique(domain[own], return_counts=True)[1], 9)
    first = np.array([np.argmax(member == a) for a in range(count)])
    assert np.all(np.diff(first) > 0)
    np.testing.assert_array_equal(domain, partition.layout.domain_of(first))
