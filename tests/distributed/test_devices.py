"""Ranks on a CUDA device: NCCL on one rank, messages through the host where ranks share the device."""

import numpy as np
import pytest

import ensemble as en
from ensemble._backend import to_numpy
from ensemble._compile.device_messages import nccl_version
from ensemble.distributed import DistributedCrsMatrix, Partition, devices, serial
from ensemble.krylov import bicgstab, cg, gmres, minres
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.multigrid import smoothed_aggregation
from tests.distributed.systems import box, digest, distributed_system, right_hand_side

pytestmark = pytest.mark.cuda

SAMPLES = (1, 8, 32)


@pytest.fixture
def one_rank():
    return devices(serial())


def on_device(values):
    import cupy

    return cupy.asarray(values)


def device_system(comm, n_samples, cells=16, domains=8, spread=0.3):
    """Partition, matrix and right-hand side on the devices of the ranks."""
    A, at = box(cells, n_samples, spread=spread)
    partition, M, b = distributed_system(comm, A, right_hand_side(A.shape[0], n_samples), domains, coordinates=at)
    return partition, M.to(on_device(np.empty(0))), en.Ensemble(on_device(b.samples))


def preconditioned(A, b, **options):
    return cg(A, b, M=smoothed_aggregation(A, **options))


METHODS = {
    "cg": cg,
    "float32": preconditioned,
    "float64": lambda A, b: preconditioned(A, b, dtype=np.float64),
    "tolerances": lambda A, b: cg(A, b, rtol=10.0 ** -(2.0 + np.arange(b.n_samples) % 8)),
    "coupled": lambda A, b: cg(A, b, coupling="ensemble"),
    "flexible": lambda A, b: cg(A, b, flexible=True, M=smoothed_aggregation(A)),
    "bicgstab": bicgstab,
    "gmres": lambda A, b: gmres(A, b, restart=15),
    "minres": minres,
    "too few": lambda A, b: cg(A, b, max_iterations=5),
    "small": lambda A, b: cg(A, en.Ensemble(1e-200 * b.samples)),
    "callback": lambda A, b: cg(A, b, callback=lambda k, norms: k == 7),
}


# --- one rank with NCCL
def test_one_rank_has_nccl_where_cupy_has_it(one_rank):
    if not nccl_version():
        pytest.skip("no NCCL")
    assert one_rank.messages == "nccl" and "device 0" in repr(one_rank)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int32, np.uint8])
def test_nccl_reduces_exchanges_and_gathers(one_rank, dtype):
    """Of one rank, to itself."""
    if one_rank.messages != "nccl":
        pytest.skip("no NCCL")
    x = on_device(np.arange(12).reshape(6, 2).astype(dtype))
    messages, y = one_rank.device_messages, on_device(np.zeros((3, 2), dtype))
    for largest in (False, True):
        np.testing.assert_array_equal(to_numpy(messages.all_reduce(x.copy(), largest)), to_numpy(x))
    messages.exchange([(0, x[1:4])], [(0, y)])
    np.testing.assert_array_equal(to_numpy(y), to_numpy(x)[1:4])
    np.testing.assert_array_equal(to_numpy(messages.all_gather(x.copy(), np.array([0, 6]))), to_numpy(x))


def without_ranks(M):
    """The rows of the one rank as a matrix without ranks, in domain order."""
    graph = CrsGraph(M.indptr, M.numbers.astype(np.int32), M.shape)
    return CrsMatrix(graph, en.Ensemble(M.values))


@pytest.mark.parametrize("n_samples", SAMPLES)
@pytest.mark.parametrize("dtype", [None, np.float64])
def test_one_rank_agrees_with_no_ranks(one_rank, n_samples, dtype):
    """One domain: the same aggregates, hence the same iterations."""
    _, M, b = device_system(one_rank, n_samples, domains=1)
    A = without_ranks(M)
    got, expected = preconditioned(M, b, dtype=dtype), preconditioned(A, b, dtype=dtype, reorder=False)
    assert got.converged.all()
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(to_numpy(got.x.samples), to_numpy(expected.x.samples), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", ["cg", "bicgstab", "gmres", "minres", "coupled", "flexible", "small"])
def test_one_rank_solves_as_no_ranks_do(one_rank, method):
    _, M, b = device_system(one_rank, 8)
    got, expected = METHODS[method](M, b), METHODS[method](without_ranks(M), b)
    assert got.converged.all()
    assert np.abs(got.iterations - expected.iterations).max() <= 1 + 0.1 * expected.iterations.max()
    size = np.abs(to_numpy(expected.x.samples)).max()
    np.testing.assert_allclose(to_numpy(got.x.samples), to_numpy(expected.x.samples), rtol=0, atol=1e-6 * size)


def test_samples_are_their_own_runs(one_rank):
    _, M, b = device_system(one_rank, 5)
    for solve in (cg, bicgstab, preconditioned):
        together = solve(M, b)
        for i in range(5):
            alone = solve(M.take_samples([i]), en.Ensemble(b.samples[:, i : i + 1].copy()))
            np.testing.assert_array_equal(to_numpy(together.x.samples)[:, i], to_numpy(alone.x.samples)[:, 0])


def test_products_transposes_and_updates_agree_with_the_host(one_rank):
    partition, M, b = device_system(one_rank, 8)
    host = M.to(np.empty(0))
    x = to_numpy(b.samples)
    np.testing.assert_array_equal(to_numpy((M @ b).samples), (host @ en.Ensemble(x)).samples)
    np.testing.assert_array_equal(to_numpy((M.T @ b).samples), (host.T @ en.Ensemble(x)).samples)
    np.testing.assert_array_equal(to_numpy(M.diagonal().samples), host.diagonal().samples)
    np.testing.assert_allclose(to_numpy(partition.norm(b).samples), np.linalg.norm(x, axis=0), rtol=1e-13)
    H = smoothed_aggregation(M)
    first = preconditioned(M, b)
    values = 2.0 * M.values
    M.update(values if M._order is None else values[np.argsort(M._order)])
    H.update(M)
    again = cg(M, b, M=H)
    np.testing.assert_array_equal(again.iterations, first.iterations)
    np.testing.assert_array_equal(2.0 * to_numpy(again.x.samples), to_numpy(first.x.samples))


# --- ranks that share the device
def digests(comm, n_samples, methods=None):
    """Digests of all methods on rank 0, and how messages went."""
    comm = devices(comm)
    partition, M, b = device_system(comm, n_samples)
    found = {"messages": comm.messages if comm.rank == 0 else ""}
    for name, solve in METHODS.items():
        if methods is None or name in methods:
            with np.errstate(all="ignore"):
                found[name] = digest(partition, solve(M, b))
    return found


@pytest.mark.parametrize("n_samples", SAMPLES)
def test_several_ranks_give_the_bits_of_one(mpi, n_samples):
    """By NCCL where each has a device of its own, else by the host."""
    import cupy

    methods = None if n_samples == 8 else ("float32", "float64", "bicgstab", "gmres", "minres")
    want = digests(serial(), n_samples, methods)
    own = cupy.cuda.runtime.getDeviceCount() if nccl_version() else 0
    for ranks in sorted({2, 3, *(k for k in (4, 8) if k <= own)}):
        got = mpi(digests, ranks, n_samples, methods, limit=200.0)[0]
        assert got == {**want, "messages": "nccl" if ranks <= own else "host"}


# --- what is refused
def refusals(comm):
    """What is said where a device array has no way, or a domain no whole chunks."""
    said = []
    partition = Partition(600, comm, domains=7)
    for cut in (partition, Partition(600, devices(comm), domains=7)):
        M = DistributedCrsMatrix(cut, rows_of_diagonal(cut))
        with pytest.raises((TypeError, ValueError)) as refused:
            M.to(on_device(np.empty(0)))
        said.append(str(refused.value))
    return said


def rows_of_diagonal(partition):
    n_local, columns = partition.n_local, partition.rows.astype(np.int32)
    return CrsMatrix(CrsGraph(np.arange(n_local + 1), columns, (n_local, partition.n)), np.ones((n_local, 1)))


def test_arrays_that_cannot_be_served_are_refused(mpi):
    for first, second in mpi(refusals, 2):
        assert "to: like must be in memory of the host" in first and "distributed.devices(comm)" in first
        assert "all domains begin at multiples of 64 rows; got domain 1 that begins at row 85" in second
