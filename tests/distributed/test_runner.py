"""The runner of tests on several ranks: it returns values, and no failure hangs or passes."""

import os
import time

import pytest

from tests.distributed.runner import RanksFailedError, end_all


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


def size_and_number(comm):
    return comm.size, comm.rank, os.getpid()


def test_a_call_on_fewer_ranks_runs_on_the_first_of_those_that_wait(mpi):
    three, two, one = (mpi(size_and_number, ranks) for ranks in (3, 2, 1))
    assert [told[:2] for told in two] == [(2, 0), (2, 1)] and one[0][:2] == (1, 0)
    assert [told[2] for told in three[:2]] == [told[2] for told in two]
    assert one[0][2] == two[0][2]


def process_number(comm):
    return os.getpid()


@pytest.mark.slow
def test_ranks_are_started_once_unless_fresh_ones_are_needed(mpi):
    first = mpi(process_number, 2)
    assert mpi(process_number, 2) == first
    assert set(mpi(process_number, 2, fresh=True)).isdisjoint(first)
    assert mpi(process_number, 2) == first


def leave_a_message(comm):
    comm.isend("left behind", dest=1 - comm.rank)


def receive(comm):
    request = comm.isend("right", dest=1 - comm.rank)
    found = comm.recv(source=1 - comm.rank)
    request.wait()
    return found


def test_a_message_left_behind_does_not_reach_the_next_function(mpi):
    mpi(leave_a_message, 2)
    assert mpi(receive, 2) == ["right", "right"]


@pytest.mark.slow
def test_processes_end_with_the_ranks(mpi):
    processes = mpi(process_number, 2)
    end_all()
    end = time.monotonic() + 20.0
    while any(os.path.exists(f"/proc/{number}") for number in processes) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{number}") for number in processes)


def test_ranks_have_one_thread_and_the_widths_of_the_tests(mpi):
    from ensemble._compile import numba

    assert mpi(settings, 1) == [("1", numba.WIDTHS)]


@pytest.mark.slow
def test_an_exception_on_one_rank_ends_all_and_is_shown(mpi):
    start = time.monotonic()
    with pytest.raises(RanksFailedError, match=r"(?s)rank 1: Traceback.*ArithmeticError: the cause on rank 1"):
        mpi(raise_on_one, 3, 1, limit=50.0)
    assert time.monotonic() - start < 40.0


@pytest.mark.slow
def test_a_rank_that_hangs_is_ended_and_shows_where_it_stood(mpi):
    mpi(process_number, 2)  # imports belong to the start
    with pytest.raises(RanksFailedError, match=r"(?s)rank 1: Timeout.*in wait_on_one"):
        mpi(wait_on_one, 2, 1, limit=2.0)


@pytest.mark.slow
def test_a_rank_that_ends_without_an_exception_is_a_failure(mpi):
    with pytest.raises(RanksFailedError, match="rank 1: returned nothing"):
        mpi(end_on_one, 2, 1, limit=20.0)


def test_a_warning_on_a_rank_is_a_failure(mpi):
    with pytest.raises(RanksFailedError, match="RuntimeWarning: of a rank"):
        mpi(warn, 1, fresh=True)  # not with the ranks that wait: they would have to start again
