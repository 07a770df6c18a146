"""The cost model: times worked out by hand, fits of times that follow it, and counts of real messages."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble.distributed.cost_model import (
    KernelTime,
    LevelLoad,
    MessageTime,
    Network,
    fit_kernel,
    fit_messages,
    iteration_time,
)
from ensemble.krylov import cg
from ensemble.multigrid import Chebyshev, smoothed_aggregation
from tests.distributed.systems import box, distributed_system, right_hand_side

POSITIVE = st.floats(1e-9, 1e-3)
NOTHING = KernelTime(0.0, 0.0, 0.0)
NO_KERNELS = {"product": NOTHING, "level": NOTHING, "vectors": NOTHING, "coarse": NOTHING}


@given(POSITIVE, POSITIVE, st.integers(1, 64))
def test_the_gain_of_a_message_is_equation_14(a, b, s):
    """s (a + b) / (a + b s), b being the time of one sample's bytes."""
    time = MessageTime(a, b / 400.0)
    assert time.gain(400.0, s) == pytest.approx(s * (a + b) / (a + b * s))
    assert 1.0 - 1e-12 <= time.gain(400.0, s) <= s * (1.0 + 1e-12)


def test_a_long_message_takes_the_other_line():
    time = MessageTime(1.0, 0.5, 10.0, 7.0, 0.25)
    assert [time(10.0), time(11.0)] == [6.0, 9.75]
    assert time.gain(5.0, 4) == 4 * 3.5 / 12.0


@given(POSITIVE, POSITIVE)
def test_one_line_is_found_again(a, b):
    sizes = np.array([8.0, 16.0, 64.0, 256.0, 512.0, 1024.0, 4096.0])
    time = fit_messages(sizes, a + b * sizes)
    assert [time(n) for n in sizes] == pytest.approx(a + b * sizes, rel=1e-6)


def test_two_protocols_are_found_with_the_size_where_they_change():
    sizes = 2.0 ** np.arange(3, 20)
    want = MessageTime(2e-6, 1e-9, 2.0**13, 9e-6, 2e-10)
    found = fit_messages(sizes, [want(n) for n in sizes])
    assert found.limit == 2.0**13
    for name in ("latency", "per_byte", "long_latency", "long_per_byte"):
        assert getattr(found, name) == pytest.approx(getattr(want, name), rel=1e-6)


def test_a_time_that_falls_with_the_size_is_a_constant():
    found = fit_messages([8.0, 80.0, 800.0], [2e-6, 2e-6, 1e-6])
    assert found.per_byte == 0.0 and 1e-6 < found.latency < 2e-6


@pytest.mark.parametrize("sizes, times, words", [
    ([8.0, 16.0], [1.0], "seconds must have shape"),
    ([8.0, 16.0], [1.0, 0.0], "seconds must be above zero"),
    ([8.0, 16.0], [1.0, math.nan], "seconds must be above zero"),
    ([8.0, 8.0], [1.0, 1.0], "n_bytes must have two sizes"),
])  # fmt: skip
def test_times_that_cannot_be_fitted_are_refused(sizes, times, words):
    with pytest.raises(ValueError, match=words):
        fit_messages(sizes, times)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_a_kernel_is_found_again(overhead, per_row, per_entry):
    want = KernelTime(overhead, per_row, per_entry)
    rows, entries = [1, 10, 100, 1000, 5000], [27, 100, 4000, 20_000, 300_000]
    found = fit_kernel(rows, entries, [want(r, e) for r, e in zip(rows, entries, strict=True)])
    for r, e in zip(rows, entries, strict=True):
        assert found(r, e) == pytest.approx(want(r, e), rel=1e-6)


# --- networks
def test_latencies_of_an_exchange_pass_at_once_and_its_bytes_one_after_the_other():
    network = Network(MessageTime(10.0, 2.0), per_message=3.0, per_call=100.0)
    assert network.exchange(4, 20.0) == 100.0 + 4 * 3.0 + 10.0 + 2.0 * 20.0
    assert network.exchange(0, 0.0) == 0.0


def test_a_reduction_of_nothing_takes_one_latency_for_each_doubling_of_the_ranks():
    network = Network(MessageTime(5.0, 1.0), per_call=1.0)
    assert [network.reduction(P, 0.0) for P in (1, 2, 3, 4, 5, 131_072)] == [0.0, 6.0, 11.0, 11.0, 16.0, 86.0]


def test_long_reductions_send_halves_twice():
    """2 (log2 P latency + (1 - 1/P) n per_byte)."""
    network = Network(MessageTime(1.0, 1.0))
    assert network.reduction(8, 1e6) == pytest.approx(2.0 * (3.0 + (1.0 - 1.0 / 8.0) * 1e6))


def test_an_all_gather_receives_all_bytes_but_its_own():
    network = Network(MessageTime(1.0, 1.0))
    assert network.gather(8, 800.0) == pytest.approx(3.0 + 700.0)


# --- iterations
def test_without_messages_an_iteration_is_its_kernels():
    levels = [LevelLoad(100, 2700), LevelLoad(10, 90), LevelLoad(3, 9, total_rows=3)]
    kernels = {"product": KernelTime(1.0, 0.0, 0.01), "level": KernelTime(2.0, 0.1, 0.0),
               "vectors": KernelTime(0.0, 1.0, 0.0), "coarse": KernelTime(0.0, 0.0, 1.0)}  # fmt: skip
    time = iteration_time(levels, Network(MessageTime(1.0, 1.0)), 1, **kernels)
    assert time.kernels == pytest.approx((1.0 + 27.0) + 100.0 + (2.0 + 10.0) + (2.0 + 1.0))
    assert (time.messages, time.reductions, time.coarse) == (0.0, 0.0, 9.0)
    assert time.total == pytest.approx(time.kernels + 9.0)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_an_iteration_exchanges_once_for_its_product_and_its_transfers_and_twice_for_each_degree(degree):
    level = LevelLoad(10, 90, 3, 5, 2, 4, 1, 2, ranks=8)
    latency = Network(MessageTime(1.0, 0.0))
    time = iteration_time([level, level, LevelLoad(1, 1, ranks=1)], latency, 7, degree=degree, **NO_KERNELS)
    assert time.messages == 1 + 2 * (2 * degree + 2) and time.of_levels == (2 * degree + 2.0,) * 2
    assert time.reductions == 3 * 3.0 and time.coarse == 3.0


def test_the_product_sends_double_precision_and_the_cycle_single():
    level = LevelLoad(10, 90, 1, 5, 1, 4, 1, 2, ranks=1)
    time = iteration_time([level, LevelLoad(1, 1)], Network(MessageTime(0.0, 1.0)), 3, **NO_KERNELS)
    assert time.messages == 3 * (8 * 5 + 4 * (4 * 5 + 4 + 2))


# --- real messages
class Counting:
    """A communicator that counts the calls of MPI made through it."""

    def __init__(self, comm, calls):
        self.comm, self.calls = comm, calls

    def __getattr__(self, name):
        thing = getattr(self.comm, name)
        if name == "Dup":
            return lambda: Counting(thing(), self.calls)
        if not name[0].isupper() or not callable(thing):
            return thing

        def counted(*arguments, **options):
            self.calls[name] = self.calls.get(name, 0) + 1
            return thing(*arguments, **options)

        return counted


def calls_of_iterations(comm, degree):
    """How often a rank calls MPI in one more iteration of `cg`, and how many messages the model counts."""
    calls = {}
    A, at = box(14, 4, spread=0.3)
    right = right_hand_side(A.shape[0], 4)
    _, M, b = distributed_system(Counting(comm, calls), A, right, domains=2, coordinates=at)
    hierarchy = smoothed_aggregation(M, smoother=Chebyshev(degree=degree))
    found = []
    for iterations in (2, 4):
        calls.clear()
        cg(M, b, M=hierarchy, rtol=1e-30, max_iterations=iterations)
        found.append(dict(calls))
    once = Network(MessageTime(0.0, 0.0), per_message=1.0)
    loads = [
        LevelLoad(1, 1, len(level.A.halo.sends), 0, len(level.P.restriction.halo.sends), 0, len(level.P.halo.sends))
        for level in hierarchy.levels[:-1]
    ]
    want = iteration_time([*loads, LevelLoad(1, 1)], once, 1, degree=degree, **NO_KERNELS).messages
    return {k: (found[1].get(k, 0) - found[0].get(k, 0)) / 2 for k in found[1]}, want


@pytest.mark.parametrize("degree", [2, 3])
def test_the_messages_of_an_iteration_are_those_that_the_model_counts(mpi, degree):
    """Three sums are reduced; the last level is one all-gather."""
    for calls, want in mpi(calls_of_iterations, 2, degree):
        assert calls["Isend"] == want > 2 * degree + 2
        assert calls["Iallreduce"] == 3 and calls["Iallgatherv"] == 1
