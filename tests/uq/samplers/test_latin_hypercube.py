"""Latin hypercube designs: strata, independence, extension."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import uq


def test_every_design_has_one_point_in_each_stratum():
    sampler = uq.LatinHypercube(block=10, replicates=3)
    points = sampler.points(np.arange(60), 4, seed=41101)
    designs = [points[first + r : first + 30 : 3] for first in (0, 30) for r in range(3)]
    for design in designs:
        assert np.array_equal(np.sort(np.floor(10 * design), axis=0), np.tile(np.arange(10.0)[:, None], 4))
    assert len({design.tobytes() for design in designs}) == 6


def test_the_default_is_eight_designs_where_that_is_whole():
    inputs = en.Inputs(a=stats.uniform())
    resolved = uq.LatinHypercube().for_inputs(inputs, 80)
    assert (resolved.block, resolved.n_replicates) == (10, 8)
    resolved = uq.LatinHypercube().for_inputs(inputs, 81)
    assert (resolved.block, resolved.n_replicates) == (81, 1)
    x = inputs.samples(80, sampler="latin_hypercube", seed=41102).a.samples
    assert np.array_equal(np.sort(np.floor(10 * x[3::8])), np.arange(10.0))


def test_a_sample_is_the_same_in_any_company_and_after_extension():
    sampler = uq.LatinHypercube(block=10, replicates=2)
    whole = sampler.points(np.arange(100), 3, seed=41103)
    ids = [99, 0, 17, 17, 50]
    assert np.array_equal(sampler.points(ids, 3, seed=41103), whole[ids])


def test_an_unsettled_block_is_told():
    with pytest.raises(ValueError, match=r"LatinHypercube.points: block must be given; got None"):
        uq.LatinHypercube().points([0], 1, seed=41104)
    with pytest.raises(ValueError, match="block must be an integer of at least 1"):
        uq.LatinHypercube(block=0)


@pytest.mark.parametrize(("block", "n_germs"), [(1, 3), (33, 2), (64, 1)])
def test_a_design_has_the_bits_of_scipys(block, n_germs):
    stream = np.random.SeedSequence(41105, spawn_key=(3,))
    expected = stats.qmc.LatinHypercube(n_germs, rng=np.random.default_rng(stream)).random(block)
    points = uq.LatinHypercube(block=block, replicates=4).points(np.arange(3, 4 * block, 4), n_germs, seed=41105)
    assert np.array_equal(points, expected)
