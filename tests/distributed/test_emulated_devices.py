"""Ranks on devices: the kernels on the emulator of CUDA, messages through memory of the host."""

import numpy as np
import pytest

from ensemble.distributed import serial
from ensemble.krylov import bicgstab, cg, gmres, minres
from ensemble.multigrid import smoothed_aggregation
from tests import cuda_on_cpu
from tests.distributed.emulated import emulated_devices, on_emulator
from tests.distributed.problems import box, digest, distributed_system, right_hand_side

pytestmark = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")

METHODS = {"bicgstab": bicgstab, "gmres": lambda A, b: gmres(A, b, restart=7), "minres": minres}


def solutions(comm, n_samples, cells=8):
    """Digests of all methods on rank 0, and solutions."""
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


@pytest.mark.parametrize("n_samples", [1, 4])
def test_ranks_on_devices_give_the_bits_of_one(mpi, n_samples):
    want = solutions(emulated_devices(serial()), n_samples)
    for ranks in (2, 3):
        got = mpi(on_ranks, ranks, n_samples)[0]
        assert {name: value[:2] for name, value in got.items()} == {name: value[:2] for name, value in want.items()}
        np.testing.assert_array_equal(got["norm"][2].samples, want["norm"][2].samples)


def on_ranks(comm, n_samples):
    return solutions(emulated_devices(comm), n_samples)
