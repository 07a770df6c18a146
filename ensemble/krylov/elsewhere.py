"""The solvers on arrays of PyTorch, JAX and other libraries: one gateway to NumPy's kernels, with derivatives.

The numbers are solved where they lie, by views that share their memory. The derivatives are those of the solution, not
of the iterations: one more solve each, with the same method, tolerance and preconditioner.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from ensemble._backend import array_namespace, asarray_like, is_traced, library_of, needs_gradient, to_numpy
from ensemble._typing import Array
from ensemble.krylov._system import as_array, flattened, linear_system, one_column
from ensemble.krylov.result import SolveResult, TracedResult
from ensemble.linalg.adapt import as_operator
from ensemble.linalg.bridge.host import (
    HostOperator,
    array_in,
    dtype_of,
    host_matrix,
    host_tolerance,
    host_view,
    in_library,
    is_elsewhere,
    one_library,
    refuse,
)
from ensemble.linalg.bridge.rules import rules_of
from ensemble.linalg.bridge.system import HostSystem
from ensemble.linalg.crs_matrix import CrsMatrix, as_crs
from ensemble.linalg.graph import CrsGraph
from ensemble.linalg.operators import samples_of
from ensemble.linalg.symmetric import SymmetricCrsMatrix
from ensemble.scalar import Ensemble

__all__ = ["on_every_library"]

Method = Callable[..., Any]
Solver = TypeVar("Solver", bound=Method)


def on_every_library(*, symmetric: bool) -> Callable[[Solver], Solver]:
    """Decorate a solver of NumPy's and CuPy's arrays so that it takes those of other libraries.

    `symmetric`: whether A is its own conjugate transpose for this solver.
    """

    def decorate(method: Solver) -> Solver:
        @functools.wraps(method)
        def solver(A: Any, b: Any, **options: Any) -> Any:
            if is_elsewhere(A, b, options.get("x0")):
                return _Call(method, symmetric, A, b, options).result()
            return method(A, b, **options)

        return cast(Solver, solver)

    return decorate


class _Call:
    """One call of a solver on arrays of another library."""

    def __init__(self, method: Method, symmetric: bool, A: Any, b: Any, options: dict[str, Any]) -> None:
        self.method, self.name = method, method.__name__
        self.symmetric = symmetric or isinstance(A, SymmetricCrsMatrix)
        options = dict(options)
        b, x0 = (
            one_column(as_array(value, self.name, key)) for key, value in (("b", b), ("x0", options.pop("x0", None)))
        )
        self.like = one_library(self.name, b=b, A=A, x0=x0)
        self.b, self.x0 = (in_library(value, self.like) for value in (b, x0))
        self.matrix = _matrix_of(A)
        self.operator = None if self.matrix is not None else HostOperator(as_operator(A, self.name, "A"), self.like)
        self.set = getattr(A, "sample_set", None)
        if isinstance(A, SymmetricCrsMatrix) and self.name == "direct" and options.get("kind", "auto") == "auto":
            options["kind"] = "ldlt"
        self.options = {
            key: host_tolerance(value) if key in ("rtol", "atol") else value for key, value in options.items()
        }
        if self.options.get("M") is not None:
            self.options["M"] = _host_preconditioner(self.options["M"], self.name, self.like)
        self.arrays = self._arrays(A)
        if self.operator is not None:
            self._require_free()

    def _arrays(self, A: Any) -> tuple[Any, Any, Any]:
        """Values of A, b and x0 as bare arrays of one type, shape (nnz or n, n_samples); None for what is not there."""
        n, block = A.shape[0], int(getattr(A, "block_size", 1))
        b, x0 = (None if v is None else flattened(v, n, block) for v in (self.b, self.x0))
        self.block = block if b is not self.b or x0 is not self.x0 else 1
        self.flat_b, self.flat_x0 = b, x0
        values = None if self.matrix is None else self.matrix.values
        parts = values, samples_of(b), None if x0 is None else samples_of(x0)
        xp, dtype = array_namespace(self.like), dtype_of(self.name, *parts)
        wanted = getattr(xp, dtype.name)
        return tuple(None if part is None else xp.astype(part, wanted, copy=False) for part in parts)  # type: ignore[return-value]

    def _require_free(self) -> None:
        """An operator without entries has no derivatives of its own, and those of b only with its transpose."""
        assert self.operator is not None
        b = self.arrays[1]
        advice = "Give a CrsMatrix."
        if library_of(b) == "jax" and needs_gradient(b):
            raise refuse(self.name, "A", b, "be a matrix where JAX transforms a solve", advice)
        probe = None if is_traced(b) else asarray_like(np.zeros_like(to_numpy(b)), b)
        if probe is not None and needs_gradient(self.operator.foreign_product(probe)):
            raise refuse(self.name, "A", b, "be a matrix where a gradient with respect to it is needed", advice)
        if needs_gradient(b) and not self.symmetric and not hasattr(self.operator.operator, "T"):
            raise refuse(self.name, "A", b, "be a matrix, or have T, where b needs a gradient", advice)

    # --- on NumPy's arrays
    def _system(self, values: Any) -> Any:
        if self.operator is not None:
            return self.operator
        assert self.matrix is not None
        return CrsMatrix(self.matrix.graph, Ensemble(values, self.set))

    def primal(self, values: Any, b: np.ndarray, x0: Any) -> SolveResult:
        """The call itself."""
        options = dict(self.options)
        if x0 is not None:
            options["x0"] = _as_given(self.flat_x0, x0)
        return self.method(self._system(values), _as_given(self.flat_b, b), **options)  # type: ignore[no-any-return]

    def solve(self, values: Any, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same method for another right-hand side."""
        return self._converged(self._system(values), r, self.options)

    def solve_adjoint(self, values: Any, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same method with the conjugate transpose of A, and the transpose of its preconditioner if it has one."""
        if self.symmetric:
            return self.solve(values, r)
        A, options = self._system(values).T, dict(self.options)
        options.pop("factorization", None)
        if options.get("M") is not None:
            options["M"] = getattr(options["M"], "T", options["M"])
        x, converged = self._converged(A.to_matrix() if self.operator is None else A, np.conj(r), options)
        return np.conj(x), converged

    def _converged(self, A: Any, r: np.ndarray, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        options = {key: value for key, value in options.items() if key not in ("callback", "atol")}
        result = self.method(A, Ensemble(r), **options)
        x, converged = result.x.samples, result.converged
        if not converged.all() and options.pop("M", None) is not None:  # which may not serve the transpose
            again = self.method(A, Ensemble(r), **options)
            x, converged = np.where(converged, x, again.x.samples), converged | again.converged
        return x, converged

    # --- results
    def result(self) -> SolveResult:
        """That of the method, with x in the other library and its derivatives."""
        values, b, x0 = self.arrays
        traced = library_of(b) == "jax" and any(needs_gradient(part) for part in self.arrays if part is not None)
        plain, sample_set, shape = self._form() if traced else (None, None, (b.shape[0], 1))
        graph = None if self.matrix is None else self.matrix.graph
        system = HostSystem(self.name, graph, shape, self.primal, self.solve, self.solve_adjoint)
        x, *others = rules_of(*self.arrays).outcome(system, values, b, x0)
        if not traced:
            plain = not isinstance(system.latest.x, Ensemble)
            sample_set = None if plain else system.latest.x.sample_set
        if self.block > 1:
            x = array_namespace(x).reshape(x, (-1, self.block, x.shape[-1]))
        wrapped = x[..., 0] if plain else Ensemble(x, sample_set)
        if traced or is_traced(x):
            return TracedResult(self.name, wrapped, tuple(others))
        found: SolveResult = replace(system.latest, x=wrapped)
        return found

    def _form(self) -> tuple[bool, Any, tuple[int, int]]:
        """Whether x is plain, its sample set, and its shape with samples: arguments are checked on zeros."""
        values, b, x0 = (None if a is None else np.zeros(a.shape, dtype_of(self.name, a)) for a in self.arrays)
        options = {key: self.options.get(key) for key in ("M", "rtol", "atol")}
        start = None if x0 is None else _as_given(self.flat_x0, x0)
        system = linear_system(
            self.name, self._system(values), _as_given(self.flat_b, b), start,
            options["M"], options["rtol"], options["atol"] or 0.0, self.options.get("max_iterations", 1),
            self.options.get("coupling", "independent"),
        )  # fmt: skip
        plain = not isinstance(system.like, Ensemble) and system.is_shared
        return plain, system.sample_set, (system.b.shape[0], system.b.shape[1])


def _as_given(like: Any, samples: Any) -> Any:
    """`samples` as an Ensemble where `like` is one, else as a plain vector."""
    return Ensemble(samples, like.sample_set) if isinstance(like, Ensemble) else samples[:, 0]


def _matrix_of(A: Any) -> CrsMatrix | None:
    """A as a stored matrix of its library, also of a dense array or Ensemble; None for an operator."""
    array = array_in(A)
    dense = isinstance(A, Ensemble) or array is A
    if dense and A.ndim == 2:
        rows, columns = (int(k) for k in A.shape)
        graph = CrsGraph(np.arange(rows + 1) * columns, np.tile(np.arange(columns), rows), (rows, columns))
        samples = samples_of(A)
        values = array_namespace(samples).reshape(samples, (rows * columns, samples.shape[-1]))
        return CrsMatrix(graph, Ensemble(values, getattr(A, "sample_set", None)))
    matrix = as_crs(A)
    return None if matrix is NotImplemented else matrix


def _host_preconditioner(M: Any, name: str, like: Array) -> Any:
    """M on NumPy's arrays; its own derivatives are not needed, as the solution does not depend on it."""
    if not is_elsewhere(M):
        return M
    if is_traced(array_in(M)):
        host_view(array_in(M), name, "M")  # which says that its numbers are not known
    if as_crs(M) is not NotImplemented:
        return host_matrix(M, name, "M")
    return HostOperator(M, like)
