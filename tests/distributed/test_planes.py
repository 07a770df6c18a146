"""Domains of a box are boxes: a cut by coordinates goes between planes of rows where some are near enough."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensemble.distributed import Partition, serial
from ensemble.distributed.domains import domain_offsets, rank_domains
from ensemble.distributed.serial import SerialCommunicator
from tests.distributed.fakes import FakeCommunicator


class OnDevices(SerialCommunicator):
    """One rank that exchanges arrays of a device."""

    device_messages = object()


def grid(shape, graded):
    """The nodes of a box; of a graded one no axis is divided evenly."""
    axes = [np.cumsum(np.random.default_rng(7 + n).random(n) + 0.5) if graded else np.arange(float(n)) for n in shape]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(shape))


def domains_of(partition):
    return [partition.rows[a:b] for a, b in itertools.pairwise(partition.domain_offsets)]


@pytest.mark.parametrize("shape", [(33, 33, 33), (90, 17, 9), (181, 120), (20_000,)])
@pytest.mark.parametrize("graded", [False, True])
def test_domains_of_a_box_are_boxes(shape, graded):
    at = grid(shape, graded)
    domains = domains_of(Partition(at.shape[0], serial(), coordinates=at))
    assert len(domains) in (8, 16)
    for rows in domains:
        assert rows.size == np.prod([np.unique(column).size for column in at[rows].T])
        assert np.all(np.diff(rows) > 0) and abs(rows.size * len(domains) / at.shape[0] - 1) < 0.25


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_have_equally_many_domains_where_cuts_moved(ranks):
    """Of 65 planes 32 come first: shared out by rows, the first domain behind the cut would go to the rank before."""
    at = grid((65, 33, 33), False)
    partition = Partition(at.shape[0], FakeCommunicator(0, ranks), 128, coordinates=at)
    equal = np.arange(ranks + 1) * (128 // ranks)
    assert not np.array_equal(rank_domains(partition.domain_offsets, ranks), equal)
    assert np.array_equal(partition.rank_domains, equal)
    assert np.array_equal(partition.blocked(3).rank_domains, equal)


def test_rows_of_a_node_stay_together_in_boxes():
    at = grid((25, 25, 25), False)
    nodes = Partition(at.shape[0], serial(), 8, coordinates=at)
    rows = Partition(3 * at.shape[0], serial(), 8, coordinates=at, block_size=3)
    assert np.array_equal(rows.domain_offsets, 3 * nodes.domain_offsets) and np.any(nodes.domain_offsets % 512)
    assert np.array_equal(rows.rows, (3 * nodes.rows[:, None] + np.arange(3)).reshape(-1))


@pytest.mark.parametrize(
    "comm, at",
    {
        "devices sum chunks of rows, of which none has two domains": (OnDevices(), grid((25, 25, 25), False)),
        "no plane has two rows": (serial(), np.random.default_rng(5).random((15_625, 3))),
        "all rows lie in one plane": (serial(), np.zeros((15_625, 3))),
        "a plane is a fifth of the rows": (serial(), grid((5, 3125), False)[:, :1]),
        "small domains": (serial(), grid((12, 12, 12), False)),
    }.values(),
    ids=["devices", "no planes", "one plane", "thick planes", "small domains"],
)
def test_domains_have_the_sizes_of_every_cut_elsewhere(comm, at):
    domains = 8 if at.shape[0] > 2000 else 4
    partition = Partition(at.shape[0], comm, domains, coordinates=at)
    assert np.array_equal(partition.domain_offsets, domain_offsets(at.shape[0], domains))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=3), st.integers(2, 20), st.randoms(use_true_random=False))
def test_every_domain_has_rows_whatever_rows_share_planes(steps, domains, random):
    draw = np.random.default_rng(random.getrandbits(32))
    n = 512 * domains + int(draw.integers(2000))
    at = np.stack([draw.integers(0, step, n) for step in steps], axis=1).astype(float)
    partition = Partition(n, serial(), domains, coordinates=at)
    sizes = np.diff(partition.domain_offsets)
    assert np.array_equal(np.sort(partition.rows), np.arange(n)) and partition.domains == domains
    assert sizes.min() > 0.7 * n / domains - 512 and sizes.max() < 1.3 * n / domains + 512
