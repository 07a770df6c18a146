"""Every scan is the sequential scan, for any length and any operation that is associative."""

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble._kernels.kalman.scan import SCANS, Sengupta, prefix_scan
from ensemble.scalar import Ensemble

PARALLEL = sorted(set(SCANS) - {"sequential"})


def affine(earlier, later):
    """x -> A x + b, the earlier map outermost: does not commute."""
    (A, a), (B, b) = earlier, later
    return A @ B, (A @ b[..., None])[..., 0] + a


IDENTITY = (np.eye(2), np.zeros(2))


@pytest.mark.parametrize("algorithm", sorted(SCANS))
@given(T=st.integers(1, 70), reverse=st.booleans(), threshold=st.integers(1, 9), chunk=st.none() | st.integers(1, 80))
def test_equals_a_loop(algorithm, T, reverse, threshold, chunk):
    rng = np.random.default_rng(T)
    A, b = rng.uniform(-0.7, 0.7, (T, 2, 2)), rng.standard_normal((T, 2))
    got = prefix_scan(
        affine, (A, b), algorithm=algorithm, reverse=reverse, identity=IDENTITY, threshold=threshold, chunk=chunk
    )
    M, v = IDENTITY
    for k in range(T - 1, -1, -1) if reverse else range(T):
        step = (A[k], b[k])
        M, v = affine(step, (M, v)) if reverse else affine((M, v), step)
        np.testing.assert_allclose(got[0][k], M, atol=1e-13)
        np.testing.assert_allclose(got[1][k], v, atol=1e-13)


@pytest.mark.parametrize("algorithm", sorted(SCANS))
@given(words=st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_keeps_the_order_of_operands(algorithm, words):
    """Concatenation of digits: (a, length) o (b, length), exact in Python integers."""
    digits = np.array(words, dtype=object)
    ones = np.ones(len(words), dtype=object)

    def join(a, b):
        return a[0] * 10 ** b[1] + b[0], a[1] + b[1]

    zero = (np.array(0, dtype=object), np.array(0, dtype=object))
    got, _ = prefix_scan(join, (digits, ones), algorithm=algorithm, identity=zero)
    assert [int(v) for v in got] == [int("".join(map(str, words[: k + 1]))) for k in range(len(words))]


@pytest.mark.parametrize("algorithm", sorted(SCANS))
@pytest.mark.parametrize("T", [1, 2, 5, 16, 23])
def test_runs_on_any_library(algorithm, T):
    rng = np.random.default_rng(51001)
    A, b = rng.uniform(-0.7, 0.7, (T, 2, 2)), rng.standard_normal((T, 2))
    expected = prefix_scan(affine, (A, b), algorithm="sequential")
    xp = array_api_strict
    strict = prefix_scan(affine, (xp.asarray(A), xp.asarray(b)), algorithm=algorithm,
                         identity=tuple(map(xp.asarray, IDENTITY)))  # fmt: skip
    wide = Ensemble(np.stack([A, A], axis=-1)), Ensemble(np.stack([b, 2.0 * b], axis=-1))
    lifted = prefix_scan(affine, wide, algorithm=algorithm, identity=IDENTITY)
    np.testing.assert_allclose(np.asarray(strict[1]), expected[1], atol=1e-13)
    np.testing.assert_allclose(lifted[1].sample(1), 2.0 * expected[1], atol=1e-13)


@pytest.mark.parametrize("threshold, calls", [(1, 20), (2, 19), (16, 17), (125, 13), (1000, 10), (10**6, 10)])
def test_sengupta_carries_the_length_at_which_it_changes(threshold, calls):
    """1000 entries: a call down and one up for each halving, then the logarithm of what is left."""
    seen = []

    def add(a, b):
        seen.append(a[0].shape[0])
        return (a[0] + b[0],)

    (got,) = prefix_scan(add, (np.arange(1000),), algorithm=Sengupta(threshold), threshold=7)
    np.testing.assert_array_equal(got, np.cumsum(np.arange(1000)))
    assert len(seen) <= calls
    seen_by_object, seen[:] = list(seen), []
    prefix_scan(add, (np.arange(1000),), algorithm="sengupta", threshold=threshold)
    assert seen == seen_by_object


@pytest.mark.parametrize("threshold, error", [(0, ValueError), (-3, ValueError), (1.5, TypeError), ("3", TypeError)])
def test_a_threshold_is_a_whole_number_of_one_or_more(threshold, error):
    with pytest.raises(error, match="Sengupta: threshold must be an integer of at least 1"):
        Sengupta(threshold)


@pytest.mark.parametrize("algorithm", PARALLEL)
def test_calls_are_few(algorithm):
    """Parallel scans of 1000 entries call the operation a few dozen times, not a thousand."""
    calls = []

    def add(a, b):
        calls.append(a[0].shape[0])
        return (a[0] + b[0],)

    prefix_scan(add, (np.ones(1000),), algorithm=algorithm, identity=(np.zeros(()),))
    log2 = 10
    expected = {"hillis_steele": log2, "blelloch": 2 * log2 + 1, "ladner_fischer": 2 * log2 - 1,
                "sengupta": 2 * log2, "chunked": 31 + 5 + 2 + 6}  # fmt: skip
    assert len(calls) <= expected[algorithm]
    work = {"hillis_steele": 10000, "chunked": 2200}
    assert sum(calls) <= work.get(algorithm, 3100)


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"algorithm": "quick"}, ValueError, "prefix_scan: algorithm must be one of"),
        ({"elements": (np.ones(3), np.ones(2))}, ValueError, "equally long"),
        ({"elements": (np.ones(0),)}, ValueError, "one entry or more"),
        ({"elements": [np.ones(3)]}, TypeError, "tuple of arrays"),
        ({"algorithm": "blelloch"}, ValueError, "identity must be given for blelloch"),
        ({"algorithm": "sengupta", "threshold": 0}, ValueError, "threshold must be"),
        ({"chunk": 0}, ValueError, "chunk must be"),
    ],
)
def test_bad_input_is_named(options, error, match):
    elements = options.pop("elements", (np.ones(3),))
    with pytest.raises(error, match=match):
        prefix_scan(lambda a, b: (a[0] + b[0],), elements, **options)
