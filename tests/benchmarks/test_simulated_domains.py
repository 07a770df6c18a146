"""The simulation of domains: counts worked out by hand, and a hierarchy made by the library."""

import doctest

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import simulated_domains
from benchmarks.simulated_domains import Box, coarsened, cube_graph, doubled, simulate
from ensemble.distributed import DistributedCrsMatrix, Partition, serial
from ensemble.multigrid import smoothed_aggregation


def test_the_examples_of_the_module_run():
    assert doctest.testmod(simulated_domains).failed == 0


@pytest.mark.parametrize("edge", [2, 3, 5])
def test_a_row_of_the_cube_couples_to_27(edge):
    parts = cube_graph(edge)
    assert len(parts) == 27
    assert np.all(sum(np.diff(part.indptr) for part in parts.values()) == 27)


@pytest.mark.parametrize("edge", [3, 5])
def test_an_inner_rank_reads_the_shell_of_its_cube_from_26_neighbours(edge):
    level = simulate(edge, 64)[0]
    assert level.load.messages == level.most_neighbours == 26
    assert level.load.ghost_rows == (edge + 2) ** 3 - edge**3


def test_a_rank_of_several_domains_reads_the_shell_of_their_box():
    """Eight domains of 4^3 rows are 8^3 rows, and 8 ranks have neighbours on one side of each axis."""
    level = simulate(4, 8, 8)[0]
    assert level.load.rows == 512 and level.load.messages == 7
    assert level.load.ghost_rows == 9**3 - 8**3


def test_one_rank_reads_nothing():
    assert all(level.load.messages == level.load.restriction_messages == 0 for level in simulate(6, 1))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_two_cubes_as_one_have_the_couplings_of_a_box(axis):
    parts = doubled(cube_graph(3), axis)
    assert len(parts) == 27 and parts[0, 0, 0].shape == (54, 54)
    assert np.all(sum(np.diff(part.tocsr().indptr) for part in parts.values()) == 27)


def test_domains_are_joined_along_the_axis_of_the_last_cut():
    box = Box(32, 32)
    for joins in range(6):
        united = np.unique(box.at // (np.array(box.shape) // box.grid(joins)), axis=0)
        assert united.shape[0] == 32 >> joins


@pytest.mark.parametrize("domains", [8, 64])
def test_rows_and_domains_of_each_level_are_those_of_the_hierarchy(domains):
    """On 12^3 and 24^3 nodes with domains of 6^3; entries at the surface are fewer."""
    edge, along = 6, round(domains ** (1 / 3))
    n = edge * along
    line = sp.diags_array([np.ones(n - 1), np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1])
    ones = sp.csr_array(sp.kron(sp.kron(line, line), line))
    A = sp.csr_array(sp.diags_array(np.full(n**3, 27.0))) - ones
    at = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), axis=-1).reshape(-1, 3).astype(float)
    partition = Partition(n**3, serial(), domains, coordinates=at)
    hierarchy = smoothed_aggregation(DistributedCrsMatrix(partition, A[partition.rows]))
    simulated = simulate(edge, domains)
    for level, model in zip(hierarchy.levels[:2], simulated[:2], strict=True):
        assert (level.A.shape[0], level.A.rows.n_domains) == (model.load.total_rows, model.domains)
        assert level.A.nnz <= model.load.entries * model.domains


def test_a_coarse_row_couples_to_aggregates_within_two_steps():
    """Three steps of the graph reach the next aggregate of 3^3 nodes, and no farther domain."""
    _, coarse = coarsened(cube_graph(9))
    assert coarse[0, 0, 0].shape == (27, 27)
    assert max(abs(k) for o in coarse for k in o) == 1


@pytest.mark.parametrize("domains, ranks", [(6, 2), (8, 3), (4, 8)])
def test_what_is_no_power_of_two_is_refused(domains, ranks):
    with pytest.raises(ValueError, match="powers of two"):
        Box(domains, ranks)
