"""Scrambled sequences of low discrepancy, several independent scrambles of each."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ensemble._check import integer, require, warn_caller
from ensemble._keywords import explains_construction
from ensemble._typing import Ids
from ensemble.uq.samplers.sampled_inputs import SampledInputs
from ensemble.uq.samplers.sampler import Sampler, checked_ids, checked_seed

__all__ = ["Halton", "Sobol"]

BITS = 53
"""Bits of a Sobol' coordinate: all that float64 has."""

BLOCK = 8192
"""Samples of which the words are held at a time."""

TABLE = 1024
"""Entries of a table of Halton digits, at most, where the base is not larger."""

MOST_POINTS = 2**32
"""Points of one scramble, at most."""

MOST_DIMENSIONS = 21201
"""Dimensions for which Joe and Kuo give direction numbers."""


class QuasiRandom(Sampler):
    """Independent scrambles of one sequence: sample i is point ``i // replicates`` of scramble ``i % replicates``.

    Parameters
    ----------
    replicates : int, at least 1
        How many scrambles. The means of the scrambles are independent, so their spread gives a confidence interval.
    """

    def __init__(self, *, replicates: int = 8) -> None:
        self.n_replicates = integer(replicates, type(self).__name__, "replicates", minimum=1)

    def points(self, ids: Ids, n_germs: int, seed: int) -> np.ndarray:
        function = f"{type(self).__name__}.points"
        numbers, seed = checked_ids(ids, function), checked_seed(seed, function)
        result = np.empty((numbers.size, n_germs))
        if n_germs == 0:
            return result
        places, replicate = np.divmod(numbers, self.n_replicates)
        for r in range(self.n_replicates):
            chosen = np.flatnonzero(replicate == r)
            if chosen.size:
                result[chosen] = self._scramble(places[chosen], n_germs, seed, r)
        return result

    def _scramble(self, places: np.ndarray, n_germs: int, seed: int, r: int) -> np.ndarray:
        raise NotImplementedError

    def description(self) -> dict[str, Any]:
        """The name and the number of scrambles."""
        return {"name": self.name, "replicates": self.n_replicates}


@explains_construction("Sobol")
class Sobol(QuasiRandom):
    """Scrambled Sobol' points [1]_, the default: for smooth models the error falls faster than with random points.

    Parameters
    ----------
    replicates : int, at least 1
        Independent scrambles: sample i is point ``i // replicates`` of scramble ``i % replicates``. Their spread gives
        confidence intervals. The points are balanced where the number of samples is `replicates` times a power of two.

    Notes
    -----
    Each coordinate has 53 bits. At most 21201 columns. The direction numbers, the scrambling (a random lower triangular
    matrix and a digital shift) and its random numbers are those of `scipy.stats.qmc.Sobol`.

    References
    ----------
    .. [1] Owen (1998), Journal of Complexity 14(4), 466-489.

    Examples
    --------
    >>> Sobol(replicates=4).points([0, 1, 2], 2, seed=11).shape
    (3, 2)
    """

    name = "sobol"

    def for_inputs(self, inputs: SampledInputs, n: int | None) -> Sampler:
        """This sampler; warns where the points of `n` samples are not balanced."""
        require(
            inputs.n_germs <= MOST_DIMENSIONS, "Sobol", "inputs", f"take at most {MOST_DIMENSIONS} columns",
            inputs.n_germs, "Use sampler='monte_carlo'.",
        )  # fmt: skip
        each, rest = divmod(n or self.n_replicates, self.n_replicates)
        if rest or each & (each - 1):
            wanted = self.n_replicates * 2 ** max(0, each - 1).bit_length()
            seen = "1 sample is" if n == 1 else f"{n} samples are"
            text = f"Sobol: {seen} not balanced; take {self.n_replicates} times a power of two, say {wanted}."
            warn_caller(text)
        return self

    def _scramble(self, places: np.ndarray, n_germs: int, seed: int, r: int) -> np.ndarray:
        last, advice = int(places.max()), "Halton points have no end."
        wanted = f"be below 2**32 times {self.n_replicates}, the points of all scrambles"
        require(last < MOST_POINTS, "Sobol.points", "ids", wanted, last * self.n_replicates, advice)
        tables = sobol_tables(n_germs, seed, self.n_replicates, r, last.bit_length())
        result = np.empty((places.size, n_germs))
        for first in range(0, places.size, BLOCK):
            part = places[first : first + BLOCK]
            words = tables[0].take(part & 255, axis=0)
            for k, table in enumerate(tables[1:], 1):
                words ^= table.take((part >> (8 * k)) & 255, axis=0)
            np.multiply(words, 2.0**-BITS, out=result[first : first + BLOCK])
        return result


@functools.lru_cache(maxsize=16)
def sobol_tables(dimension: int, seed: int, replicates: int, r: int, n_bits: int) -> tuple[np.ndarray, ...]:
    """Words of which the exclusive or is a point: one table of 256 rows for each byte of its number.

    The map from the bits of a point's number to the bits of the point is affine, so point j is the exclusive or of the
    points at the powers of two of which j is the sum, and of point 0.
    """
    from scipy.stats import qmc

    child = np.random.SeedSequence(seed).spawn(replicates)[r]
    engine = qmc.Sobol(dimension, bits=BITS, rng=np.random.default_rng(child))

    def word() -> np.ndarray:
        words: np.ndarray = np.ldexp(engine.random(1)[0], BITS).astype(np.uint64)
        return words

    origin = word()
    tables = []
    for first in range(0, max(n_bits, 1), 8):
        table = np.zeros((256, dimension), dtype=np.uint64)
        for bit in range(min(8, n_bits - first)):
            while skipped := 2 ** (first + bit) - engine.num_generated:
                engine.random(min(skipped, BLOCK))  # SciPy's fast_forward takes 32 bits only
            table[2**bit : 2 ** (bit + 1)] = table[: 2**bit] ^ (word() ^ origin)
        tables.append(table)
    tables[0] ^= origin
    return tuple(tables)


@explains_construction("Halton")
class Halton(QuasiRandom):
    """Scrambled Halton points [1]_: any number of samples is as good as the next.

    Parameters
    ----------
    replicates : int, at least 1
        Independent scrambles: sample i is point ``i // replicates`` of scramble ``i % replicates``.

    Notes
    -----
    Column k has the k-th prime as its base; each digit, up to 2^-54, has its own random permutation.

    References
    ----------
    .. [1] Owen (2017), A randomized Halton algorithm in R, arXiv:1706.02808.

    Examples
    --------
    >>> Halton(replicates=2).points([0, 1, 2], 2, seed=11).shape
    (3, 2)
    """

    name = "halton"

    def _scramble(self, places: np.ndarray, n_germs: int, seed: int, r: int) -> np.ndarray:
        result = np.empty((places.size, n_germs))
        n_bits = int(places.max()).bit_length()
        for column, base in enumerate(primes(n_germs)):
            tables = halton_tables(base, column, seed, r, n_bits)
            left, blocks = places, []
            for table in tables[:-1]:
                left, block = np.divmod(left, table.size)
                blocks.append(block)
            total = tables[-1].take(left)
            for table, block in zip(tables[-2::-1], blocks[::-1], strict=True):
                total += table.take(block)
            result[:, column] = total
        return result


def digit_permutations(base: int, column: int, seed: int, r: int) -> np.ndarray:
    """A permutation of the digits for each place after the point, shape (n_digits, base)."""
    stream = np.random.SeedSequence(seed, spawn_key=(r, column))
    n_digits = math.ceil((BITS + 1) / math.log2(base))
    return np.random.default_rng(stream).permuted(np.tile(np.arange(base), (n_digits, 1)), axis=1)


@functools.lru_cache(maxsize=256)
def halton_tables(base: int, column: int, seed: int, r: int, n_bits: int) -> tuple[np.ndarray, ...]:
    """Parts of a coordinate, one table for each block of digits of a point's number.

    They are added from the last to the first. What digits beyond those of the number add is in the last table, summed
    in the same order, so that the bits of a point do not depend on how many tables there are.
    """
    permutations = digit_permutations(base, column, seed, r)
    n_digits = permutations.shape[0]
    width = max(1, int(math.log(TABLE, base) + 1e-9))
    tables = []
    for first in range(0, n_digits, width):
        table = np.zeros(1)
        for place in range(min(first + width, n_digits) - 1, first - 1, -1):
            # the first digit of a block runs fastest
            table = (table[:, None] + permutations[place] * float(base) ** -(place + 1)).ravel()
        tables.append(table)
    n_tables = 1
    while base ** (n_tables * width) < 2**n_bits and n_tables < len(tables):
        n_tables += 1
    rest = 0.0
    for table in tables[: n_tables - 1 : -1]:
        rest = rest + table[0]
    tables[n_tables - 1] = np.minimum(tables[n_tables - 1] + rest, 1.0 - 2.0**-BITS)
    return tuple(tables[:n_tables])


@functools.cache
def primes(count: int) -> tuple[int, ...]:
    """The first `count` primes, by the sieve of Eratosthenes up to a bound for the last (Rosser 1941)."""
    last = 15 if count < 6 else math.ceil(count * (math.log(count) + math.log(math.log(count))))
    is_prime = np.ones(last + 1, dtype=bool)
    is_prime[:2] = False
    for factor in range(2, math.isqrt(last) + 1):
        is_prime[factor * factor :: factor] = False
    return tuple(np.flatnonzero(is_prime)[:count].tolist())
