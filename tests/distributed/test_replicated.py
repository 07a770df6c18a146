"""Coarse levels that every rank holds whole give the bits of those over ranks."""

import numpy as np
import pytest

from ensemble.distributed.halo import Halo
from ensemble.distributed.replicated import with_whole_levels
from ensemble.krylov import cg
from ensemble.multigrid import smoothed_aggregation
from tests.distributed.systems import box, distributed_system, right_hand_side


def cycles(comm, options):
    """How many levels there are, and results and solutions by levels over ranks, then by whole ones."""
    A, at = box(14, 3, spread=0.5)
    partition, M, b = distributed_system(comm, A, right_hand_side(A.shape[0], 3), domains=8, coordinates=at)
    host = smoothed_aggregation(M, **options)
    found = [partition.gather(host @ b), partition.gather(cg(M, b, M=host).x)]
    cycle = with_whole_levels(host.levels, 1, host.coarse)
    exchanges = [exchanges_of(lambda: host @ b)]
    host._cycle = (host.levels, host.coarse, host.levels[0].A), cycle
    found += [partition.gather(host @ b), partition.gather(cg(M, b, M=host).x)]
    return len(host.levels), found, [*exchanges, exchanges_of(lambda: host @ b)]


def exchanges_of(call):
    """How many exchanges of ghost rows a call begins."""
    count, start = [], Halo.start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Halo, "start", lambda self, whole: (count.append(1), start(self, whole))[1])
        call()
    return len(count)


@pytest.mark.parametrize("options", [{"coarse_size": 8}, {"coarse_size": 8, "dtype": np.float64}])
def test_whole_levels_change_no_bit(mpi, options):
    """A V-cycle of degree 2 exchanges six times a level; the prolongator reads the rows of a whole level."""
    levels, found, (by_ranks, whole) = mpi(cycles, 2, options)[0]
    assert levels > 2
    assert by_ranks > whole == 5
    for by_ranks, whole in zip(found[:2], found[2:], strict=True):
        np.testing.assert_array_equal(by_ranks.samples, whole.samples)
