"""Noise from a counter: each number depends on the seed, the sample, the step and the unknown alone.

Random bits are those of Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3",
SC '11), normal numbers follow by the transformation of Box and Muller (1958). Everything is elementwise: the same in a
trace, on arrays and in a kernel, for each sample whatever the ensemble.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ensemble._backend import array_namespace, asarray_like
from ensemble._check import array_of, integer, require, require_unmasked
from ensemble._compile.trace.bit_patterns import high_word
from ensemble._sample_numbers import sample_numbers
from ensemble._typing import Array, Namespace

__all__ = ["N_NUMBERS", "noise_numbers", "normals", "philox", "samples_of_noise", "with_noise", "without_numbers"]

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
INCREMENTS = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF
ROUNDS = 10

N_NUMBERS = 4
"""Numbers that name a sample's noise: the sample and the seed, each as two of 24 bits, which float32 holds exactly."""

HALF = 1 << 24


def noise_numbers(samples: Array, seed: int, dtype: str) -> Array:
    """The numbers of some samples, shape (N_NUMBERS, n_samples): parameters behind those of the user.

    Raises
    ------
    ValueError
        If the seed has more than 48 bits, or a sample more than 32.
    """
    seed = integer(seed, "ode.solve", "seed", minimum=0)
    require(seed < HALF * HALF, "ode.solve", "seed", "be less than 2**48", seed)
    requirement = "be an array of integers from 0 to 2**32 - 1 with one axis"
    ids = array_of(samples, "ode.solve", "noise_samples", requirement)
    inside = np.issubdtype(ids.dtype, np.integer) and ids.ndim == 1 and bool(((ids >= 0) & (ids <= MASK)).all())
    require(inside, "ode.solve", "noise_samples", requirement, f"{ids.dtype} of shape {ids.shape}")
    ids = ids.astype(np.int64)
    ones = np.ones_like(ids)
    return np.stack([ids % HALF, ids // HALF, ones * (seed % HALF), ones * (seed // HALF)]).astype(dtype)


def without_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function ``(t, y, p, xp)`` of the user, without the numbers among its parameters."""

    def call(t: Any, y: Any, p: Any, xp: Namespace) -> Any:
        return function(t, y, p[:-N_NUMBERS], xp)

    return call


def philox(counter: Sequence[Any], key: Sequence[Any]) -> list[Any]:
    """Four words of 32 random bits for four words of a counter and two of a key, all as int64."""
    a, b, c, d = counter
    k, m = key
    for _ in range(ROUNDS):
        first, second = a * MULTIPLIERS[0], c * MULTIPLIERS[1]  # of 64 bits: they wrap around
        a, b, c, d = high_word(second) ^ b ^ k, second & MASK, high_word(first) ^ d ^ m, first & MASK
        k, m = (k + INCREMENTS[0]) & MASK, (m + INCREMENTS[1]) & MASK
    return [a, b, c, d]


def normals(step: Any, numbers: Sequence[Any], count: int, xp: Namespace) -> list[Any]:
    """`count` independent standard normal numbers of a step.

    Parameters
    ----------
    step : value
        The number of the step, a whole number of the dtype of the result.
    numbers : sequence of N_NUMBERS values
        The sample and the seed (`noise_numbers`).
    count : int
    xp : namespace
        Of the values.
    """
    low, high, *key = (xp.astype(number, xp.int64) for number in numbers)
    counter, sample = xp.astype(step, xp.int64), (low + high * HALF) & MASK
    found: list[Any] = []
    for pair in range((count + 1) // 2):
        words = philox([counter, pair, sample, 0], key)
        a, b, c, d = (xp.astype(word, step.dtype) for word in words)
        radius = xp.sqrt(-2.0 * xp.log((a + (b + 0.5) * 2.0**-32) * 2.0**-32))
        angle = (c + (d + 0.5) * 2.0**-32) * (2.0**-32 * 2.0 * math.pi)
        found += [radius * xp.cos(angle), radius * xp.sin(angle)]
    return found[:count]


def samples_of_noise(given: Any, n_samples: int, sample_set: Any) -> np.ndarray:
    """The numbers of the samples: those given, of their set, of the study whose model is called, or their places.

    Where all arguments are shared, they say how many samples there are.
    """
    if given is not None:
        require_unmasked(given, "ode.solve", "noise_samples")
        shape = f"have shape ({n_samples if n_samples > 1 else 'n_samples'},)"
        ids = array_of(given, "ode.solve", "noise_samples", shape)
        fits = ids.ndim == 1 and ids.size > 0 and n_samples in (1, ids.size)
        require(fits, "ode.solve", "noise_samples", shape, ids.shape)
        return ids
    if sample_set is not None and len(sample_set) == n_samples:
        return np.asarray(sample_set.ids)
    numbers = sample_numbers()
    if numbers is None:
        return np.arange(n_samples)
    seen = f"none for {n_samples} sample{'' if n_samples == 1 else 's'}"
    requirement = f"be given in a model of a study where it solves for other samples than its {numbers.size}"
    require(n_samples in (1, numbers.size), "ode.solve", "noise_samples", requirement, seen, "Choose them from x.ids.")
    return numbers


def with_noise(p: Array, numbers: np.ndarray) -> Array:
    """The parameters of all samples, and the numbers of their noise behind them."""
    xp = array_namespace(p)
    own = xp.broadcast_to(p, (p.shape[0], numbers.shape[1]))
    return xp.concat([own, asarray_like(numbers, p)], axis=0)
