"""Random chains of NumPy calls give every sample what they give it alone, written values included."""

import pytest

from ensemble.scalar import Ensemble
from tests.conftest import examples
from tests.scalar import numpy_chains
from tests.scalar.numpy_chains import outcomes, run_chain

REFUSED = ("refused: ",)


def ends(found):
    """How many chains ran to their end, and how many ended where an ensemble refuses what NumPy does."""
    return found["equal"], sum(n for how, n in found.items() if how.startswith(REFUSED))


def test_chains_of_calls_are_those_of_each_sample():
    count = examples(300)
    equal, refused = ends(outcomes(0, count))
    assert equal > 0.8 * count and refused < 0.05 * count


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000_000, 9_000_000, 1_000_000))
def test_eighty_thousand_chains_of_calls_are_those_of_each_sample(first):
    equal, refused = ends(outcomes(first, 10_000))
    assert equal > 8000 and refused < 500


def test_the_comparison_of_chains_is_able_to_fail(monkeypatch):
    monkeypatch.setattr(Ensemble, "reshape", lambda x, *shape: x.copy())
    monkeypatch.setattr(numpy_chains, "STEPS", [numpy_chains.of_one({"reshape": lambda x: x.reshape(-1)})])
    with pytest.raises(AssertionError, match="variable"):
        for seed in range(20):
            run_chain(seed)
