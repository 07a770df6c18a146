"""Ranks on devices: the kernels on the emulator of CUDA, messages through memory of the host."""

import numpy as np
import pytest

from ensemble.distributed import serial
from ensemble.krylov import bicgstab, cg, gmres, minres
from ensemble.multigrid import smoothed_aggregation
from tests import cuda_on_cpu
from tests.distributed.emulated import emulated_devices, on_emulator
from tests.distributed.systems import box, digest, distributed_system, right_hand_side

pytestmark = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")

METHODS = {
    "bicgstab": lambda A, b: bicgstab(A, b, rtol=1e-3),
    "gmres": lambda A, b: gmres(A, b, restart=7, rtol=1e-2),
    "minres": lambda A, b: minres(A, b, rtol=1e-3),
}


def solutions(comm, n_samples, recorded=False, cells=8):
    """Digests of all methods on rank 0, and solutions; `recorded`: with scalars on the device."""
    comm.device_messages.can_be_recorded = recorded
    A, at = box(cells, n_samples, spread=0.3)
    b = right_hand_side(A.shape[0], n_samples)
    partition, M, right = distributed_system(comm, A, b, domains=4, coordinates=at)
    assert not (partition.domain_offsets[:-1] % 64).any()
    solves = {
        **METHODS,
        "cg": lambda A, b: cg(A, b, M=hierarchy),
        "cg, double": lambda A, b: cg(A, b, M=double, rtol=10.0 ** -(2.0 + np.arange(b.n_samples) % 8)),
    }
    hierarchy, double = smoothed_aggregation(M, coarse_size=60), smoothed_aggregation(M, coarse_size=60, dtype=float)
    found = {}
    with on_emulator():
        for name, solve in solves.items():
            result = solve(M, right)
            found[name] = digest(partition, result), result.iterations.tolist(), partition.gather(result.x)
        found["norm"] = "", [], partition.norm(right)
    return found


@pytest.mark.parametrize("n_samples, recorded", [(1, False), (4, True), pytest.param(5, True, marks=pytest.mark.slow)])
def test_ranks_on_devices_give_the_bits_of_one(mpi, n_samples, recorded):
    """On one rank scalars are on the device, on several they are where messages can be recorded: the same bits."""
    want = solutions(emulated_devices(serial()), n_samples)
    for ranks in (3,) if recorded else (2,):
        got = mpi(on_ranks, ranks, n_samples, recorded)[0]
        assert {name: value[:2] for name, value in got.items()} == {name: value[:2] for name, value in want.items()}
        np.testing.assert_array_equal(got["norm"][2].samples, want["norm"][2].samples)


def on_ranks(comm, n_samples, recorded):
    return solutions(emulated_devices(comm), n_samples, recorded)


def test_one_rank_agrees_with_the_same_rank_on_the_host():
    """Sums are cut in another way: the same iterations, solutions to rounding."""
    got = solutions(emulated_devices(serial()), 4)
    A, at = box(8, 4, spread=0.3)
    partition, M, right = distributed_system(serial(), A, right_hand_side(A.shape[0], 4), domains=4, coordinates=at)
    for name, solve in {**METHODS, "cg": lambda A, b: cg(A, b, M=smoothed_aggregation(M, coarse_size=60))}.items():
        expected = solve(M, right)
        _, iterations, x = got[name]
        np.testing.assert_array_equal(iterations, expected.iterations)
        np.testing.assert_allclose(x.samples, partition.gather(expected.x).samples, rtol=1e-6, atol=1e-8)
