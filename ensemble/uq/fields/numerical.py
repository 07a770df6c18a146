"""Eigenpairs of a covariance on a set of points, by `scipy.sparse.linalg.eigsh`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ensemble._check import integer, real_array, require
from ensemble.uq.inputs.variable import array_digest

__all__ = ["PointExpansion", "matrix_expansion", "point_expansion"]

DENSE = 6000
"""Points up to which the covariance is kept as a matrix, of at most 288 MB; above, each product makes its rows."""

DIRECT = 400
"""Points up to which all eigenpairs are computed."""

SPARE = 4
"""Eigenpairs beyond those kept, so that equal eigenvalues are not cut apart before their modes are fixed."""

EQUAL = 1e-7
"""Eigenvalues that differ by less, relatively, count as equal: rounding alone decides on their modes."""

BLOCK = 2**22
"""Entries of the covariance that are made at a time."""

Covariance = Callable[[np.ndarray, np.ndarray], np.ndarray]


class PointExpansion:
    """Eigenpairs of a covariance on nodes, largest eigenvalue first.

    Attributes
    ----------
    eigenvalues : ndarray, shape (n_terms,)
    nodes : ndarray, shape (n_nodes, d), or None
    modes : ndarray, shape (n_nodes, n_terms)
        ``modes.T @ W @ modes`` is the identity for the weights or mass matrix W.
    total : float
        The sum of all eigenvalues, kept or not.
    """

    def __init__(
        self, eigenvalues: np.ndarray, modes: np.ndarray, weighted: np.ndarray, total: float, digest: str,
        nodes: np.ndarray | None, covariance: Covariance | None,
    ) -> None:  # fmt: skip
        self.eigenvalues, self.modes, self.total = eigenvalues, modes, total
        self.nodes, self._covariance, self._digest = nodes, covariance, digest
        self._projection = weighted / eigenvalues

    @property
    def dimension(self) -> int:
        """The number of coordinates of a node; 0 where nodes have none."""
        return 0 if self.nodes is None else int(self.nodes.shape[1])

    def modes_at(self, points: np.ndarray) -> np.ndarray:
        """The modes at points ``(n, d)``: shape (n, n_terms).

        At the nodes the eigenvectors; elsewhere Nyström's interpolation, the covariance with all nodes times the
        weighted modes, divided by the eigenvalues.
        """
        assert self.nodes is not None
        if points.shape == self.nodes.shape and np.array_equal(points, self.nodes):
            return self.modes
        advice = "Without its function, a field is known at its nodes alone."
        known = self._covariance is not None
        require(known, "KarhunenLoeve", "points", "be the nodes of the covariance matrix", "others", advice)
        assert self._covariance is not None
        result = np.empty((points.shape[0], self.eigenvalues.size))
        step = max(1, BLOCK // self.nodes.shape[0])
        for first in range(0, points.shape[0], step):
            block = self._covariance(points[first : first + step], self.nodes)
            # never by BLAS: its sums depend on the number of rows and of threads
            np.einsum("ij,jk->ik", block, self._projection, out=result[first : first + step])
        return result

    def description(self) -> dict[str, Any]:
        """A digest of what the eigenpairs follow from, and the eigenvalues to eight digits."""
        return {"digest": self._digest, "eigenvalues": [f"{value:.8g}" for value in self.eigenvalues]}


def point_expansion(
    points: np.ndarray, covariance: Covariance, n_terms: int | None, energy: float | None, weights: Any
) -> PointExpansion:
    """Eigenpairs of a covariance function on points."""
    function = "KarhunenLoeve.from_points"
    count = points.shape[0]
    rows = covariance_rows(points, covariance, function)
    some = np.unique(np.linspace(0, count - 1, 7).astype(int))
    matrix = rows(0, count) if count <= DENSE else None
    if matrix is not None:
        rows = rows_of(matrix)
    digest = array_digest(points, rounded(covariance(points[some], points)))
    return expanded(function, count, matrix, rows, n_terms, energy, weights, digest, points, covariance)


def matrix_expansion(
    matrix: Any, n_terms: int | None, energy: float | None, weights: Any, points: np.ndarray | None
) -> PointExpansion:
    """Eigenpairs of a covariance matrix."""
    function = "KarhunenLoeve.from_matrix"
    values = np.asarray(matrix, dtype=np.float64)
    seen = f"shape {values.shape}"
    require(values.ndim == 2 and values.shape[0] == values.shape[1] > 0, function, "matrix", "be square", seen)
    require(bool(np.all(np.isfinite(values))), function, "matrix", "be finite", "NaN or infinity")
    gap = float(np.abs(values - values.T).max())
    good = gap <= 1e-8 * float(np.abs(values).max())
    require(good, function, "matrix", "be symmetric", f"entries that differ by {gap:.3g}")
    digest = array_digest(rounded(values))
    return expanded(function, values.shape[0], values, rows_of(values), n_terms, energy, weights, digest, points, None)


def rows_of(matrix: np.ndarray) -> Callable[[int, int], np.ndarray]:
    """A function that gives the rows of a matrix, from one number to another."""

    def rows(first: int, last: int) -> np.ndarray:
        return matrix[first:last]

    return rows


def rounded(values: np.ndarray) -> np.ndarray:
    """Values to ten digits of the largest: alike on machines whose functions differ in the last bits."""
    largest = float(np.abs(values).max()) or 1.0
    result: np.ndarray = np.round(np.asarray(values, dtype=np.float64) / largest, 10) + 0.0
    return result


def covariance_rows(points: np.ndarray, covariance: Covariance, function: str) -> Callable[[int, int], np.ndarray]:
    """A function that gives the rows of the covariance matrix of the points, from one number to another."""
    few = points[: min(5, points.shape[0])]
    trial = np.asarray(covariance(few, points))
    wanted = "take points (n, d) and (m, d) and give an array (n, m)"
    good = trial.shape == (few.shape[0], points.shape[0])
    require(good, function, "covariance", wanted, f"one of shape {trial.shape} for {few.shape} and {points.shape}")
    back = np.asarray(covariance(points, few)).T
    alike = bool(np.all(np.abs(trial - back) <= 1e-8 * max(float(np.abs(trial).max()), 1e-300)))
    require(alike, function, "covariance", "be symmetric and finite", "another value for points exchanged, or NaN")

    def rows(first: int, last: int) -> np.ndarray:
        result = np.empty((last - first, points.shape[0]))
        step = max(1, BLOCK // points.shape[0])
        for start in range(first, last, step):
            stop = min(start + step, last)
            result[start - first : stop - first] = covariance(points[start:stop], points)
        require(bool(np.all(np.isfinite(result))), function, "covariance", "be finite", "NaN or infinity")
        return result

    return rows


def expanded(
    function: str, count: int, matrix: np.ndarray | None, rows: Callable[[int, int], np.ndarray], n_terms: int | None,
    energy: float | None, weights: Any, digest: str, nodes: np.ndarray | None, covariance: Covariance | None,
) -> PointExpansion:  # fmt: skip
    """The eigenpairs kept, their modes fixed."""
    mass = checked_weights(weights, count, function)
    total = total_variance(mass, rows, count)
    require(total > 0.0, function, "covariance", "have a variance above zero", total)
    wanted = 16 if n_terms is None else integer(n_terms, function, "n_terms", minimum=1)
    require(wanted <= count or n_terms is None, function, "n_terms", f"be at most {count}, the points", n_terms)
    while True:
        values, modes = eigenpairs(matrix, rows, mass, min(wanted + SPARE, count))
        values, modes = fixed_modes(values, modes)
        reached = np.cumsum(values[:wanted]) / total
        if n_terms is not None or reached[-1] >= (energy or 1.0) or wanted >= count:
            break
        wanted *= 2
    if n_terms is None:
        wanted = min(int(np.searchsorted(reached, energy or 1.0)) + 1, values.size)
    values, modes = values[:wanted], modes[:, :wanted]
    good = bool(values[-1] > 1e-13 * values[0])
    seen = f"{int(np.sum(values > 1e-13 * values[0]))} for {wanted} terms"
    require(good, function, "covariance", "have as many eigenvalues above zero as terms", seen, "Take fewer terms.")
    weighted = mass @ modes if mass.ndim == 2 else mass[:, None] * modes
    name = array_digest(np.frombuffer(f"{digest}{mass_digest(mass)}".encode(), dtype=np.uint8))
    return PointExpansion(values, modes, np.asarray(weighted), total, name, nodes, covariance)


def checked_weights(weights: Any, count: int, function: str) -> Any:
    """Weights as a vector, or a mass matrix as a sparse matrix of compressed columns."""
    from scipy import sparse

    if weights is None:
        return np.full(count, 1.0 / count)
    if hasattr(weights, "to_scipy"):
        weights = weights.to_scipy()
    if sparse.issparse(weights):
        matrix = sparse.csc_array(weights, dtype=np.float64)
        good = matrix.shape == (count, count) and bool(np.all(matrix.diagonal() > 0.0))
        seen = f"shape {matrix.shape}"
        require(good, function, "weights", f"be a matrix of {count} rows with a diagonal above zero", seen)
        return matrix
    wanted = f"be {count} numbers above zero, or a sparse matrix"
    vector = real_array(weights, function, "weights", wanted)
    good = vector.shape == (count,) and bool(np.all(vector > 0.0)) and bool(np.all(np.isfinite(vector)))
    require(good, function, "weights", wanted, f"shape {vector.shape}")
    return vector


def mass_digest(mass: Any) -> str:
    """A name for the weights."""
    return array_digest(mass) if mass.ndim == 1 else array_digest(mass.indptr, mass.indices, mass.data)


def total_variance(mass: Any, rows: Callable[[int, int], np.ndarray], count: int) -> float:
    """The trace of the covariance times the weights."""
    total, step = 0.0, max(1, BLOCK // count)
    for first in range(0, count, step):
        block = rows(first, min(first + step, count))
        if mass.ndim == 1:
            places = np.arange(block.shape[0])
            total += float(block[places, first + places] @ mass[first : first + step])
        else:
            total += float(mass.tocsr()[first : first + step].multiply(block).sum())
    return total


def eigenpairs(
    matrix: np.ndarray | None, rows: Callable[[int, int], np.ndarray], mass: Any, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest eigenvalues of ``C W`` and the eigenvectors of unit norm in W, from W C W v = lambda W v."""
    from scipy import linalg
    from scipy.sparse.linalg import LinearOperator, eigsh

    count = mass.shape[0]
    lumped = mass.ndim == 1
    root = np.sqrt(mass) if lumped else None

    def covariance_times(v: np.ndarray) -> np.ndarray:
        if matrix is not None:
            product: np.ndarray = matrix @ v
            return product
        step = max(1, BLOCK // count)
        return np.concatenate([rows(first, min(first + step, count)) @ v for first in range(0, count, step)])

    if matrix is not None and (count <= DIRECT or 2 * k >= count):
        if root is not None:
            values, vectors = linalg.eigh(root[:, None] * matrix * root, subset_by_index=(count - k, count - 1))
        else:
            dense = mass.toarray()
            values, vectors = linalg.eigh(dense @ matrix @ dense, dense, subset_by_index=(count - k, count - 1))
    else:
        start = np.random.default_rng(20177).normal(size=count)  # ARPACK's own is another one in each call
        if root is not None:
            operator = LinearOperator((count, count), lambda v: root * covariance_times(root * v.ravel()))
            values, vectors = eigsh(operator, k, which="LA", v0=start)
        else:
            operator = LinearOperator((count, count), lambda v: mass @ covariance_times(mass @ v.ravel()))
            values, vectors = eigsh(operator, k, M=mass, which="LA", v0=start)
    order = np.argsort(-values, kind="stable")
    modes = vectors[:, order] if root is None else vectors[:, order] / root[:, None]
    return values[order], modes


def fixed_modes(values: np.ndarray, modes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The modes of one rule, whatever the eigensolver chose.

    A mode is positive at its largest entry, the first of those within one part in a million. Of equal eigenvalues, the
    first mode is the one that is largest at the node at which all of them together are largest; the next ones follow
    alike from what is left.
    """
    fixed = np.empty_like(modes)
    starts = np.flatnonzero(np.concatenate([[True], np.diff(values) < -EQUAL * np.abs(values[:-1])]))
    for first, last in zip(starts, [*starts[1:], values.size], strict=True):
        left = modes[:, first:last].copy()
        for k in range(first, last):
            heights = np.linalg.norm(left, axis=1)
            pivot = int(np.flatnonzero(heights >= (1.0 - 1e-6) * heights.max())[0])
            direction = left[pivot] / heights[pivot]
            fixed[:, k] = left @ direction
            left -= np.outer(fixed[:, k], direction)
    return values, fixed
