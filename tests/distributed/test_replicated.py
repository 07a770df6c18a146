"""Coarse levels that every rank holds whole give the bits of those over ranks."""

import numpy as np
import pytest

from ensemble.distributed.replicated import ReplicatedLevels
from ensemble.krylov import cg
from ensemble.multigrid import smoothed_aggregation
from ensemble.multigrid.placed import PlacedHierarchy
from tests.distributed.systems import box, distributed_system, right_hand_side


def cycles(comm, options):
    """How many levels a V-cycle has over ranks, and its results and solutions by levels over ranks and whole ones."""
    A, at = box(14, 3, spread=0.5)
    partition, M, b = distributed_system(comm, A, right_hand_side(A.shape[0], 3), domains=8, coordinates=at)
    host = smoothed_aggregation(M, **options)
    placed = PlacedHierarchy(host, np.empty(0))
    assert isinstance(placed.cycle[1], ReplicatedLevels)
    found = [partition.gather(hierarchy @ b) for hierarchy in (host, placed)]
    other = M.with_values(M.values * 1.5)
    placed.update(other)
    found += [partition.gather(cg(other, b, M=hierarchy).x) for hierarchy in (host, placed)]
    return len(host.levels), len(placed.cycle[0]), found


@pytest.mark.parametrize("options", [{"coarse_size": 8}, {"coarse_size": 8, "dtype": np.float64}])
def test_whole_levels_change_no_bit(mpi, options):
    levels, over_ranks, found = mpi(cycles, 2, options)[0]
    assert over_ranks < levels
    for by_ranks, whole in (found[:2], found[2:]):
        np.testing.assert_array_equal(by_ranks.samples, whole.samples)
