"""Half of the entries inside domains stored: the bits of all entries stored, on any number of ranks."""

import numpy as np
import pytest
import scipy.sparse as sp

import ensemble as en
from ensemble._kernels.multigrid import domain_triangles
from ensemble.apps.fem import RandomDiffusion, rank_discretization
from ensemble.distributed import DistributedCrsMatrix, DistributedSymmetricCrsMatrix, Partition, serial, upper_products
from ensemble.krylov import cg, direct, minres
from ensemble.linalg import CrsMatrix, SymmetricCrsMatrix, apply_dirichlet
from ensemble.multigrid import approximate_ideal_restriction, smoothed_aggregation
from tests.distributed.boxes import random_graph
from tests.distributed.systems import box, digest, distributed_system, right_hand_side, shuffled

DOMAINS = 5


def systems(n_samples):
    """Name, matrix, and how it is cut: lines of a box, boxes of a box, an order at random, one domain a row or all."""
    A, at = box(7, n_samples, spread=0.3)
    yield "rows", A, {"domains": DOMAINS}
    yield "boxes", A, {"domains": 8, "coordinates": at}
    yield "shuffled", shuffled(A), {"domains": 6, "graph": shuffled(A).graph}
    yield "one domain", A, {"domains": 1}
    small, _ = box(3, n_samples, spread=0.3)
    yield "a row a domain", small, {"domains": 27}


def differences(comm, n_samples):
    """What differs between both storages, by name."""
    found = []
    for name, A, cut in systems(n_samples):
        _, M, right = distributed_system(comm, A, right_hand_side(A.shape[0], n_samples), **cut)
        U, x = M.upper(), right.samples
        pairs = {
            "product": (M.apply(x), U.apply(x)),
            "product and inner product": (np.vstack(M.apply_dot(x)), np.vstack(U.apply_dot(x))),
            "residual": (M.residual(x, x), U.residual(x, x)),
            "sum": (M.add_product(x, x.copy()), U.add_product(x, x.copy())),
            "diagonal": (M.diagonal().samples, U.diagonal().samples),
            "all entries": (M.values, U.to_crs().values),
            "arithmetic": ((2.0 * M - M / 3.0).values, (2.0 * U - U / 3.0).to_crs().values),
            "mixed": ((M + M).values, (U + M).values),
            "float32": tuple(each.astype(np.float32).apply(x.astype(np.float32)) for each in (M, U)),
            "transpose": (U.T.apply(x), U.apply(x)),
            "gathered": (M.gathered().values, U.gathered().values),
        }  # fmt: skip
        found += [(name, what) for what, (a, b) in pairs.items() if not np.array_equal(a, b)]
        assert U.nnz == M.nnz
    return found


def solves(comm, n_samples):
    """Digests of solves with all entries and with half of them, and of a hierarchy that goes from one to the other."""
    A, at = box(8, n_samples, spread=0.3)
    new, _ = box(8, n_samples, seed=8, spread=0.8)
    b = right_hand_side(A.shape[0], n_samples)
    cut = {"domains": 7, "coordinates": at}
    partition, M, right = distributed_system(comm, A, b, **cut)
    _, other, _ = distributed_system(comm, new, b, **cut)
    tolerances = 10.0 ** -(2.0 + np.arange(n_samples) % 8)
    methods = {
        "cg, tolerances of each sample": lambda A: cg(A, right, rtol=tolerances),
        "minres": lambda A: minres(A, right),
        "hierarchy": lambda A: cg(A, right, M=smoothed_aggregation(A)),
        "double": lambda A: cg(A, right, M=smoothed_aggregation(A, dtype=np.float64)),
        "ideal restriction": lambda A: cg(A, right, M=approximate_ideal_restriction(A), max_iterations=3),
    }
    found = {}
    for name, solve in methods.items():
        found[name] = [digest(partition, solve(each)) for each in (M, M.upper())]
    hierarchy, updated = smoothed_aggregation(M), []
    for each in (other, other.upper(), M.upper(), M):
        updated.append(digest(partition, cg(each, right, M=hierarchy.update(each))))
    found["updates"] = [updated[0] + updated[3], updated[1] + updated[2]]
    broken = M.with_values(M.values.copy())
    broken.values[:, 1] = np.nan
    pair = [cg(each, right, M=smoothed_aggregation(each)) for each in (broken, broken.upper())]
    found["a sample of NaN"] = [digest(partition, each) for each in pair]
    lone = M.upper().take_samples([2])
    part = en.Ensemble(np.ascontiguousarray(right.samples[:, 2:3]))
    alone, together = cg(lone, part, M=smoothed_aggregation(lone)), pair[1]
    found["a sample alone"] = [alone.x.samples[:, 0].tobytes(), together.x.samples[:, 2].tobytes()]
    known = np.array([0, 3]) if comm.rank == 0 else np.array([], int)
    kept = [apply_dirichlet(each, right, known, 1.5) for each in (M, M.upper())]
    found["known unknowns"] = [digest(partition, cg(*each)) for each in kept]
    found["direct"] = [digest(partition, direct(M.upper(), right))] * 2
    return found


@pytest.fixture(scope="module")
def alone():
    return solves(serial(), 4)


def test_half_of_the_entries_gives_the_bits_of_all(alone):
    for name, (full, half) in alone.items():
        assert full == half, name


@pytest.mark.parametrize(("ranks", "n_samples"), [(1, 1), (1, 4), (2, 1), (3, 4)])
def test_no_product_differs_with_half_of_the_entries(mpi, ranks, n_samples):
    found = mpi(differences, ranks, n_samples) if ranks > 1 else [differences(serial(), n_samples)]
    assert found == [[]] * ranks


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_ranks_do_not_change_the_bits_of_half_of_the_entries(mpi, alone, ranks):
    found = mpi(solves, ranks, 4)[0]
    own = {"a sample alone"}  # of the rows of one rank
    assert {name: found[name] for name in found if name not in own} == {k: alone[k] for k in alone if k not in own}
    assert found["a sample alone"][0] == found["a sample alone"][1]


@pytest.mark.parametrize("n_threads", [2, 3, 7])
def test_no_product_differs_on_any_number_of_threads(n_threads, monkeypatch):
    """Each thread has sums of its own of the rows that wait, and begins with what rows of others would have added."""
    monkeypatch.setattr(domain_triangles, "thread_count", lambda: n_threads)
    assert differences(serial(), 4) == []


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_restricted_residual_has_the_bits_of_two_products(n_threads, monkeypatch):
    monkeypatch.setattr(upper_products, "thread_count", lambda: n_threads)
    for _, A, cut in systems(4):
        _, M, right = distributed_system(serial(), A, right_hand_side(A.shape[0], 4), **cut)
        P, x, b = smoothed_aggregation(M, coarse_size=5).levels[0].P, right.samples, right.samples[::-1].copy()
        if P is not None:
            P, out = P.astype(np.float64), np.full((P.shape[1], 4), np.nan)
            found = [M.upper().restricted_residual(x, b, P, *given) for given in ((), (np.empty_like(x), out))]
            for each in (*found, out):
                np.testing.assert_array_equal(each, P.apply_transpose(M.residual(x, b)))


def test_one_rank_makes_the_transpose_of_a_prolongator_at_its_first_use(monkeypatch):
    """A residual that is restricted as it is made needs none; taken samples and other types know it all the same."""
    monkeypatch.setattr(upper_products, "thread_count", lambda: 1)
    _, A, cut = next(iter(systems(4)))
    _, M, right = distributed_system(serial(), A, right_hand_side(A.shape[0], 4), **cut)
    hierarchy = smoothed_aggregation(M.upper(), coarse_size=5)
    assert cg(M.upper(), right, M=hierarchy).converged.all()
    P = hierarchy.levels[0].P
    lazy, x = P.take_samples([2, 0]).astype(np.float64), right.samples
    assert P._restriction is None and lazy._restriction is None
    want = P.astype(np.float64).apply_transpose(x)
    np.testing.assert_array_equal(lazy.apply_transpose(np.ascontiguousarray(x[:, [2, 0]])), want[:, [2, 0]])
    assert lazy._restriction is not None and not lazy.receives


def stored_entries(comm, n_samples=1):
    """How many values are stored for those of all ranks; on one rank half of them, and the diagonal."""
    found = []
    for _, A, cut in systems(n_samples):
        _, M, _ = distributed_system(comm, A, np.ones((A.shape[0], n_samples)), **cut)
        found.append((int(M.upper().values.shape[0]), M.nnz, A.shape[0]))
    return found


def test_half_of_the_entries_is_stored(mpi):
    whole = stored_entries(serial())
    assert all(2 * stored == nnz + n for stored, nnz, n in whole)
    *parts, last = zip(*mpi(stored_entries, 2), strict=True)
    for part in (*parts, last):
        (_, nnz, n), stored = part[0], sum(each[0] for each in part)
        assert nnz + n <= 2 * stored <= (1.7 if part is not last else 2.0) * nnz  # the last has a row a domain


def test_a_product_is_that_of_the_whole_matrix():
    for _, A, cut in systems(2):
        x = right_hand_side(A.shape[0], 2)
        partition, M, right = distributed_system(serial(), A, x, **cut)
        y = partition.gather(M.upper() @ right).samples
        np.testing.assert_allclose(y, (A @ en.Ensemble(x)).samples, rtol=1e-13, atol=1e-13)


def of_symmetric_matrices(comm):
    """Whether a `SymmetricCrsMatrix` on root gives half of the entries, and a `CrsMatrix` all."""
    A, _ = box(5, 2, spread=0.3)
    partition = Partition(A.shape[0], comm, 4)
    root = comm.rank == 0
    whole = SymmetricCrsMatrix.from_crs(A)
    half = DistributedCrsMatrix.scatter(whole if root else None, partition)
    full = DistributedCrsMatrix.scatter(A if root else None, partition)
    again = DistributedSymmetricCrsMatrix(partition, A_of(partition, A))
    again.update(2.0 * A_of(partition, A).values)
    kinds = type(half) is DistributedSymmetricCrsMatrix and type(full) is DistributedCrsMatrix
    return kinds, np.array_equal(half.to_crs().values, full.values), np.array_equal(again.values, 2.0 * half.values)


def A_of(partition, A):
    """The rows of this rank."""
    rows = partition.rows
    return CrsMatrix.from_scipy([sp.csr_array(A.to_scipy(i)[rows]) for i in range(A.n_samples)])


def test_the_storage_follows_the_matrix_on_root(mpi):
    assert of_symmetric_matrices(serial()) == (True, True, True)
    assert mpi(of_symmetric_matrices, 2) == [(True, True, True)] * 2


def refusals(comm):
    """The messages for matrices that are not symmetric inside a domain, across ranks, or lack a diagonal entry."""
    A, _ = box(4, 1)
    n, messages = A.shape[0], []
    inside, across, hole = (A.to_scipy(0).tolil() for _ in range(3))
    inside[1, 0] += 0.5
    across[n // 2, n // 2 - 16] += 0.5
    hole[5, 5] = 0.0
    for wrong in (inside, across, hole):
        wrong = sp.csr_array(wrong)
        wrong.eliminate_zeros()
        _, M, _ = distributed_system(comm, CrsMatrix.from_scipy(wrong), np.ones((n, 1)), domains=2)
        with pytest.raises(ValueError) as error:
            M.upper()
        messages.append(str(error.value))
    return messages


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_rank_refuses_a_matrix_that_is_not_symmetric(mpi, ranks):
    for messages in [refusals(serial())] if ranks == 1 else mpi(refusals, ranks):
        assert all("DistributedCrsMatrix.upper: the matrix must" in text for text in messages)
        assert "transpose" in messages[0] and "transpose" in messages[1] and "diagonal" in messages[2]


def in_two_passes(comm):
    """Whether domains that need no ghost are computed first, with the bits of one pass."""
    A, at = box(16, 3, spread=0.3)
    _, M, right = distributed_system(comm, A, right_hand_side(A.shape[0], 3), domains=16, coordinates=at)
    U, x = M.upper(), right.samples
    want, start = U.apply(x), U.halo.start
    U._plans["passes"] = U.passes_from(1)

    def started(whole):
        whole[U.halo.n_local :] = np.nan  # what a row reads before it has arrived shows
        return start(whole)

    U.halo.start = started
    alike = [U.passes.n_early > 0, np.array_equal(U.apply(x), want), np.array_equal(U.apply_dot(x)[0], want)]
    threads = domain_triangles.thread_count
    domain_triangles.thread_count = lambda: 3
    try:
        return [*alike, np.array_equal(U.apply(x), want)]
    finally:
        domain_triangles.thread_count = threads


def test_domains_that_need_no_ghost_come_before_the_wait(mpi):
    assert mpi(in_two_passes, 2) == [[True] * 4] * 2


def diffusion(comm, upper_samples):
    """The digest of a study's solution where so many samples are enough for half of the entries."""
    before = rank_discretization.UPPER_SAMPLES
    rank_discretization.UPPER_SAMPLES = upper_samples
    try:
        problem = RandomDiffusion((6, 5, 7), comm=comm, domains=6, source=1.0, variance=0.1)
        y = en.Ensemble(np.random.default_rng(3).uniform(-1.0, 1.0, (5, 4)))
        u = problem.partition.gather(problem.solve(y).u)
        A, B = problem.assemble(y, symmetric=True)[0], problem.assemble(y)[0].upper()
        same = problem.assemble(y, symmetric=True, out=A)[0].values is A.values
        return None if u is None else u.samples.tobytes(), np.array_equal(A.values, B.values) and same
    finally:
        rank_discretization.UPPER_SAMPLES = before


def test_random_diffusion_stores_half_with_the_bits_of_all(mpi):
    half, full = diffusion(serial(), 1), diffusion(serial(), 100)
    assert half == full and half[1]
    assert mpi(diffusion, 2, 1)[0] == half


def test_a_solve_of_many_samples_stores_half_as_the_serial_solve_does():
    problem = RandomDiffusion((3, 3, 3), comm=serial())
    assert problem.discretization.keeps_upper(4) and not problem.discretization.keeps_upper(1)
    advected = RandomDiffusion((3, 3, 3), comm=serial(), advection=0.5)
    assert not advected.discretization.keeps_upper(32)


# --- the hunt
def random_case(seed):
    """A random symmetric positive definite matrix, weakly coupled or not, its right-hand side and how it is cut."""
    rng = np.random.default_rng(seed)
    n, n_samples = int(rng.integers(2, 400)), int(rng.choice([1, 2, 3, 4, 8, 32]))
    graph = random_graph(n, int(n * rng.uniform(0.0, 6.0)), seed)
    graph.setdiag(1.0)
    pattern = CrsMatrix.from_scipy(sp.csr_array(graph)).graph
    row, column = pattern.row_of_entry, pattern.indices
    low, high = np.minimum(row, column).astype(np.int64), np.maximum(row, column)
    pair = np.unique(low * n + high, return_inverse=True)[1]
    values = -rng.lognormal(0.0, rng.uniform(0.0, 2.0), (pair.max() + 1, n_samples))[pair]
    values[row == column] = 0.0
    sums = np.zeros((n, n_samples))
    np.add.at(sums, row, -values)
    values[pattern.diagonal_entries] = sums + rng.uniform(0.01, 1.0)
    cut = {"domains": int(rng.integers(1, max(2, n // int(rng.integers(1, 60)))))}
    if rng.random() < 0.5 and n > 8:
        cut["graph"] = pattern
    return CrsMatrix(pattern, values), rng.standard_normal((n, n_samples)), cut


def hunt(comm, seeds):
    """For each case the digests of four solves, the last two with half of the entries stored."""
    found = []
    for seed in seeds:
        A, b, cut = random_case(seed)
        partition, M, right = distributed_system(comm, A, b, **cut)
        with np.errstate(all="ignore"):
            for each in (M, M.upper()):
                found.append(digest(partition, cg(each, right, max_iterations=40)))
                hierarchy = smoothed_aggregation(each, coarse_size=20)
                found.append(digest(partition, cg(each, right, M=hierarchy, max_iterations=40)))
    return found


CASES = 120


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_random_graphs_domains_and_ranks_change_no_bit(mpi, ranks):
    """120 random graphs, cut at random, on three numbers of ranks."""
    want = hunt(serial(), range(CASES))
    assert want[0::4] == want[2::4] and want[1::4] == want[3::4]
    assert mpi(hunt, ranks, range(CASES), limit=900.0)[0] == want
