"""Ranks on devices: the kernels on the emulator of CUDA, messages through memory of the host."""

import numpy as np
import pytest

from ensemble._compile import device_messages
from ensemble.distributed import DistributedCrsMatrix, Partition, devices, serial
from ensemble.distributed import agreement as agreement_module
from ensemble.distributed import space as space_module
from ensemble.distributed.serial import SerialCommunicator
from ensemble.distributed.space import RankSpace
from ensemble.krylov import bicgstab, cg, gmres, minres
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble
from tests import cuda_on_cpu
from tests.distributed.emulated import HostCopies, emulated_devices, on_emulator
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
    found = {}
    with on_emulator():
        hierarchy, double = (smoothed_aggregation(M, coarse_size=8, dtype=dtype) for dtype in (None, float))
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


def levels(comm, dtype):
    """Rows, bounds and rows of coarse matrices of a hierarchy made on emulated devices, and after an update."""
    A, at = box(15, 2, spread=0.5)
    b = right_hand_side(A.shape[0], 2)
    M = distributed_system(emulated_devices(comm), A, b, 8, coordinates=at)[1]
    found = []
    with on_emulator():
        hierarchy = smoothed_aggregation(M, coarse_size=8, dtype=dtype)
        for _ in range(2):
            assert not hierarchy.levels[1].A.rows.has_whole_chunks
            for level in hierarchy.levels:
                found += [level.A.shape, level.lambda_max, level.A.gathered().values]
            hierarchy.update(M.with_values(M.values * 3.0))
    return found


@pytest.mark.parametrize("dtype", [None, float])
def test_hierarchies_are_made_on_devices_with_the_bits_of_one_rank(mpi, dtype):
    want = levels(serial(), dtype)
    got = mpi(levels, 3, dtype)[0]
    assert len(want) > 12
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, theirs)


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


def reduced_and_gathered(comm):
    """What the messages of a rank between emulated devices bring."""
    comm = emulated_devices(comm)
    messages, rank, size = comm.device_messages, comm.rank, comm.size
    total = messages.all_reduce(np.array([[1, 10 * rank]], np.int64))
    most = messages.all_reduce(np.array([rank + 0.5, -rank]), largest=True)
    offsets = np.array([0, 2, 2, 5])[: size + 1]  # a rank without rows
    whole = np.full((int(offsets[-1]), 2), -1.0)
    whole[offsets[rank] : offsets[rank + 1]] = rank
    messages.all_gather(whole, offsets)
    sent, received = np.full((3, 2), float(rank)), np.zeros((2, 3, 2))
    beside = [(rank + 1) % size, (rank - 1) % size]
    messages.exchange([(r, sent) for r in beside], list(zip(beside, received, strict=True)))
    return total.tolist(), most.tolist(), whole[:, 0].tolist(), received[:, 0, 0].tolist(), repr(comm.Dup())


def test_messages_by_the_host_reduce_gather_and_exchange(mpi):
    for rank, (total, most, whole, received, shown) in enumerate(mpi(reduced_and_gathered, 3)):
        assert (total, most, whole) == ([[3, 30]], [2.5, 0.0], [0.0, 0.0, 2.0, 2.0, 2.0])
        assert received == [(rank + 1) % 3, (rank - 1) % 3]
        assert shown == f"DeviceCommunicator(rank {rank} of 3, an emulated device, messages by host)"


class DeviceLike:
    """What a device array is known by."""


def test_a_device_needs_messages_and_whole_chunks():
    diagonal = CrsMatrix(CrsGraph(np.arange(601), np.arange(600), (600, 600)), np.ones((600, 1)))
    for comm, error, match in (
        (serial(), TypeError, r"to: like must be in memory of the host; .*distributed.devices\(comm\)"),
        (emulated_devices(serial()), ValueError, "multiples of 64 rows; got domain 1 that begins at row 85"),
    ):
        A = DistributedCrsMatrix(Partition(600, comm, domains=7), diagonal)
        with pytest.raises(error, match=match):
            A.to(DeviceLike())


def test_devices_say_what_is_missing(monkeypatch):
    def none():
        raise RuntimeError("no device")

    monkeypatch.setattr(device_messages, "n_devices", none)
    with pytest.raises(RuntimeError, match="no device"):
        devices(serial())
    with pytest.raises(TypeError, match="devices: comm must be a communicator"):
        devices(3)


class OneDevice(SerialCommunicator):
    """Rank 2 of 5 ranks on two hosts, which see two devices each, some of them the same."""

    rank, size = 2, 5

    def allgather(self, sendobj):
        hosts = ["a", "b", "a", "a", "b"]
        if isinstance(sendobj, tuple):
            return [(host, f"bus {k % 2}", 22800) for k, host in enumerate(hosts)]
        return hosts if isinstance(sendobj, str) else [sendobj] * 5


def test_a_rank_has_the_device_of_its_number_on_its_host(monkeypatch):
    bound = []
    for name, value in {"n_devices": lambda: 2, "bind_device": bound.append, "device_identity": str,
                        "nccl_version": lambda: 22800, "PinnedCopies": HostCopies}.items():  # fmt: skip
        monkeypatch.setattr(device_messages, name, value)
    monkeypatch.setattr("socket.gethostname", lambda: "a")
    monkeypatch.setattr(agreement_module, "meet", lambda comm: None)
    comm = devices(OneDevice())
    assert bound == [1] and comm.messages == "host"  # ranks 0 and 2 are on "a" with bus 0


def test_sums_after_an_interrupted_one_are_right(monkeypatch):
    """What it had added to the digits is not kept."""
    comm = SerialCommunicator()
    comm.size = 2
    space = RankSpace(comm, 0, np.array([0, 64, 100]))

    def interrupted(comm, digits):
        raise KeyboardInterrupt

    partials = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    with on_emulator():
        monkeypatch.setattr(space_module, "all_sum", interrupted)
        with pytest.raises(KeyboardInterrupt):
            space.chunk_total(partials)
        monkeypatch.setattr(space_module, "all_sum", lambda comm, digits: digits)
        for _ in range(2):
            np.testing.assert_array_equal(space.chunk_total(partials), [[4.0, 6.0]])
    with pytest.raises(RuntimeError, match="share chunks"):
        RankSpace(comm, 0, np.array([0, 63, 100])).chunk_total(partials)


def reductions(comm, n_samples):
    """V-cycles of a solve with a hierarchy in single precision, and sums and maxima over ranks."""
    comm = emulated_devices(comm)
    messages = comm.device_messages
    messages.can_be_recorded = True
    A, at = box(8, n_samples, spread=0.3)
    M, right = distributed_system(comm, A, right_hand_side(A.shape[0], n_samples), domains=4, coordinates=at)[1:]
    count = {"V-cycles": 0, "sums": 0, "maxima": 0}
    with on_emulator():
        hierarchy = smoothed_aggregation(M, coarse_size=8)
        reduce, precondition = messages.all_reduce, hierarchy.precondition

        def counted(array, largest=False):
            count["maxima" if largest else "sums"] += 1
            return reduce(array, largest)

        def cycle(*arguments):
            count["V-cycles"] += 1
            return precondition(*arguments)

        messages.all_reduce, hierarchy.precondition = counted, cycle
        cg(M, right, M=hierarchy)
    return count


def test_an_iteration_reduces_three_sums_and_no_maximum(mpi):
    """A V-cycle enters in units of the norm that the solve has, and its inner product is taken once."""
    for count in mpi(reductions, 2, 2):
        assert count["V-cycles"] > 5
        assert count["maxima"] == 0
        assert 3 * count["V-cycles"] < count["sums"] <= 3 * count["V-cycles"] + 4


def test_a_cycle_in_units_of_the_norm_takes_right_hand_sides_of_any_magnitude():
    """In single precision: powers of two scale the solution and change no other bit; a sample of NaN fails alone."""
    comm = emulated_devices(serial())
    comm.device_messages.can_be_recorded = True
    A, at = box(8, 4, spread=0.3)
    M, right = distributed_system(comm, A, right_hand_side(A.shape[0], 4), domains=4, coordinates=at)[1:]
    with on_emulator():
        hierarchy = smoothed_aggregation(M, coarse_size=8)
        assert hierarchy.takes_norms and hierarchy.dtype == np.float32
        want = cg(M, right, M=hierarchy)
        assert want.converged.all()
        for power in (-700, 600):
            got = cg(M, Ensemble(right.samples * 2.0**power), M=hierarchy)
            np.testing.assert_array_equal(got.x.samples, want.x.samples * 2.0**power)
        odd = right.samples.copy()
        odd[:, 1], odd[5, 2] = 0.0, np.nan
        got = cg(M, Ensemble(odd), M=hierarchy)
    assert got.converged.tolist() == [True, True, False, True]
    np.testing.assert_array_equal(got.x.samples[:, [0, 3]], want.x.samples[:, [0, 3]])
