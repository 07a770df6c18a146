"""Rows that need no ghost are computed on a device while messages travel, with the bits of one pass."""

import numpy as np
import pytest

from benchmarks.distributed_problem import with_own_ghosts
from ensemble._compile.device_messages import Nccl
from ensemble._kernels.multigrid import relaxation
from ensemble._kernels.multigrid.scaling import scaled_finish
from ensemble._kernels.sparse import crs
from ensemble._kernels.sparse.row_passes import DevicePasses, Travelling, device_blocks
from ensemble.distributed import rank_matrix, serial
from tests import cuda_on_cpu
from tests.distributed.emulated import emulated_devices, on_emulator
from tests.distributed.systems import box, distributed_system, right_hand_side

N_ROWS, N_GHOSTS = 1100, 7


def system(n_samples, shared, dtype):
    """Rows of a matrix of which some read ghosts: its arrays, and vectors by their names."""
    rng = np.random.default_rng(n_samples)
    lengths = rng.integers(0, 7, N_ROWS)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    row = np.repeat(np.arange(N_ROWS), lengths)
    indices = np.clip(row + rng.integers(-20, 20, row.size), 0, N_ROWS - 1)
    late = np.isin(row, [0, 3, 77, 640, 1099])
    indices[late] = N_ROWS + rng.integers(0, N_GHOSTS, late.sum())

    def numbers(*shape):
        return rng.standard_normal(shape).astype(dtype)

    columns = 1 if shared else n_samples
    arrays = indptr, indices.astype(np.int32), numbers(row.size, columns)
    names = {name: numbers(N_ROWS, n_samples) for name in ("b", "w", "out")}
    names |= {name: numbers(n_samples) for name in ("a", "c")}
    return arrays, np.unique(row[late]), numbers(N_ROWS + N_GHOSTS, n_samples), numbers(N_ROWS, columns), names


KERNELS = {
    "spmv": lambda A, x, d, v: crs.spmv(*A, x, v["out"]),
    "spmv_add": lambda A, x, d, v: crs.spmv_add(*A, x, v["out"]),
    "residual": lambda A, x, d, v: crs.residual(*A, x, v["b"], v["out"]),
    "spmv_dot": lambda A, x, d, v: crs.spmv_dot(*A, x, v["out"])[1],
    "first": lambda A, x, d, v: relaxation.chebyshev_first(*A, d, v["b"], x, v["c"], v["w"], v["out"]),
    "step": lambda A, x, d, v: relaxation.chebyshev_step(*A, d, v["b"], x, v["a"], v["c"], v["w"], v["out"]),
    "last": lambda A, x, d, v: relaxation.chebyshev_last(*A, d, v["b"], x, v["a"], v["c"], v["w"], v["out"]),
    "power_step": lambda A, x, d, v: relaxation.power_step(*A, d, x, v["c"], v["out"])[1:],
    "scaled_finish": lambda A, x, d, v: scaled_finish(
        None, np.ones_like(v["c"]), *A, d, v["b"], x, v["a"], v["c"], v["w"], v["b"], v["out"]
    )[1],
}


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("n_samples, shared, dtype", [(1, False, float), (3, True, float), (32, False, np.float32)])
def test_two_passes_have_the_bits_of_one(name, n_samples, shared, dtype):
    """What arrives is not there in the first pass, which leaves the rows of the second alone."""
    A, late, x, dinv, given = system(n_samples, shared, dtype)
    v = {key: array.copy() for key, array in given.items()}
    twice = {key: array.copy() for key, array in given.items()}
    whole, seen = x.copy(), []
    whole[N_ROWS:] = np.nan

    def arrive():
        seen.append(twice["out"].copy())
        whole[N_ROWS:] = x[N_ROWS:]

    with on_emulator():
        once = KERNELS[name](A, x, dinv, v)
        with Travelling(whole, DevicePasses(late, N_ROWS, x), arrive):
            found = KERNELS[name](A, whole, dinv, twice)
    for got, want in zip(*(each if isinstance(each, tuple) else (each,) for each in (found, once)), strict=True):
        np.testing.assert_array_equal(got, want)
    for key, want in v.items():
        np.testing.assert_array_equal(twice[key], want, err_msg=key)
    (half,) = seen
    unwritten = (half == given["out"]).all(axis=1)
    assert unwritten[late].all() and not np.isnan(half).any()
    if n_samples > 1:  # a block has few rows
        assert unwritten.mean() < 0.9


def test_blocks_of_both_passes_are_all_and_made_once():
    passes = DevicePasses(np.array([5, 130, 131]), 300, np.empty(0))
    for rows, late in ((1, [5, 130, 131]), (64, [0, 2]), (128, [0, 1]), (512, [0])):
        first, second = passes.blocks_of(rows)
        assert second.tolist() == late and first.dtype == np.int32
        assert sorted([*first.tolist(), *late]) == list(range(-(-300 // rows)))
        assert passes.blocks_of(rows)[0] is first
    assert list(device_blocks(8)) == [None]


# --- messages
class FakeStream:
    """A stream that writes what is queued on it, in the order of the host."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for {event.name}")

    def __enter__(self):
        self.log.append(f"on {self.name}")

    def __exit__(self, *error):
        self.log.append(f"off {self.name}")


class FakeEvent:
    def __init__(self, name, log):
        self.name, self.log = name, log

    def record(self, stream):
        self.log.append(f"{self.name} on {stream.name}")


@pytest.fixture
def messages():
    """NCCL's messages whose streams write what is queued; the log is `log`."""
    made, log = Nccl.__new__(Nccl), []
    made.log, main = log, FakeStream("main", log)
    made._stream = lambda: main
    made._beside = FakeStream("beside", log), FakeEvent("before", log), FakeEvent("after", log)
    made.exchange = lambda sends, receives: log.append(f"exchange {sends} {receives}")
    return made


FORK = ["before on main", "beside waits for before", "on beside", "pack"]
JOIN = ["off beside", "after on beside"]


def test_an_exchange_begins_on_a_stream_beside_and_the_current_one_waits_later(messages):
    wait = messages.begin(lambda: messages.log.append("pack"), "out", "in")
    assert messages.log == [*FORK, "exchange out in", *JOIN]
    messages.log.append("early rows")
    wait()
    assert messages.log[-2:] == ["early rows", "main waits for after"]


def test_a_stream_beside_is_joined_after_an_error(messages):
    """Else a graph that is being recorded could not end, and memory be used before messages leave it."""

    def fails():
        messages.log.append("pack")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        messages.begin(fails, "out", "in")
    assert messages.log == [*FORK, *JOIN, "main waits for after"]


def test_a_kernel_that_fails_is_waited_for_where_the_wait_is_queued():
    passes, waited = DevicePasses(np.array([1]), 10, np.empty(0)), []
    for queued in (False, True):
        with pytest.raises(ZeroDivisionError), Travelling(None, passes, lambda q=queued: waited.append(q), queued):
            raise ZeroDivisionError
    assert waited == [True]


# --- which matrices
def passes_by_bytes(comm, n_samples):
    """Whether a rank computes rows early, by the least bytes of their values, and those bytes."""
    comm = emulated_devices(comm)
    A, at = box(12, n_samples)
    M = distributed_system(comm, A, right_hand_side(A.shape[0], n_samples), domains=4, coordinates=at)[1]
    found, kept = [], rank_matrix.EARLY_BYTES
    with on_emulator():
        reads = np.add.reduceat((M.indices >= M.columns.n_local).astype(int), M.indptr[:-1])
        early = int(np.diff(M.indptr)[reads == 0].sum()) * 8 * n_samples
        for limit in (1, early, early + 1):
            rank_matrix.EARLY_BYTES = limit
            found.append(M.passes is not None)
    rank_matrix.EARLY_BYTES = kept
    return found, early


def test_a_rank_computes_early_where_the_values_take_as_long_as_a_message(mpi):
    for found, early in mpi(passes_by_bytes, 2, 2):
        assert early > 10_000
        assert found == [True, True, False]
    assert passes_by_bytes(serial(), 2)[0] == [False] * 3  # without neighbours all rows at once


def test_a_rank_with_rows_of_its_own_as_ghosts_has_the_same_products():
    """What the benchmark of messages beside kernels measures on one device."""
    A, at = box(12, 3, spread=0.2)
    M, right = distributed_system(serial(), A, right_hand_side(A.shape[0], 3), domains=4, coordinates=at)[1:]
    looped, x = with_own_ghosts(M, np.arange(300, 400)), right.samples
    whole = np.full((M.rows.n_local + 100, 3), np.nan)
    whole[: M.rows.n_local] = x
    assert np.isnan(crs.spmv(*looped.arrays, whole, None)).any(axis=1).mean() > 0.05
    (_, a, b), (_, rows) = looped.halo.receives[0], looped.halo.sends[0]
    whole[M.rows.n_local + a : M.rows.n_local + b] = x[rows]
    np.testing.assert_array_equal(crs.spmv(*looped.arrays, whole, None), M.apply(x))
