"""Fused functions equal the same expression operation by operation, and a sample sees only itself."""

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ensemble.scalar import Ensemble, fuse
from tests.scalar.fused import SPECIAL, WHOLE, assert_same_bits

ARITHMETIC = ["add", "subtract", "multiply", "divide"]

ORDER = ["maximum", "minimum"]

UNARY = ["negative", "abs", "sqrt", "square", "floor", "ceil", "trunc", "round", "sign"]

COMPARISONS = ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]

CONSTANTS = [2.0, -0.5, 3, 1.0]

graphs = settings(max_examples=2, phases=[Phase.explicit, Phase.generate])
"""Each example compiles: few of them, and no search for a smaller one."""


class OneByOne:
    """NumPy, operation by operation; of two equal zeros `maximum` and `minimum` take the second, on every processor."""

    def __getattr__(self, name):
        return getattr(np, name)

    def maximum(self, a, b):
        return np.where((np.asarray(a) > b) | (np.asarray(a) != a), a, b)

    def minimum(self, a, b):
        return np.where((np.asarray(a) < b) | (np.asarray(a) != a), a, b)


@st.composite
def programs(draw):
    """A list of steps; each names an operation and earlier values by their place among the numbers or the masks."""
    steps = []
    for _ in range(draw(st.integers(6, 14))):
        kind = draw(st.sampled_from(["arithmetic"] * 4 + ["order", "unary", "compare", "where", "mask", "constant"]))
        place = st.integers(0, 2**16)
        steps.append((kind, draw(place), draw(place), draw(place), draw(place)))
    return steps


def run(steps, xp, numbers, masks):
    """What a program gives: its last numbers and its last mask."""
    numbers, masks = list(numbers), list(masks)
    for kind, which, i, j, k in steps:
        a, b = numbers[i % len(numbers)], numbers[j % len(numbers)]
        mask = masks[k % len(masks)]
        if kind == "arithmetic":
            numbers.append(getattr(xp, ARITHMETIC[which % 4])(a, b))
        elif kind == "order":
            numbers.append(getattr(xp, ORDER[which % 2])(a, b))
        elif kind == "unary":
            numbers.append(getattr(xp, UNARY[which % len(UNARY)])(a))
        elif kind == "compare":
            masks.append(getattr(xp, COMPARISONS[which % len(COMPARISONS)])(a, b))
        elif kind == "where":
            numbers.append(xp.where(mask, a, b))
        elif kind == "mask":
            masks.append([xp.logical_and, xp.logical_or, xp.logical_xor][which % 3](mask, masks[i % len(masks)]))
        else:
            numbers.append(a * CONSTANTS[which % 4] + CONSTANTS[j % 4])
    return numbers[-1], numbers[-2], masks[-1]


def mixed_inputs(seed, n):
    """A float64, a float32, an int32 and an int64 column, and a mask, with every kind of special value."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(n) < 0.4, rng.choice(SPECIAL, n), rng.normal(size=n))
    with np.errstate(over="ignore"):
        y = np.where(rng.random(n) < 0.4, rng.choice(SPECIAL, n), rng.normal(size=n)).astype(np.float32)
    i = rng.choice(WHOLE, n).astype(np.int32)
    j = rng.integers(-(2**62), 2**62, n)
    return [x, y, i, j], rng.random(n) < 0.5


@graphs
@given(programs(), st.integers(0, 2**16))
def test_random_expressions_equal_numpy_operation_by_operation(steps, seed):
    numbers, mask = mixed_inputs(seed, 203)

    @fuse
    def f(x, y, i, j, mask, xp):
        return run(steps, xp, [x, y, i, j], [mask])

    with np.errstate(all="ignore"):
        expected = run(steps, OneByOne(), numbers, [mask])
    got = f(*numbers, mask)
    for one, other in zip(got, expected, strict=True):
        assert_same_bits(one, other)


@graphs
@given(programs(), st.integers(0, 2**16), st.integers(1, 37))
def test_a_sample_sees_only_itself(steps, seed, n_samples):
    numbers, mask = mixed_inputs(seed, 3 * n_samples)
    numbers, mask = [Ensemble(a.reshape(3, -1)) for a in numbers], Ensemble(mask.reshape(3, -1))

    @fuse
    def f(x, y, i, j, mask, xp):
        return run(steps, xp, [x, y, i, j], [mask])

    together = f(*numbers, mask)
    s = seed % n_samples
    alone = f(*(a.sample(s) for a in numbers), mask.sample(s))
    for one, other in zip(together, alone, strict=True):
        assert_same_bits(one.sample(s), other)
