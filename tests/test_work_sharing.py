"""Loops shared by threads."""

import gc
import sys
import threading

import numba
import numpy as np
import pytest
from numba import prange

from ensemble._compile.work_sharing import ALL_THREADS, BY_SIZE, ONE_THREAD, work_sharing


def counting(increment):
    def loop(visits, first, name_of_thread):
        n = visits.shape[0]
        for i in prange(n):
            visits[i, 0] += increment
            visits[i, 1] = 3 * i - first  # arithmetic of int64, below zero too
            name_of_thread[i] = numba.get_thread_id()

    return work_sharing(loop)


@pytest.mark.parametrize("threads", [ALL_THREADS, ONE_THREAD])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
def test_every_index_is_visited_once(n, threads):
    visits, names = np.zeros((n, 2), np.int64), np.zeros(n, np.int64)
    loop = counting(5)
    loop(visits, 7, names, threads=threads)
    np.testing.assert_array_equal(visits[:, 0], 5)
    np.testing.assert_array_equal(visits[:, 1], 3 * np.arange(n) - 7)
    used = 1 if threads == ONE_THREAD else min(n, numba.get_num_threads())
    assert len(set(names.tolist())) == min(n, used)
    assert (np.diff(names) >= 0).all() or used == 1  # each thread has one part of the range


def test_the_number_of_threads_is_numbas():
    names = np.zeros(100, np.int64)
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        counting(1)(np.zeros((100, 2), np.int64), 0, names)
    finally:
        numba.set_num_threads(before)
    assert set(names.tolist()) == {0}


def test_values_around_the_function_belong_to_it():
    """One source, two functions."""
    for increment in (2, 3):
        visits = np.zeros((4, 2), np.int64)
        counting(increment)(visits, 0, np.zeros(4, np.int64))
        np.testing.assert_array_equal(visits[:, 0], increment)


def test_another_kind_of_arguments_is_compiled():
    loop = counting(1)
    for dtype in (np.float32, np.float64):
        visits = np.zeros((4, 2), dtype)
        loop(visits, 1, np.zeros(4, np.int64))
        np.testing.assert_array_equal(visits[:, 1], [-1, 2, 5, 8])


def test_python_threads_run_loops_side_by_side():
    loop, results = counting(1), [np.zeros((5000, 2), np.int64) for _ in range(4)]
    loop(np.zeros((1, 2), np.int64), 0, np.zeros(1, np.int64))
    threads = [
        threading.Thread(target=loop, args=(visits, 0, np.zeros(5000, np.int64)), kwargs={"threads": ONE_THREAD})
        for visits in results
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for visits in results:
        np.testing.assert_array_equal(visits[:, 0], 1)


def test_a_function_must_end_in_its_loop():
    @work_sharing
    def total(x, out):
        for i in prange(x.size):
            x[i] += 1
        out[0] = x.size

    with pytest.raises(ValueError, match=r"total must end in a loop `for i in prange\(n\)`"):
        total(np.zeros(3), np.zeros(1))


def adding():
    """A loop that is translated."""

    def loop(x, step):
        for i in prange(x.size):
            x[i] += step

    return work_sharing(loop)


def test_arguments_that_are_no_numbers_of_64_bits_raise_as_python_does():
    loop, x = adding(), np.zeros(4, np.int64)
    loop(x, 1)
    with pytest.raises(OverflowError):
        loop(x, 1 << 70)
    loop(x, 1)
    np.testing.assert_array_equal(x, 2)
    assert not loop.by_numba and len(loop._translated) == 1


@pytest.mark.parametrize("by_size", [True, False])
def test_calls_keep_no_reference(by_size):
    loop, x = adding(), np.zeros(4)
    call = loop.by_size if by_size else loop
    call(x, 1.5)
    held = (x, loop, np.ndarray, loop._translated[0][0][BY_SIZE])
    before = [sys.getrefcount(each) for each in held]
    for _ in range(100):
        call(x, 1.5)
    after = [sys.getrefcount(each) for each in held]
    assert np.abs(np.subtract(after, before)).max() < 50
    np.testing.assert_array_equal(x, 151.5)


def test_a_compiled_function_owns_what_it_refers_to():
    loop, x = adding(), np.zeros(4)
    loop(x, 1.0)
    kept = loop._translated[0][0][ONE_THREAD]
    loop._translated.clear()
    gc.collect()
    assert kept(x, 1.0) == 1 and kept(x, 1) == 0 and kept(x) == 0
    np.testing.assert_array_equal(x, 2.0)
