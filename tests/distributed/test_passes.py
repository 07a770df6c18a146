"""Rows that need no ghost are computed while messages travel, with the bits of one pass."""

import numpy as np
import pytest

from ensemble._kernels.sparse import crs
from ensemble._kernels.sparse.row_passes import Passes, Travelling, block_lists, row_runs
from ensemble.distributed import rank_matrix
from ensemble.distributed.halo import Halo
from ensemble.krylov import cg
from ensemble.multigrid import smoothed_aggregation
from tests.distributed.systems import box, digest, distributed_system, right_hand_side


def exchanged_rows(comm):
    """Whether ghosts are those of their owners: rows that lie together, rows that lie apart, and none."""
    offsets, alike = np.array([0, 40, 90, 130]), []
    wanted = {0: [45, 47, 52, *range(100, 120)], 1: [*range(3, 9), 128], 2: [0, 39, 89]}[comm.rank]
    halo = Halo(comm, offsets, np.array(wanted, np.int64))
    for dtype, trailing in ((float, (4,)), (np.float32, (1,)), (np.int64, (2,)), (np.int8, ()), (complex, (3,))):
        for turn in range(3):  # buffers serve again, and vectors change
            whole = np.zeros((halo.n_local + halo.n_ghosts, *trailing), dtype)
            number = (np.arange(130) + turn).reshape(-1, *[1] * len(trailing))
            whole[: halo.n_local] = number[halo.first : halo.first + halo.n_local]
            halo.exchange(whole)
            want = np.broadcast_to(number[wanted], whole[halo.n_local :].shape).astype(dtype)
            alike.append(np.array_equal(whole[halo.n_local :], want))
    return alike


def test_ghosts_are_the_rows_of_their_owners(mpi):
    assert mpi(exchanged_rows, 3) == [[True] * 15] * 3


def large_exchanges(comm):
    """Whether ghosts of messages of more than `LARGE` bytes, and of less, are the rows of their owners."""
    alike, offsets = [], np.array([0, 3000, 6000])
    wanted = offsets[1 - comm.rank] + np.sort(np.random.default_rng(3).permutation(3000)[:1111])
    halo = Halo(comm, offsets, wanted)
    for dtype, trailing in ((float, (8,)), (np.float32, (16,)), (np.int8, (64,)), (complex, (4, 3)), (float, (7,))):
        for rows in (3000 + 1111, 5000):  # a vector may have more space for ghosts
            whole = np.zeros((rows, *trailing), dtype)[:4111]
            entries = (3000 * comm.rank + np.arange(3000)).reshape(-1, *[1] * len(trailing)) % 97
            whole[:3000] = entries + np.arange(whole[0].size).reshape(trailing) % 5
            halo.exchange(whole)
            want = wanted.reshape(-1, *[1] * len(trailing)) % 97 + np.arange(whole[0].size).reshape(trailing) % 5
            alike.append(np.array_equal(whole[3000:], want.astype(dtype)))
    return alike


def test_large_messages_have_the_rows_of_their_owners(mpi):
    assert mpi(large_exchanges, 2) == [[True] * 10] * 2


def products_in_two_passes(comm, cells, n_samples):
    """Whether products in two passes have the bits of one pass, and how many exchanges there were."""
    A, at = box(cells, n_samples, spread=0.3)
    _, M, right = distributed_system(comm, A, right_hand_side(A.shape[0], n_samples), domains=8, coordinates=at)
    steps, start = [], M.halo.start
    M._plans["passes"] = M.passes_from(1)
    assert M.passes.n_early > 0

    def started(whole):
        steps.append("start")
        whole[M.halo.n_local :] = np.nan  # what a row reads before it has arrived shows
        return start(whole)

    M.halo.start = started
    found = []
    for product in (M.apply, lambda x: M.apply_dot(x)[0], lambda x: M.residual(x, right.samples)):
        found.append(product(right.samples))
    M._plans["passes"] = None
    again = [M.apply(right.samples), M.apply_dot(right.samples)[0], M.residual(right.samples, right.samples)]
    alike = all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))
    return alike, len(steps)


@pytest.mark.parametrize("n_samples", [1, 3, 8])
def test_two_passes_have_the_bits_of_one(mpi, n_samples):
    for alike, starts in mpi(products_in_two_passes, 2, 24, n_samples):
        assert alike
        assert starts == 6


def early_shares(comm):
    """The share of rows that need no ghost, on this rank."""
    A, at = box(24, 1)
    _, M, _ = distributed_system(comm, A, right_hand_side(A.shape[0], 1), domains=8, coordinates=at)
    passes = M.passes_from(1)
    early = np.concatenate([np.arange(a, b) for a, b in passes.runs[0]])
    late = np.concatenate([np.arange(a, b) for a, b in passes.runs[1]])
    reads = np.add.reduceat((M.indices >= M.columns.n_local).astype(int), M.indptr[:-1])
    whole = np.array_equal(np.sort(np.concatenate([early, late])), np.arange(M.rows.n_local))
    return whole, not reads[early].any(), early.size / M.rows.n_local


def test_rows_of_the_first_pass_read_no_ghost(mpi):
    for whole, apart, share in mpi(early_shares, 2):
        assert whole and apart
        assert 0.3 < share < 1.0


def digest_with_passes(comm, early_rows, n_samples, cells):
    """Digest of a solve where so many early rows are enough for two passes, and how many kernels ran in two."""
    count, enter = [], Travelling.__enter__

    def entered(self):
        count.append(1)
        return enter(self)

    before = rank_matrix.EARLY_ROWS
    rank_matrix.EARLY_ROWS, Travelling.__enter__ = early_rows, entered
    try:
        A, _ = box(cells, n_samples, spread=0.3)
        right = right_hand_side(A.shape[0], n_samples)
        partition, M, b = distributed_system(comm, A, right, domains=7)
        return digest(partition, cg(M, b, M=smoothed_aggregation(M))), len(count)
    finally:
        rank_matrix.EARLY_ROWS, Travelling.__enter__ = before, enter


@pytest.mark.parametrize("n_samples", [1, 4])
def test_a_solve_in_two_passes_has_the_bits_of_one(mpi, n_samples):
    (twice, count), _ = mpi(digest_with_passes, 2, 1, n_samples, 13)
    (once, none), _ = mpi(digest_with_passes, 2, 10**9, n_samples, 13)
    assert twice == once
    assert count > 20
    assert none == 0


# --- without ranks
def passes_of(n_rows, waits):
    bounds = np.minimum(np.arange(0, n_rows + 512, 512), n_rows)
    return Passes(bounds, np.array(waits))


def test_rows_come_before_and_after_the_wait():
    steps = []
    passes = passes_of(1300, [False, True, False])
    with Travelling(None, passes, lambda: steps.append("wait")):
        for runs in row_runs(1300):
            steps.append(runs.tolist())
    assert steps == [[[0, 512], [1024, 1300]], "wait", [[512, 1024]]]
    with Travelling(None, passes, lambda: steps.append("wait")):
        assert [blocks.tolist() for blocks in block_lists(3)] == [[0, 2], [1]]
    assert passes.n_early == 788


@pytest.mark.parametrize("waits", [[True, True, True], [False, False, False]])
def test_a_pass_without_rows_is_left_out_and_the_wait_is_not(waits):
    waited = []
    with Travelling(None, passes_of(1300, waits), lambda: waited.append(1)):
        assert len(list(row_runs(1300))) == 1
    assert waited == [1]


def test_rows_without_a_context_are_one_pass():
    ((first, last),) = [(runs[0, 0], runs[-1, 1]) for runs in row_runs(5000)]
    assert (first, last) == (0, 5000)
    assert [blocks.tolist() for blocks in block_lists(3)] == [[0, 1, 2]]
    assert [runs.shape for runs in row_runs(0)] == [(0, 2)]


def test_a_kernel_that_does_not_wait_is_told():
    with pytest.raises(RuntimeError, match="does not wait"), Travelling(None, passes_of(600, [True, True]), list):
        pass
    with Travelling(None, passes_of(600, [True, True]), list):
        list(row_runs(600))
        with pytest.raises(RuntimeError, match="second kernel"):
            list(row_runs(600))


def test_an_exception_of_a_kernel_is_the_one_that_is_raised():
    with pytest.raises(ZeroDivisionError), Travelling(None, passes_of(600, [True, True]), list):
        raise ZeroDivisionError
    assert len(list(row_runs(600))) == 1


def test_each_pass_writes_its_rows_alone():
    A, _ = box(12, 2, spread=0.2)
    x, n = np.random.default_rng(1).random((A.shape[0], 2)), A.shape[0]
    y = np.full((n, 2), -1.0)
    seen = []
    passes = passes_of(n, [True, False, True, False])
    with Travelling(x, passes, lambda: seen.append(y.copy())) as whole:
        crs.spmv(*A.arrays, whole, y)
    ((half,), want) = seen, A.apply(x)
    early = np.concatenate([np.arange(a, b) for a, b in passes.runs[0]])
    late = np.concatenate([np.arange(a, b) for a, b in passes.runs[1]])
    assert np.array_equal(half[early], want[early])
    assert np.all(half[late] == -1.0)
    assert np.array_equal(y, want)
