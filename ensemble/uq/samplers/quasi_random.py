"""Scrambled sequences of low discrepancy, several independent scrambles of each."""

from __future__ import annotations

import copy
import functools
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ensemble._check import integer, require
from ensemble.uq.samplers.sampler import Sampler, checked_ids, checked_seed, spread

if TYPE_CHECKING:
    from ensemble.uq.inputs.inputs import Inputs

__all__ = ["Halton", "Sobol"]

BITS = 53
"""Of a Sobol' coordinate: all that float64 has."""

BLOCK = 8192
"""Samples of which the words are held at a time."""

MOST_DIMENSIONS = 21201
"""Of the direction numbers of Joe and Kuo."""


class QuasiRandom(Sampler):
    """Independent scrambles of one sequence: sample i is point ``i // replicates`` of scramble ``i % replicates``.

    Parameters
    ----------
    replicates : int, at least 1
        How many scrambles. The means of the scrambles are independent, so their spread gives a confidence interval.
    """

    def __init__(self, *, replicates: int = 8) -> None:
        self.n_replicates = integer(replicates, type(self).__name__, "replicates", minimum=1)

    def points(self, ids: Any, n_germs: int, seed: int) -> np.ndarray:
        """Points of the samples numbered `ids`: shape (len(ids), n_germs)."""
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

    def for_inputs(self, inputs: Inputs, n: int | None) -> Sampler:
        """This sampler; warns where the points of `n` samples are not balanced."""
        require(
            inputs.n_germs <= MOST_DIMENSIONS, "Sobol", "inputs", f"take at most {MOST_DIMENSIONS} columns",
            inputs.n_germs, "Use sampler='monte_carlo'.",
        )  # fmt: skip
        each, rest = divmod(n or self.n_replicates, self.n_replicates)
        if rest or each & (each - 1):
            wanted = self.n_replicates * 2 ** max(0, (each - 1).bit_length())
            text = f"Sobol: {n} samples are not balanced; take {self.n_replicates} times a power of two, say {wanted}."
            warnings.warn(text, stacklevel=3)
        return self

    def _scramble(self, places: np.ndarray, n_germs: int, seed: int, r: int) -> np.ndarray:
        tables = sobol_tables(n_germs, seed, self.n_replicates, r, int(places.max()).bit_length())
        result = np.empty((places.size, n_germs))
        for first in range(0, places.size, BLOCK):
            part = places[first : first + BLOCK]
            words = tables[0].take(part & 255, axis=0)
            for k, table in enumerate(tables[1:], 1):
                words ^= table.take((part >> (8 * k)) & 255, axis=0)
            np.multiply(words, 2.0**-BITS, out=result[first : first + BLOCK])
        return result


@functools.lru_cache(maxsize=256)
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


class Halton(QuasiRandom):
    """Scrambled Halton points [1]_: any number of samples is as good as the next.

    Parameters
    ----------
    replicates : int, at least 1
        Independent scrambles: sample i is point ``i // replicates`` of scramble ``i % replicates``.

    Notes
    -----
    The random permutations of the digits are those of `scipy.stats.qmc.Halton`.

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
        def draw(first: int, count: int) -> np.ndarray:
            engine = copy.copy(halton_engine(n_germs, seed, self.n_replicates, r))
            engine.fast_forward(first)
            points: np.ndarray = engine.random(count)
            return points

        return spread(places, draw, n_germs)


@functools.lru_cache(maxsize=64)
def halton_engine(dimension: int, seed: int, replicates: int, r: int) -> Any:
    """The generator of one scramble, at its first point; to be copied before it is used."""
    from scipy.stats import qmc

    child = np.random.SeedSequence(seed).spawn(replicates)[r]
    return qmc.Halton(dimension, rng=np.random.default_rng(child))
