"""Independent points."""

from __future__ import annotations

import numpy as np

from ensemble._typing import Ids
from ensemble.uq.samplers.sampler import Sampler, checked_ids, checked_seed, spread

__all__ = ["MonteCarlo"]


class MonteCarlo(Sampler):
    """Independent points, uniform in the unit cube.

    Column k of sample i is number ``i * n_germs + k`` of the stream of NumPy's PCG64, which jumps there [1]_.

    References
    ----------
    .. [1] O'Neill (2014), PCG: a family of simple fast space-efficient statistically good algorithms for random number
       generation, HMC-CS-2014-0905.

    Examples
    --------
    >>> MonteCarlo().points([5, 2], 3, seed=7).shape
    (2, 3)
    """

    name = "monte_carlo"

    def points(self, ids: Ids, n_germs: int, seed: int) -> np.ndarray:
        numbers, seed = checked_ids(ids, "MonteCarlo.points"), checked_seed(seed, "MonteCarlo.points")
        generator = np.random.PCG64(seed)
        position = 0

        def draw(first: int, count: int) -> np.ndarray:
            nonlocal position
            generator.advance(first * n_germs - position)
            position = (first + count) * n_germs
            return np.random.Generator(generator).random((count, n_germs))

        return spread(numbers, draw, n_germs)
