"""Random calls of NumPy's functions: each sample's result, writes and shared memory are those of its own call."""

import collections

import numpy as np
import pytest

from ensemble.scalar import Ensemble
from tests.conftest import examples
from tests.scalar.numpy_calls import DifferenceError, Draw, Own, compared, quiet
from tests.scalar.numpy_functions import CALLS, drawn

WEIGHTED = [name for name, (*_, weight, _) in CALLS.items() for _ in range(weight)]


def outcomes(seed, n_calls):
    """How often calls ended in which way, by the first word; differences raise with the call."""
    rng = np.random.default_rng(seed)
    found = collections.Counter()
    for k in range(n_calls):
        with quiet():
            call = drawn(Draw(rng), WEIGHTED[k % len(WEIGHTED)])
        try:
            found["none drawn" if call is None else compared(call).partition(":")[0]] += 1
        except DifferenceError as difference:
            raise AssertionError(f"call {k} of seed {seed}: {call}") from difference
    return found


def test_random_calls_are_those_of_each_sample():
    count = examples(2000)
    found = outcomes(90121, count)
    assert found["equal"] > 0.75 * count and found["refused"] < 0.1 * count


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60103, 60113))
def test_a_hundred_thousand_random_calls_are_those_of_each_sample(seed):
    found = outcomes(seed, 10_000)
    assert found["equal"] > 7500 and found["refused"] < 1000


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda x: Ensemble(np.roll(x.samples, 1, axis=-1)),
        lambda x: x.astype(np.float32),
        lambda x: x[..., None],
        lambda x: np.flip(x[::-1].copy(), axis=0),
    ],
    ids=["another sample", "another dtype", "another shape", "another memory"],
)
def test_the_comparison_is_able_to_fail(spoiled):
    from tests.scalar.numpy_calls import Call

    def function(x):
        return spoiled(x[1:]) if isinstance(x, Ensemble) else x[1:]

    with pytest.raises(DifferenceError):
        compared(Call("spoiled", function, (Own(np.random.default_rng(31).normal(size=(3, 4))),)))
