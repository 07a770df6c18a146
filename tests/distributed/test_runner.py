"""The runner of tests on several ranks: it returns values, and no failure hangs or passes."""

import os
import time

import pytest

from tests.distributed.runner import RanksFailedError


def total(comm, add=0):
    return comm.rank, comm.allreduce(comm.rank + add)


def settings(comm):
    from ensemble._compile import numba

    return os.environ["NUMBA_NUM_THREADS"], numba.WIDTHS


def raise_on_one(comm, which):
    if comm.rank == which:
        raise ArithmeticError(f"the cause on rank {which}")
    comm.recv(source=which)


def wait_on_one(comm, which):
    if comm.rank == which:
        time.sleep(3600)
    comm.Barrier()


def end_on_one(comm, which):
    if comm.rank == which:
        os._exit(3)
    comm.Barrier()


def warn(comm):
    import warnings

    warnings.warn("of a rank", RuntimeWarning, stacklevel=1)


def test_values_come_in_the_order_of_ranks(mpi):
    assert mpi(total, 3, 10) == [(0, 33), (1, 33), (2, 33)]


def test_ranks_have_one_thread_and_the_widths_of_the_tests(mpi):
    from ensemble._compile import numba

    assert mpi(settings, 1) == [("1", numba.WIDTHS)]


def test_an_exception_on_one_rank_ends_all_and_is_shown(mpi):
    start = time.monotonic()
    with pytest.raises(RanksFailedError, match=r"(?s)rank 1: Traceback.*ArithmeticError: the cause on rank 1"):
        mpi(raise_on_one, 3, 1, limit=50.0)
    assert time.monotonic() - start < 40.0


def test_a_rank_that_hangs_is_ended_and_shows_where_it_stood(mpi):
    with pytest.raises(RanksFailedError, match=r"(?s)rank 1: Timeout.*in wait_on_one"):
        mpi(wait_on_one, 2, 1, limit=6.0)


def test_a_rank_that_ends_without_an_exception_is_a_failure(mpi):
    with pytest.raises(RanksFailedError, match="rank 1: returned nothing"):
        mpi(end_on_one, 2, 1, limit=20.0)


def test_a_warning_on_a_rank_is_a_failure(mpi):
    with pytest.raises(RanksFailedError, match="RuntimeWarning: of a rank"):
        mpi(warn, 1)
