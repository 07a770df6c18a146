"""Sobol' and Halton points: those of SciPy, by their number."""

import numpy as np
import pytest
from scipy import stats
from scipy.stats import qmc

import ensemble as en
from ensemble import uq
from ensemble.uq.samplers.quasi_random import digit_permutations, primes


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("n_germs", [1, 5])
def test_each_scramble_of_sobol_is_a_sequence_of_scipy(replicates, n_germs):
    points = uq.Sobol(replicates=replicates).points(np.arange(700 * replicates), n_germs, seed=61103)
    for r, child in enumerate(np.random.SeedSequence(61103).spawn(replicates)):
        expected = qmc.Sobol(n_germs, bits=53, rng=np.random.default_rng(child)).random_base2(10)[:700]
        assert np.array_equal(points[r::replicates], expected)


@pytest.mark.parametrize("first", [0, 1000, 10**6, 10**12])
def test_halton_points_are_the_scrambled_radical_inverse(first):
    ids = np.arange(first, first + 50)
    points = uq.Halton(replicates=1).points(ids, 5, seed=61104)
    for column, base in enumerate([2, 3, 5, 7, 11]):
        permutations = digit_permutations(base, column, 61104, 0)
        expected = np.zeros(50)
        for k, permutation in enumerate(permutations):
            digits = np.array([int(i) // base**k % base for i in ids])
            expected += permutation[digits] * float(base) ** -(k + 1)
        np.testing.assert_allclose(points[:, column], expected, rtol=0.0, atol=4e-16)


def test_halton_points_fill_the_intervals_of_each_base():
    points = uq.Halton(replicates=2).points(np.arange(2 * 7**4), 4, seed=61106)
    for r in range(2):
        for column, (base, power) in enumerate([(2, 11), (3, 7), (5, 4), (7, 4)]):
            cells = np.floor(points[r::2, column][: base**power] * base**power)
            assert np.array_equal(np.sort(cells), np.arange(base**power))
    assert not np.array_equal(points[::2], points[1::2])


def test_columns_of_halton_have_the_primes_in_their_order():
    expected = [n for n in range(2, 8000) if all(n % k for k in range(2, int(n**0.5) + 1))]
    assert len(expected) > 1000
    for count in (0, 1, 5, 6, 7, 100, 1000):
        assert list(primes(count)) == expected[:count]


def test_far_points_of_sobol_are_found_at_once():
    engine = qmc.Sobol(3, bits=53, rng=np.random.default_rng(np.random.SeedSequence(61105).spawn(1)[0]))
    engine.random_base2(18)
    assert np.array_equal(uq.Sobol(replicates=1).points([2**18], 3, seed=61105), engine.random(1))


def test_unbalanced_numbers_of_sobol_points_are_told():
    with pytest.warns(UserWarning, match="100 samples are not balanced; take 8 times a power of two, say 128"):
        en.Inputs(a=stats.norm()).samples(100)
    with pytest.warns(UserWarning, match="1 sample is not balanced; take 8 times a power of two, say 8"):
        en.Inputs(a=stats.norm()).samples(1)


def test_the_warning_of_unbalanced_numbers_names_the_line_of_the_caller():
    inputs = en.Inputs(a=stats.norm())
    for call in (lambda: inputs.samples(100), lambda: en.propagate(lambda x: x.a, inputs, 100, progress=False)):
        with pytest.warns(UserWarning, match="not balanced") as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]


def test_points_that_would_take_hours_to_find_are_refused():
    with pytest.raises(ValueError, match=r"Sobol.points: ids must be below 2\*\*32 times 8"):
        uq.Sobol().points([2**36], 1, seed=61108)


def test_too_many_columns_for_sobol_are_refused():
    with pytest.raises(ValueError, match="inputs must take at most 21201 columns; got 30000"):
        en.Inputs(v=uq.Vector(stats.norm(), 30_000)).samples(8)


def test_replicates_are_one_or_more():
    with pytest.raises(ValueError, match="Halton: replicates must be an integer of at least 1"):
        uq.Halton(replicates=0)
