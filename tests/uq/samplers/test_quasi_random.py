"""Sobol' and Halton points: those of SciPy, by their number."""

import numpy as np
import pytest
from scipy import stats
from scipy.stats import qmc

import ensemble as en
from ensemble import uq


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("n_germs", [1, 5])
def test_each_scramble_of_sobol_is_a_sequence_of_scipy(replicates, n_germs):
    points = uq.Sobol(replicates=replicates).points(np.arange(700 * replicates), n_germs, seed=61103)
    for r, child in enumerate(np.random.SeedSequence(61103).spawn(replicates)):
        expected = qmc.Sobol(n_germs, bits=53, rng=np.random.default_rng(child)).random_base2(10)[:700]
        assert np.array_equal(points[r::replicates], expected)


@pytest.mark.parametrize("replicates", [1, 3])
def test_each_scramble_of_halton_is_a_sequence_of_scipy(replicates):
    points = uq.Halton(replicates=replicates).points(np.arange(100 * replicates), 4, seed=61104)
    for r, child in enumerate(np.random.SeedSequence(61104).spawn(replicates)):
        expected = qmc.Halton(4, rng=np.random.default_rng(child)).random(100)
        assert np.array_equal(points[r::replicates], expected)


def test_far_points_of_sobol_are_found_at_once():
    engine = qmc.Sobol(3, bits=53, rng=np.random.default_rng(np.random.SeedSequence(61105).spawn(1)[0]))
    engine.random_base2(18)
    assert np.array_equal(uq.Sobol(replicates=1).points([2**18], 3, seed=61105), engine.random(1))


def test_unbalanced_numbers_of_sobol_points_are_told():
    with pytest.warns(UserWarning, match="100 samples are not balanced; take 8 times a power of two, say 128"):
        en.Inputs(a=stats.norm()).samples(100)


def test_replicates_are_one_or_more():
    with pytest.raises(ValueError, match="Halton: replicates must be an integer of at least 1"):
        uq.Halton(replicates=0)
