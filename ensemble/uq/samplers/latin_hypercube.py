"""Latin hypercube designs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ensemble._check import integer, require
from ensemble._keywords import explains_construction
from ensemble._typing import Ids
from ensemble.uq.samplers.sampled_inputs import SampledInputs
from ensemble.uq.samplers.sampler import Sampler, checked_ids, checked_seed

__all__ = ["LatinHypercube"]


@explains_construction("LatinHypercube")
class LatinHypercube(Sampler):
    """Independent Latin hypercube designs [1]_: each column of a design has one point in each of `block` equal strata.

    Parameters
    ----------
    block : int, at least 1, optional
        The points of a design. Default: the number of samples divided by `replicates`, where that is whole, else all
        samples in one design.
    replicates : int, at least 1
        Sample i belongs to design ``i % replicates`` of those that are filled at a time, so that the spread of their
        means gives a confidence interval.

    Notes
    -----
    A study is extended by whole designs: give `block` where it is to be.

    References
    ----------
    .. [1] McKay, Beckman, Conover (1979), Technometrics 21(2), 239-245.

    Examples
    --------
    >>> points = LatinHypercube(block=4, replicates=1).points([0, 1, 2, 3], 2, seed=17)
    >>> np.sort(np.floor(4.0 * points[:, 1])).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """

    name = "latin_hypercube"

    def __init__(self, *, block: int | None = None, replicates: int = 8) -> None:
        function = "LatinHypercube"
        self.block = None if block is None else integer(block, function, "block", minimum=1)
        self.n_replicates = integer(replicates, function, "replicates", minimum=1)

    def for_inputs(self, inputs: SampledInputs, n: int | None) -> Sampler:
        """The sampler with the block of `n` samples."""
        if self.block is not None or n is None:
            return self
        each, rest = divmod(n, self.n_replicates)
        whole = rest == 0
        return LatinHypercube(block=each if whole else n, replicates=self.n_replicates if whole else 1)

    def points(self, ids: Ids, n_germs: int, seed: int) -> np.ndarray:
        numbers, seed = checked_ids(ids, "LatinHypercube.points"), checked_seed(seed, "LatinHypercube.points")
        advice = "Inputs.samples chooses it for a number of samples."
        require(self.block is not None, "LatinHypercube.points", "block", "be given", None, advice)
        result = np.empty((numbers.size, n_germs))
        if n_germs == 0 or numbers.size == 0:
            return result
        at_a_time = self.n_replicates * int(self.block or 1)
        designs = numbers // at_a_time * self.n_replicates + numbers % self.n_replicates
        rows = numbers % at_a_time // self.n_replicates
        order = np.argsort(designs, kind="stable")
        for chosen in np.split(order, np.flatnonzero(np.diff(designs[order])) + 1):
            result[chosen] = self._design(int(designs[chosen[0]]), n_germs, seed)[rows[chosen]]
        return result

    def _design(self, number: int, n_germs: int, seed: int) -> np.ndarray:
        """One design, with the bits of `scipy.stats.qmc.LatinHypercube`, whose constructor takes longer than this."""
        block = int(self.block or 1)
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(number, 0))))
        inside = generator.random((block, n_germs))
        strata = np.empty((n_germs, block), np.int64)
        strata[:] = np.arange(1, block + 1)
        for column in strata:
            generator.shuffle(column)
        points: np.ndarray = np.subtract(strata.T, inside, out=inside)
        points /= block
        return points

    def description(self) -> dict[str, Any]:
        """The name, the points of a design, and how many designs are filled at a time."""
        return {"name": self.name, "block": self.block, "replicates": self.n_replicates}
