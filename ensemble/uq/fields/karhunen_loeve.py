"""`KarhunenLoeve`: a random field as an input, by the largest eigenpairs of its covariance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import finite, kind_of, message, positive, real_array, require
from ensemble.uq.fields.box import box_expansion
from ensemble.uq.fields.covariances import named_covariance
from ensemble.uq.fields.numerical import matrix_expansion, point_expansion
from ensemble.uq.fields.points import flat_points
from ensemble.uq.fields.samples import FieldSamples, PlainField
from ensemble.uq.inputs.univariate import as_univariate
from ensemble.uq.inputs.variable import Variable, array_digest
from ensemble.uq.inputs.vector import Vector

__all__ = ["KarhunenLoeve"]

CACHED = 2
"""Sets of points of which the modes are kept: a model evaluates a field at the same points in each call."""

BLOCK = 2**15
"""Values of the field that are summed at a time: as many as a cache holds."""

Transform = str | Callable[[np.ndarray], np.ndarray] | None


class KarhunenLoeve(Variable):
    """A random field by its truncated Karhunen-Loève expansion.

    ``g(x) = mean(x) + std(x) * sum over m of sqrt(lambda_m) phi_m(x) y_m`` with the eigenvalues lambda_m and the modes
    phi_m of a covariance function, and independent random numbers y_m: the input's germs. The field is ``g``, or
    ``exp(g)`` with ``transform="lognormal"``, or ``transform(g)``; `mean` and `std` are always those of ``g``, before
    the transform, and before truncation, for a covariance function of variance 1 and y_m of variance 1.

    `KarhunenLoeve.exponential` has eigenpairs in closed form on a box; `KarhunenLoeve.from_points` and
    `KarhunenLoeve.from_matrix` compute them for any covariance on any mesh or set of points.

    Parameters
    ----------
    expansion : object
        With `eigenvalues`, shape (n_terms,), `dimension` and ``modes_at(points)``, shape (n_points, n_terms), for
        instance what `ensemble.apps.fem.exponential_covariance` gives: an `ensemble.apps.fem.KarhunenLoeve`, which has
        the eigenpairs alone.
    mean : float, or function of points ``(n, d)`` that gives ``(n,)``, in the units of g
    std : float, zero or above, or such a function
    transform : {None, "lognormal"} or function
        A function takes and gives an array, value by value.
    distribution : frozen distribution, optional
        Distribution of each y_m. Default: standard normal.

    Attributes
    ----------
    n_terms : int
    eigenvalues : ndarray, shape (n_terms,)
        Descending, in units of length to the power d.
    energy : float
        The share of the variance, averaged over the domain, that the terms kept have; NaN where it is not known.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range.

    References
    ----------
    Ghanem, Spanos (1991), Stochastic Finite Elements: A Spectral Approach, section 2.3.

    Examples
    --------
    >>> import ensemble as en
    >>> field = en.fields.KarhunenLoeve.exponential([(0.0, 2.0)], length=0.5, energy=0.9)
    >>> field.n_terms, round(field.energy, 3)
    (9, 0.906)
    """

    def __init__(
        self, expansion: Any, *, mean: Any = 0.0, std: Any = 1.0, transform: Transform = None, distribution: Any = None
    ) -> None:
        name = "KarhunenLoeve"
        known = all(hasattr(expansion, key) for key in ("eigenvalues", "modes_at", "dimension"))
        advice = "Use KarhunenLoeve.exponential, from_points or from_matrix."
        if not known:
            wanted = "have eigenvalues, dimension and modes_at(points)"
            raise TypeError(message(name, "expansion", wanted, kind_of(expansion), advice))
        good = transform is None or transform == "lognormal" or callable(transform)
        require(good, name, "transform", "be None, 'lognormal' or a function", repr(transform))
        self.expansion = expansion
        self.mean = mean if callable(mean) else finite(mean, name, "mean")
        self.std = std if callable(std) else positive(std, name, "std", zero=True)
        self.transform = transform
        if distribution is None:
            from scipy import stats

            distribution = stats.norm()
        self.eigenvalues = np.asarray(expansion.eigenvalues, dtype=np.float64)
        self.n_terms = self.n_germs = self.eigenvalues.size
        self.shape = (self.n_terms,)
        self.coefficients = Vector(as_univariate(distribution, "distribution"), self.n_terms)
        self._tables: dict[Any, tuple[np.ndarray, np.ndarray]] = {}

    @classmethod
    def exponential(
        cls, domain: Any, length: Any, n_terms: int | None = None, *, energy: float | None = None, **options: Any
    ) -> KarhunenLoeve:
        """A field on a box with the covariance ``exp(-sum over axes of |x_k - x'_k| / L_k)``, in closed form.

        Parameters
        ----------
        domain : sequence of d pairs
            The lower and the higher end along each axis.
        length : float, or d floats, above zero
            The correlation lengths L_k, in the units of `domain`.
        n_terms : int, at least 1
            How many terms: those of the largest eigenvalues. Of equal ones, the first axis' index runs fastest.
        energy : float, above 0 and below 1
            In place of `n_terms`: as few terms as have this share of the variance.
        **options
            `mean`, `std`, `transform`, `distribution`: see the class.

        Returns
        -------
        KarhunenLoeve

        Raises
        ------
        ValueError, TypeError
            If an argument is out of range, or both or none of `n_terms` and `energy` are given.

        Examples
        --------
        >>> field = KarhunenLoeve.exponential([(0, 1)] * 3, 1.0, 5, mean=1.0, std=0.1)
        >>> field.eigenvalues.round(4).tolist()
        [0.4033, 0.0753, 0.0753, 0.0753, 0.0246]
        """
        share = checked_energy(n_terms, energy, "KarhunenLoeve.exponential")
        return cls(box_expansion(domain, length, n_terms, share), **options)

    @classmethod
    def from_points(
        cls, points: Any, covariance: Any, n_terms: int | None = None, *, length: Any = None, weights: Any = None,
        energy: float | None = None, **options: Any,
    ) -> KarhunenLoeve:  # fmt: skip
        """A field with any covariance on a set of points, say the nodes of a mesh.

        Solves ``C W v = lambda v`` with the covariance matrix C of the points: Nyström's method for a vector of
        weights, Galerkin's for the mass matrix of finite elements in whose space the covariance is interpolated.

        Parameters
        ----------
        points : array_like, shape (n_points, d), or (n_points,) in one dimension
        covariance : str or function
            "exponential" ``exp(-sum |h_k|)``, "matern12" ``exp(-r)``, "matern32", "matern52", "gaussian"
            ``exp(-r^2 / 2)``, with ``h = (x - x') / length`` and ``r = |h|``; or a function of points ``(n, d)`` and
            ``(m, d)`` that gives ``(n, m)``.
        n_terms : int, from 1 to n_points
        length : float, or d floats, above zero
            Correlation lengths of a covariance given by its name.
        weights : array_like, shape (n_points,), or sparse matrix, optional
            Quadrature weights above zero (the volume that belongs to each point, a lumped mass matrix), or a mass
            matrix: a SciPy sparse matrix or a `CrsMatrix`. Default: ``1 / n_points`` each.
        energy : float, above 0 and below 1
            In place of `n_terms`: as few terms as have this share of the variance.
        **options
            `mean`, `std`, `transform`, `distribution`: see the class.

        Returns
        -------
        KarhunenLoeve
            At other points than these its modes are Nyström's interpolation, with the covariance function.

        Raises
        ------
        ValueError, TypeError
            If an argument is out of range, the covariance is not symmetric, or it has fewer eigenvalues above zero
            than terms.

        Notes
        -----
        Up to 6000 points the covariance matrix is kept (8 n^2 bytes); above, its rows are made again for each product,
        of which `scipy.sparse.linalg.eigsh` takes a few for each term. The sign of a mode, and the modes of equal
        eigenvalues, follow a rule: a mode is positive where it is largest.

        Examples
        --------
        >>> points = np.linspace(0.0, 1.0, 101)
        >>> field = KarhunenLoeve.from_points(points, "exponential", 3, length=1.0)
        >>> field.eigenvalues.round(3).tolist()
        [0.737, 0.139, 0.045]
        """
        function = "KarhunenLoeve.from_points"
        share = checked_energy(n_terms, energy, function)
        nodes = real_array(points, function, "points", "be finite, of shape (n_points, d)").copy()
        nodes = nodes[:, None] if nodes.ndim == 1 else nodes
        good = nodes.ndim == 2 and nodes.size > 0 and bool(np.all(np.isfinite(nodes)))
        require(good, function, "points", "be finite, of shape (n_points, d)", f"shape {np.shape(points)}")
        if callable(covariance):
            require(length is None, function, "length", "be left out where covariance is a function", length)
        else:
            advice = "covariance is a name."
            require(length is not None, function, "length", "be given", "none", advice)
            covariance = named_covariance(covariance, length, nodes.shape[1], function)
        return cls(point_expansion(nodes, covariance, n_terms, share, weights), **options)

    @classmethod
    def from_matrix(
        cls, matrix: Any, n_terms: int | None = None, *, weights: Any = None, points: Any = None,
        energy: float | None = None, **options: Any,
    ) -> KarhunenLoeve:  # fmt: skip
        """A field on nodes whose covariance matrix is known.

        Parameters
        ----------
        matrix : array_like, shape (n_nodes, n_nodes)
            Symmetric, positive semidefinite.
        n_terms : int, from 1 to n_nodes
        weights, energy, **options
            As of `from_points`.
        points : array_like, shape (n_nodes, d), optional
            The nodes, needed where `mean` or `std` is a function.

        Returns
        -------
        KarhunenLoeve
            It is known at its nodes alone: a model calls ``x.kappa()``.

        Raises
        ------
        ValueError, TypeError
            As of `from_points`.

        Examples
        --------
        >>> field = KarhunenLoeve.from_matrix([[1.0, 0.5], [0.5, 1.0]], 2, weights=[1.0, 1.0])
        >>> field.eigenvalues.round(12).tolist()
        [1.5, 0.5]
        """
        share = checked_energy(n_terms, energy, "KarhunenLoeve.from_matrix")
        matrix = real_array(matrix, "KarhunenLoeve.from_matrix", "matrix", "be square")
        require(matrix.ndim == 2, "KarhunenLoeve.from_matrix", "matrix", "be square", f"shape {matrix.shape}")
        count = len(matrix)
        nodes = None
        if points is not None:
            nodes = real_array(points, "KarhunenLoeve.from_matrix", "points", f"have {count} rows").copy()
            nodes = nodes[:, None] if nodes.ndim == 1 else nodes
            good = nodes.ndim == 2 and nodes.shape[0] == count
            seen = f"shape {np.shape(points)}"
            require(good, "KarhunenLoeve.from_matrix", "points", f"have {count} rows", seen)
        return cls(matrix_expansion(matrix, n_terms, share, weights, nodes), **options)

    @property
    def energy(self) -> float:
        """The share of the variance that the terms kept have; NaN where it is not known."""
        total = getattr(self.expansion, "total", np.nan)
        return float(self.eigenvalues.sum() / total)

    @property
    def nodes(self) -> np.ndarray | None:
        """The points that the expansion was made on, shape (n_nodes, d); None for one in closed form."""
        nodes: np.ndarray | None = getattr(self.expansion, "nodes", None)
        return nodes

    def __repr__(self) -> str:
        return f"KarhunenLoeve({self.n_terms} terms, {self.expansion.dimension} dimensions, energy={self.energy:.4g})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tables": {}}

    def from_uniform(self, u: np.ndarray) -> np.ndarray:
        """The coefficients y, shape (n_terms, n)."""
        return self.coefficients.from_uniform(u)

    def from_normal(self, z: np.ndarray) -> np.ndarray:
        return self.coefficients.from_normal(z)

    def to_normal(self, values: np.ndarray) -> np.ndarray:
        """The germs of coefficients y, shape (n_terms, n)."""
        return self.coefficients.to_normal(values)

    def components(self) -> tuple[Variable, ...]:
        """None: a field has its own covariance."""
        return ()

    def lift(self, values: np.ndarray) -> FieldSamples:
        """The field for many samples."""
        return FieldSamples(self, values)

    def plain(self, value: np.ndarray) -> PlainField:
        """The field for one sample."""
        return PlainField(self, value)

    def description(self) -> dict[str, Any]:
        """The expansion, the distribution of the coefficients, and functions by their values at some places."""
        text = getattr(self.expansion, "description", None)
        at = self.nodes if self.nodes is not None else probes(self.expansion)
        modes = None if callable(text) else array_digest(self.eigenvalues, self.expansion.modes_at(at))
        return {
            "kind": "karhunen_loeve",
            "expansion": text() if callable(text) else {"digest": modes},
            "mean": described(self.mean, at),
            "std": described(self.std, at),
            "transform": self.transform if isinstance(self.transform, str) else described(self.transform, TRIALS),
            "coefficients": self.coefficients.description(),
        }

    def evaluate(self, coefficients: np.ndarray, points: Any = None) -> tuple[np.ndarray, tuple[int, ...]]:
        """The field at points, for coefficients ``(n_terms, n)``: values ``(n_points, n)``, and the points' shape.

        Terms are added one after the other, so that the bits of a sample do not depend on how many there are.
        """
        modes, mean, shape = self._at(points)
        values = np.empty((modes.shape[0], coefficients.shape[1]))
        step = max(1, BLOCK // values.shape[1])
        for first in range(0, modes.shape[0], step):
            part = values[first : first + step]
            part[:] = mean[first : first + step, None]
            for mode, y in zip(modes[first : first + step].T, coefficients, strict=True):
                part += mode[:, None] * y
        if self.transform == "lognormal":
            np.exp(values, out=values)
        elif callable(self.transform):
            values = np.asarray(self.transform(values))
            good = values.shape == (modes.shape[0], coefficients.shape[1])
            wanted = "give an array of the shape that it takes"
            require(good, "KarhunenLoeve", "transform", wanted, f"shape {values.shape}")
        return values, shape

    def _at(self, points: Any) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
        """The modes times std and the roots of the eigenvalues, the mean, and the points' shape."""
        shape: tuple[int, ...]
        if points is None:
            expansion = self.expansion
            known = getattr(expansion, "modes", None) is not None
            require(known, "KarhunenLoeve", "points", "be given", "none", "The expansion has no nodes of its own.")
            flat, shape = expansion.nodes, (expansion.modes.shape[0],)
        else:
            has_place = self.expansion.dimension > 0
            advice = "A field of a matrix without points is known at its nodes alone."
            require(has_place, "KarhunenLoeve", "points", "be left out", f"shape {np.shape(points)}", advice)
            flat, shape = flat_points(points, self.expansion.dimension, "KarhunenLoeve")
        key = None if points is None else array_digest(flat)
        if key not in self._tables:
            phi = self.expansion.modes if points is None else self.expansion.modes_at(flat)
            count = phi.shape[0]
            modes = phi * np.sqrt(self.eigenvalues) * values_of(self.std, flat, count, "std")[:, None]
            while len(self._tables) >= CACHED:
                self._tables.pop(next(iter(self._tables)))
            self._tables[key] = modes, values_of(self.mean, flat, count, "mean")
        modes, mean = self._tables[key]
        return modes, mean, shape


TRIALS = np.linspace(-3.0, 3.0, 33)


def checked_energy(n_terms: Any, energy: Any, function: str) -> float | None:
    """The share of the variance, where it is given in place of the number of terms."""
    given = "both" if n_terms is not None else "none of them"
    require((n_terms is None) != (energy is None), function, "n_terms, energy", "be given one without the other", given)
    if energy is None:
        return None
    share = positive(energy, function, "energy")
    require(share < 1.0, function, "energy", "be a share of the variance, below 1", share)
    return share


def values_of(given: Any, points: np.ndarray | None, count: int, argument: str) -> np.ndarray:
    """A number or a function at points, shape (count,)."""
    if not callable(given):
        return np.full(count, float(given))
    require(points is not None, "KarhunenLoeve", argument, "be a number", "a function", "The nodes have no places.")
    values = np.asarray(given(points), dtype=np.float64)
    seen = f"shape {values.shape}, or values that are not finite"
    good = values.shape == (count,) and bool(np.all(np.isfinite(values)))
    require(good, "KarhunenLoeve", argument, f"give {count} finite numbers for as many points", seen)
    return values


def probes(expansion: Any) -> np.ndarray:
    """Some points of the domain of an expansion in closed form."""
    places = (np.arange(33)[:, None] * np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0])[: expansion.dimension]) % 1.0
    lower, widths = getattr(expansion, "lower", 0.0), getattr(expansion, "widths", 1.0)
    points: np.ndarray = lower + places * widths
    return points


def described(given: Any, points: np.ndarray | None) -> Any:
    """A number as it is, a function by its name and its values at some points to ten digits."""
    if not callable(given):
        return given
    values = np.ravel(np.asarray(given(points), dtype=np.float64))[:33]
    return {"function": getattr(given, "__qualname__", type(given).__name__), "values": [f"{v:.10g}" for v in values]}
