"""`Inputs`: the uncertain inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import ndtri

from ensemble._check import array_of, integer, message, real_array, require
from ensemble._typing import Ids
from ensemble.uq.inputs.convert import as_variable
from ensemble.uq.inputs.copula import GaussianCopula
from ensemble.uq.inputs.samples import InputSamples
from ensemble.uq.inputs.variable import inside
from ensemble.uq.inputs.vector import rows_product
from ensemble.uq.samplers.choice import resolved_sampler
from ensemble.uq.samplers.sampler import checked_ids

__all__ = ["Inputs"]

RESERVED = {name for name in dir(InputSamples) if not name.startswith("_")} | {
    "ids", "weights", "seed", "failures", "sample_weight",
}  # fmt: skip


class Inputs:
    """The uncertain inputs of a model: a distribution, a field or a constant for each name.

    Parameters
    ----------
    correlation : mapping, optional
        ``{("E", "nu"): -0.3}``: dependence by a Gaussian copula, pair by pair; others are independent. Component k of
        a vector ``v`` is ``("v", k)``. Of a field it is the germ of coefficient k, of a joint normal, ``mean + L z``,
        the number ``z[k]``: with the kind "normal", and with other inputs.
    correlation_kind : {"normal", "pearson", "spearman"}
        What the numbers mean: the correlation of the normal numbers that the inverses are taken of, of the values
        themselves (exact, by Nataf's transformation [1]_, for discrete distributions too), or of their ranks (ties at
        the mean of their ranks).
    **inputs
        In the order in which a study lists them: a frozen distribution of `scipy.stats`, `Categorical`, `Mixture`, a
        list of distributions or `Vector`, a frozen `scipy.stats.multivariate_normal`, a field, a number or an array (a
        constant), an object with ``ppf(u)`` or ``icdf(u)``.

    Attributes
    ----------
    names : tuple of str
    n_germs : int
        How many columns of the unit cube the inputs take.
    germs : dict of str to slice
        Which columns belong to which input.

    Raises
    ------
    ValueError, TypeError
        If an input is of no known kind, or has parameters outside their range; if a correlation is not attainable
        with the two distributions, or all of them together are those of no normal numbers.

    References
    ----------
    .. [1] Nataf (1962), Comptes Rendus de l'Académie des Sciences 225, 42-43; Liu, Der Kiureghian (1986), Probabilistic
       Engineering Mechanics 1(2), 105-112.

    Examples
    --------
    >>> from scipy import stats
    >>> inputs = Inputs(E=stats.lognorm(0.1, scale=2e11), load=stats.norm(1.0, 0.2), length=3.0)
    >>> inputs.n_germs
    2
    >>> x = inputs.samples(64, seed=5)
    >>> (x.load / x.E).n_samples
    64
    """

    def __init__(
        self, /, *, correlation: Mapping[Any, float] | None = None, correlation_kind: str = "normal", **inputs: Any
    ) -> None:
        require(bool(inputs), "Inputs", "inputs", "name one input or more", "none")
        for name in inputs:
            free = name.isidentifier() and not name.startswith("_") and name not in RESERVED
            require(free, "Inputs", "names", "be Python names that InputSamples does not use itself", repr(name))
        self._given = inputs
        self.variables = {name: as_variable(value, name) for name, value in inputs.items()}
        self.names = tuple(inputs)
        ends = np.cumsum([0, *(variable.n_germs for variable in self.variables.values())]).tolist()
        self.n_germs: int = ends[-1]
        self.germs = {name: slice(a, b) for name, a, b in zip(self.names, ends[:-1], ends[1:], strict=True)}
        pairs = {} if correlation is None else correlation
        self.copula = GaussianCopula(pairs, correlation_kind, self.variables, self.germs)

    def __getitem__(self, name: str) -> Any:
        if name not in self._given:
            raise KeyError(message("Inputs", "name", f"be one of {', '.join(self.names)}", repr(name)))
        return self._given[name]

    def __repr__(self) -> str:
        return f"Inputs({', '.join(self.names)}; n_germs={self.n_germs})"

    def from_uniform(self, u: Any, ids: Ids | None = None) -> InputSamples:
        """Samples at points of the unit cube.

        Parameters
        ----------
        u : array_like, shape (n, n_germs)
            From 0 to 1; the faces are moved inwards by less than rounding.
        ids : array_like of int, shape (n,), optional
            Default: 0, 1, 2, ...

        Returns
        -------
        InputSamples

        Raises
        ------
        ValueError
            If `u` has another shape, or values outside the cube, or the number of `ids` is not n.
        """
        points = self._checked(u, "from_uniform")
        good = bool(points.size == 0 or (points.min() >= 0.0 and points.max() <= 1.0))
        require(good, "Inputs.from_uniform", "u", "lie between 0 and 1", "values outside, or NaN")
        rows = inside(points)
        germs = self._correlated(ndtri(rows[self.copula.columns])) if self.copula.pairs else {}
        values = {}
        for name, variable in self.variables.items():
            own = range(*self.germs[name].indices(self.n_germs))
            if germs.keys() & own:
                normal = np.stack([germs[k] if k in germs else ndtri(rows[k]) for k in own])
                values[name] = variable.from_normal(normal)
            else:
                values[name] = variable.from_uniform(rows[self.germs[name]])
        return self._samples(values, points.shape[1], ids, "from_uniform")

    def from_normal(self, z: Any, ids: Ids | None = None) -> InputSamples:
        """Samples at points of the space of independent standard normal numbers.

        Parameters
        ----------
        z : array_like, shape (n, n_germs)
        ids : array_like of int, shape (n,), optional
            Default: 0, 1, 2, ...

        Returns
        -------
        InputSamples

        Raises
        ------
        ValueError
            If `z` has another shape, or values that are not finite, or the number of `ids` is not n.
        """
        rows = self._checked(z, "from_normal")
        require(bool(np.all(np.isfinite(rows))), "Inputs.from_normal", "z", "be finite", "NaN or infinity")
        for k, row in self._correlated(rows[self.copula.columns]).items():
            rows[k] = row
        values = {name: v.from_normal(rows[self.germs[name]]) for name, v in self.variables.items()}
        return self._samples(values, rows.shape[1], ids, "from_normal")

    def to_normal(self, values: Mapping[str, Any]) -> np.ndarray:
        """The points of normal space of given values: the inverse of `from_normal`.

        Parameters
        ----------
        values : mapping of names to array_like, shape (\\*shape, n)
            Values of every input that is no constant; labels or their places for a categorical input, coefficients for
            a field.

        Returns
        -------
        ndarray, shape (n, n_germs)
            For a value that has a probability of its own, the middle of its points.

        Raises
        ------
        ValueError
            If an input is missing, shapes do not fit, or a value is none of its distribution's.

        Examples
        --------
        >>> from scipy import stats
        >>> Inputs(a=stats.norm(1.0, 2.0), k=stats.bernoulli(0.5)).to_normal({"a": [3.0], "k": [1]}).round(4)
        array([[1.    , 0.6745]])
        """
        method = "Inputs.to_normal"
        random = [name for name in self.names if self.variables[name].n_germs]
        wanted = f"have the names {', '.join(random)}"
        require(set(values) == set(random), method, "values", wanted, ", ".join(map(str, values)))
        shapes = {name: f"have shape {(*self.variables[name].shape, 'n')}, n for all" for name in random}
        arrays = {name: array_of(values[name], method, name, shapes[name]) for name in random}
        sizes = {array.shape[-1:] for array in arrays.values()}
        rows = np.empty((self.n_germs, *next(iter(sizes), (1,))))
        for name, array in arrays.items():
            variable = self.variables[name]
            good = array.shape[:-1] == variable.shape and array.ndim > 0 and len(sizes) == 1 and array.shape[-1] > 0
            require(good, method, name, shapes[name], f"shape {array.shape}")
            z = variable.to_normal(array)
            known = bool(np.all(np.isfinite(z)))
            require(known, method, name, "have values of its distribution", "others, or in tails of probability zero")
            rows[self.germs[name]] = z
        if self.copula.pairs:
            rows[self.copula.columns] = np.linalg.solve(self.copula.root, rows[self.copula.columns])
        return np.ascontiguousarray(rows.T)

    def samples(
        self, n: int | None = None, *, sampler: Any = "sobol", seed: int | None = None, ids: Ids | None = None
    ) -> InputSamples:
        """Draw samples.

        Parameters
        ----------
        n : int, at least 1
            The number of samples; left out for samplers of a fixed number of points.
        sampler : str or Sampler
            "sobol", "halton", "latin_hypercube", "monte_carlo", or a sampler with options.
        seed : int, optional
            Equal seeds give equal samples; sample i is the same whatever `n` is. Default: a new one each time,
            which is the attribute `seed` of the result.
        ids : array_like of int, optional
            Draw these of the n samples alone, in this order.

        Returns
        -------
        InputSamples

        Raises
        ------
        ValueError, TypeError
            If an argument is out of range.
        """
        resolved, count = resolved_sampler(sampler, self, n)
        if seed is None:
            seed = int(np.random.SeedSequence().entropy) % 2**63  # type: ignore[arg-type]
        seed = integer(seed, "Inputs.samples", "seed", minimum=0)
        numbers = np.arange(count) if ids is None else checked_ids(ids, "Inputs.samples", count)
        points = resolved.points(numbers, self.n_germs, seed)
        drawn = (self.from_normal if getattr(resolved, "space", "") == "normal" else self.from_uniform)(points, numbers)
        drawn.seed, drawn.weights = seed, resolved.weights(numbers)
        return drawn

    def description(self) -> dict[str, Any]:
        """What the inputs are, in numbers and texts that JSON holds; equal for equal inputs.

        Returns
        -------
        dict
            Distributions by name and parameters, arrays by a digest, objects of the user's own by their type and their
            inverse at 33 probabilities to ten digits.
        """
        inputs = {name: variable.description() for name, variable in self.variables.items()}
        text: dict[str, Any] = {"names": list(self.names), "inputs": inputs}
        return text | ({"correlation": self.copula.description()} if self.copula.pairs else {})

    def germ_correlation(self) -> np.ndarray:
        """The correlations of the normal germs, shape (n_germs, n_germs)."""
        matrix = np.eye(self.n_germs)
        matrix[np.ix_(self.copula.columns, self.copula.columns)] = self.copula.matrix
        return matrix

    def _correlated(self, z: np.ndarray) -> dict[int, np.ndarray]:
        """The correlated germs by their columns, from independent ones."""
        return dict(zip(self.copula.columns.tolist(), rows_product(self.copula.root, z), strict=True))

    def _checked(self, points: Any, method: str) -> np.ndarray:
        """Points as contiguous rows, one for each germ."""
        argument = "u" if method == "from_uniform" else "z"
        wanted = f"have one row per sample and {self.n_germs} columns"
        array = real_array(points, f"Inputs.{method}", argument, wanted)
        good = array.ndim == 2 and array.shape[1] == self.n_germs and array.shape[0] > 0
        require(good, f"Inputs.{method}", argument, wanted, f"shape {array.shape}")
        return np.array(array.T, order="C")

    def _samples(self, values: dict[str, np.ndarray], n: int, ids: Any, method: str) -> InputSamples:
        numbers = np.arange(n) if ids is None else array_of(ids, f"Inputs.{method}", "ids", f"be {n} integers").copy()
        good = numbers.shape == (n,) and numbers.dtype.kind in "iu"
        seen = f"{numbers.dtype} of shape {numbers.shape}"
        require(good, f"Inputs.{method}", "ids", f"be {n} integers", seen)
        return InputSamples(self.variables, values, numbers)
