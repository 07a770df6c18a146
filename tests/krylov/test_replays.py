"""Recorded iterations that serve later solves, on the emulator: what is recorded is replayed launch by launch."""

import contextlib
import gc
import pickle
import weakref

import numpy as np
import pytest

from ensemble import Ensemble
from ensemble._compile import cuda
from ensemble._compile.device_messages import Nccl
from ensemble.krylov import _device, bicgstab, cg
from ensemble.krylov.cg import CgIteration
from ensemble.multigrid import smoothed_aggregation
from tests.device_problems import problem


class Recorded:
    """Launches: made directly the first time, noted the second, made again from the notes from then on."""

    def __init__(self, launches, record):
        self.launches, self.times, self.notes = launches, 0, None

    def release_launches(self):
        if self.notes is not None:
            self.launches = None
        return self.notes is not None

    def __call__(self):
        if self.notes is not None:
            for module, arguments, options in self.notes:
                module.launch(*arguments, **options)
            return
        self.times += 1
        if self.times == 1:
            self.launches()
            return
        notes, launch = [], cuda.KernelModule.launch

        def noted(module, *arguments, **options):
            notes.append((module, arguments, options))
            launch(module, *arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cuda.KernelModule, "launch", noted)
            self.launches()
        self.notes = notes


@pytest.fixture
def begun(as_device, monkeypatch):
    """Solves are recorded; how many iterations were queued from Python."""
    counts = []
    iterate = CgIteration.iterate
    monkeypatch.setattr(_device, "own_stream", lambda array: contextlib.nullcontext(True))
    monkeypatch.setattr(_device, "CudaGraph", Recorded)
    monkeypatch.setattr(CgIteration, "iterate", lambda state: (counts.append(1), iterate(state))[1])
    return counts


def right_hand_sides(b, count=4):
    rng = np.random.default_rng(5)
    return [Ensemble(b.samples * rng.uniform(0.5, 2.0, b.samples.shape)) for _ in range(count)]


def same(got, expected):
    np.testing.assert_array_equal(got.x.samples, expected.x.samples)
    np.testing.assert_array_equal(got.residual_norms, expected.residual_norms)
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    assert list(got.status) == list(expected.status)


@pytest.mark.parametrize("options", [{}, {"flexible": True}, {"rtol": np.array([1e-3, 1e-9, 1e-6, 1e-4, 1e-8])}])
def test_later_solves_are_replayed_with_the_bits_of_first_ones(begun, options):
    A, b = problem(5)
    hierarchy = smoothed_aggregation(A, coarse_size=60)
    found = []
    for k, each in enumerate(right_hand_sides(b)):
        found.append(cg(A, each, M=hierarchy, **options))
        assert len(begun) == 2, k  # of the first solve: directly, and recorded
    for each, got in zip(right_hand_sides(b), found, strict=True):
        same(got, cg(A, each, M=smoothed_aggregation(A, coarse_size=60), **options))


def test_what_broken_samples_leave_reaches_no_later_solve(begun):
    A, b = problem(5)
    hierarchy = smoothed_aggregation(A, coarse_size=60)
    first, second, third, _ = right_hand_sides(b)
    cg(A, first, M=hierarchy)
    second.samples[3, 1], second.samples[:, 2] = np.nan, 0.0
    second.samples[:, 3] *= np.inf
    cg(A, second, M=hierarchy)
    before = len(begun)
    got = cg(A, third, M=hierarchy)
    assert len(begun) == before and got.converged.all()
    same(got, cg(A, third, M=smoothed_aggregation(A, coarse_size=60)))


def test_a_starting_guess_is_taken_by_a_replayed_solve(begun):
    A, b = problem(5)
    hierarchy = smoothed_aggregation(A, coarse_size=60)
    first, second, guess, _ = right_hand_sides(b)
    cg(A, first, M=hierarchy)
    same(cg(A, second, x0=guess, M=hierarchy), cg(A, second, x0=guess, M=smoothed_aggregation(A, coarse_size=60)))


def test_other_solves_of_the_same_kind_are_not_replayed(begun):
    """Another matrix, limit or number of samples, other values of the matrix or of the hierarchy."""
    A, b = problem(5)
    hierarchy = smoothed_aggregation(A, coarse_size=60)
    other = A.with_values(1.5 * A.values)
    solves = [
        lambda M: cg(A, b, M=M),
        lambda M: cg(other, b, M=M),
        lambda M: cg(A, b, M=M, max_iterations=999),
        lambda M: cg(A, b, M=M, flexible=True),
        lambda M: cg(other, b, M=M.update(other)),
        lambda M: bicgstab(A, b, M=M.update(A)),
    ]
    for solve in solves:
        same(solve(hierarchy), solve(smoothed_aggregation(A, coarse_size=60)))


def test_values_that_change_in_place_are_those_that_a_replay_reads(begun):
    A, b = problem(5)
    hierarchy = smoothed_aggregation(A, coarse_size=60)
    cg(A, b, M=hierarchy)
    kept = smoothed_aggregation(A, coarse_size=60)
    A.values[...] *= 1.25
    got = cg(A, b, M=hierarchy)
    assert len(begun) == 2
    same(got, cg(A, b, M=kept))


def test_a_matrix_that_gets_another_array_of_values_is_recorded_anew(begun):
    A, b = problem(5)
    hierarchy = smoothed_aggregation(A, coarse_size=60)
    kept = smoothed_aggregation(A, coarse_size=60)
    cg(A, b, M=hierarchy)
    A.values = 1.25 * A.values
    got = cg(A, b, M=hierarchy)
    assert len(begun) == 4
    same(got, cg(A, b, M=kept))


def test_records_go_with_their_matrix_with_the_hierarchy_and_at_an_update(begun):
    A, b = problem(5)
    hierarchy = smoothed_aggregation(A, coarse_size=60)
    gc.disable()
    try:
        cg(A, b, M=hierarchy)
        assert len(hierarchy.replays) == 1
        assert not pickle.loads(pickle.dumps(hierarchy)).replays
        hierarchy.update(A)
        assert not hierarchy.replays
        other = A.with_values(A.values.copy())
        values = weakref.ref(other.values)
        cg(other, b, M=hierarchy)
        assert hierarchy.replays
        del other
        assert not hierarchy.replays and values() is None
        cg(A, b, M=hierarchy)
        replay = weakref.ref(next(iter(hierarchy.replays.values())))
        del hierarchy
        assert replay() is None
    finally:
        gc.enable()


def test_a_communicator_ends_its_graphs_before_it_ends_itself():
    """NCCL waits for ever else."""
    messages = object.__new__(Nccl)
    messages._graphs = []
    first, second = [object()], [object()]
    messages.share_graph(first)
    messages.share_graph(first)
    assert messages._graphs == [first]
    ended, first[:] = weakref.ref(messages), []
    messages.share_graph(second)
    assert messages._graphs == [second]
    del messages
    assert ended() is None and second == []


@pytest.mark.cuda
@pytest.mark.parametrize("n_samples", [1, 5, 32])
@pytest.mark.parametrize("method", [cg, bicgstab])
def test_graphs_of_a_device_are_replayed_with_the_bits_of_first_solves(n_samples, method):
    import cupy

    A, b = problem(n_samples)
    A = A.to(cupy.empty(0))
    hierarchy = smoothed_aggregation(A, coarse_size=60)
    on_device = [Ensemble(cupy.asarray(each.samples)) for each in right_hand_sides(b)]
    found = [method(A, each, M=hierarchy) for each in on_device]
    assert len(hierarchy.replays) == 1
    cupy.get_default_memory_pool().free_all_blocks()  # nothing that graphs need may go
    found += [method(A, each, M=hierarchy) for each in on_device]
    for each, first, second in zip(on_device, found[:4], found[4:], strict=True):
        alone = method(A, each, M=smoothed_aggregation(A, coarse_size=60))
        for got in (first, second):
            np.testing.assert_array_equal(got.x.samples.get(), alone.x.samples.get())
            np.testing.assert_array_equal(got.residual_norms, alone.residual_norms)
            assert list(got.status) == list(alone.status)
