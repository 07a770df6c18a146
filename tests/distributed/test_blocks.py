"""Partitions whose rows come in blocks that stay together."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ensemble.distributed import Partition, serial
from ensemble.gallery import poisson
from ensemble.linalg import BcrsMatrix

NODES = 700
POINTS = np.random.default_rng(11).random((NODES, 3))
GRAPH = poisson((NODES // 7, 7)).to_scipy(0)


def cut_by(name, block_size, whole):
    """The arguments of a cut, given for nodes or for all rows."""
    if name == "rows":
        return {}
    if name == "coordinates":
        return {name: np.repeat(POINTS, block_size, axis=0) if whole else POINTS}
    return {name: sp.kron(GRAPH, np.ones((block_size, block_size))) if whole else GRAPH}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", ["rows", "coordinates", "graph"])
@pytest.mark.parametrize("block_size", [1, 2, 3, 6])
def test_blocks_stay_together_and_are_cut_as_nodes(name, block_size, whole):
    nodes = Partition(NODES, serial(), 9, **cut_by(name, 1, False))
    rows = Partition(NODES * block_size, serial(), 9, block_size=block_size, **cut_by(name, block_size, whole))
    for other in (rows, nodes.blocked(block_size)):
        together = other.rows.reshape(-1, block_size)
        assert np.array_equal(together[:, 0] // block_size, nodes.rows) and np.all(np.diff(together, axis=1) == 1)
        assert np.array_equal(other.domain_offsets, nodes.domain_offsets * block_size)
        assert other.block_size == block_size and other.n == NODES * block_size and other.method == name
        assert np.array_equal(other.number_of(other.rows), np.arange(other.n))


@given(st.integers(0, 400), st.integers(1, 12), st.integers(1, 4), st.integers(1, 3))
def test_blocks_of_blocks_are_blocks(n, domains, first, second):
    nodes = Partition(n, serial(), domains)
    other = nodes.blocked(first).blocked(second)
    assert other.n == n * first * second and other.block_size == first * second
    assert np.array_equal(other.domain_offsets, nodes.domain_offsets * first * second)


def test_a_matrix_of_blocks_has_the_graph_of_its_nodes():
    A = BcrsMatrix.from_scipy(sp.kron(GRAPH, np.eye(2)).tobsr((2, 2)))
    found = Partition(2 * NODES, serial(), 9, graph=A, block_size=2)
    assert np.array_equal(found.rows[::2] // 2, Partition(NODES, serial(), 9, graph=GRAPH).rows)


@pytest.mark.parametrize(
    "arguments, requirement",
    [
        ({"block_size": 3}, "block_size must divide the 10 rows; got 3"),
        ({"block_size": 0}, "block_size must be"),
        ({"block_size": 5, "coordinates": np.ones((4, 2))}, r"coordinates must have shape \(n, d\) with n = 10 or 2"),
        ({"block_size": 5, "graph": sp.eye_array(4)}, "graph must have shape"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(arguments, requirement):
    with pytest.raises(ValueError, match=requirement):
        Partition(10, serial(), **arguments)
