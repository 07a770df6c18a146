"""Diffusion with a random coefficient, solved for many samples at once.

Longer than 400 lines: half of them describe options.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._backend import array_namespace, asarray_like, contiguous, library_and_device, to_numpy
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.sparse.row_sums import in_space
from ensemble._keywords import explains_construction
from ensemble._typing import Array, Communicator
from ensemble.apps.fem.diffusion_operator import DiffusionOperator, real_samples, require_coefficient
from ensemble.apps.fem.diffusion_result import DiffusionResult
from ensemble.apps.fem.discretization import Discretization
from ensemble.apps.fem.mesh import HexMesh, cell_counts
from ensemble.apps.fem.solves.device_kernels import compile_device_kernels
from ensemble.apps.fem.solves.operator_system import OperatorSystem
from ensemble.apps.fem.solves.preconditioner import HierarchyCache, Multigrid, require_operator
from ensemble.apps.fem.solves.solve_memory import require_memory, require_setup_memory
from ensemble.apps.fem.solves.stored_system import StoredSystem, Workspace
from ensemble.apps.fem.solves.timed_system import LinearSolver
from ensemble.krylov import SolveResult, bicgstab, cg, direct, gmres, newton
from ensemble.linalg import CrsMatrix, SymmetricCrsMatrix
from ensemble.linalg.operators import set_of
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import common_set
from ensemble.uq.fields.unit_cube import exponential_covariance

__all__ = ["DiffusionResult", "RandomDiffusion"]

BACKENDS = ("numpy", "cupy")
COEFFICIENTS = ("affine", "lognormal")
SOLVERS: dict[str, Any] = {"cg": cg, "bicgstab": bicgstab, "gmres": gmres}
DIRECT_ROWS = 800
"""Nodes up to which "auto" solves directly: 7 times as fast as multigrid at 4^3 cells, 1.5 at 8^3, 0.7 at 10^3."""


@explains_construction("RandomDiffusion")
class RandomDiffusion:
    """Diffusion on the unit cube whose diffusivity is a random field.

    ``-div(kappa(x, y) grad u) + a (1, 1, 1) . grad u + c u^2 = 0`` with u = 1 at z = 0, u = 2 at z = 1 and no flux
    through the other faces, where ``kappa(x, y) = mean + sigma sum_m sqrt(lambda_m) phi_m(x) y_m`` is the truncated
    Karhunen-Loeve expansion of an exponential covariance [1]_. Everything that samples share (mesh, graph, modes,
    element tables, aggregates) is prepared once; memory for the last ensembles is kept for the next ones.

    Parameters
    ----------
    cells : int or three ints, each at least 1
        Hexahedra along x, y and z.
    n_terms : int, at least 1
        Terms of the expansion, hence random parameters y.
    correlation_length : float, above zero, in edges of the cube
    mean : float, above zero
        Of the diffusivity.
    variance : float, zero or above
        sigma^2, in units of the diffusivity squared. The field's own variance is this times the variance of y, which is
        1/3 for y uniform on (-1, 1), less what the truncation loses.
    source : float
        The coefficient c; the problem is nonlinear unless it is 0.
    advection : float
        The coefficient a. The Galerkin elements have no upwinding: where ``a h / kappa`` passes 2 in a cell of width h,
        u may oscillate from node to node.
    grading : float
        Nodes lie at ``g + b g^2 (1 - g)^2`` with this b, in every direction; 0 spaces them evenly.
    mode_order : {"lexicographic", "trilinos"}
        Which of several equal eigenvalues comes first; see `exponential_covariance`.
    coefficient : {"affine", "lognormal"}
        "affine": as above. "lognormal": ``kappa = mean exp(sigma sum_m sqrt(lambda_m) phi_m y_m)``, positive for every
        y; `mean` is then its median, and sigma^2 has no unit.
    backend : {"numpy", "cupy"}
        Whose arrays hold the samples: "cupy" assembles and solves on a CUDA device, and returns its arrays.
    comm : communicator of mpi4py, or `distributed.serial()`, optional
        Share the nodes out to its ranks, which make every call together and with equal arguments. Vectors (`u`, `u0`,
        `u` of a result) are then those of this rank's nodes, ``partition.rows``; ``partition.gather(result.u)`` puts
        the whole together. Responses, counts and statuses are those of all ranks, with the same bits on any number of
        ranks. "stored" operators and the default preconditioner alone; "numpy" alone.
    domains : int, optional
        Domains of the partition over ranks, see `Partition`; bits depend on their number.

    Attributes
    ----------
    mesh : HexMesh
    field : KarhunenLoeve
    discretization : Discretization
        Tables and assembly passes, on plain arrays.
    graph : CrsGraph, shape (n_nodes, n_nodes)
        Of the Jacobian, for all samples. Over ranks shape (n_local, n_local + n_ghosts): places among the nodes of this
        rank and, behind them, those of other ranks that its rows couple to.
    partition : Partition or None
        Of the nodes, over the ranks of `comm`: by coordinates.

    Raises
    ------
    ValueError
        If an argument is out of range.
    MemoryError
        If the mesh and the modes on it cannot fit the memory, before they are made.

    References
    ----------
    .. [1] Phipps, D'Elia, Edwards, Hoemmen, Hu, Rajamanickam (2017), SIAM J. Sci. Comput. 39, C162-C193, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> result = RandomDiffusion(4).solve(np.zeros(5))
    >>> bool(np.allclose(result.u, 1.0 + RandomDiffusion(4).mesh.points[:, 2]))
    True
    """

    def __init__(
        self,
        cells: int | tuple[int, int, int],
        *,
        n_terms: int = 5,
        correlation_length: float = 1.0,
        mean: float = 1.0,
        variance: float = 0.01,
        source: float = 0.0,
        advection: float = 0.0,
        grading: float = 1.0,
        mode_order: str = "lexicographic",
        coefficient: str = "affine",
        backend: str = "numpy",
        comm: Communicator | None = None,
        domains: int | None = None,
    ) -> None:
        name = "RandomDiffusion"
        with over(comm, name):
            _check.one_of(backend, BACKENDS, name, "backend")
            _check.one_of(coefficient, COEFFICIENTS, name, "coefficient")
            mean = _check.positive(mean, name, "mean")
            variance = _check.positive(variance, name, "variance", zero=True)
            source, self.advection = _check.finite(source, name, "source"), _check.finite(advection, name, "advection")
            on_host = comm is None or backend == "numpy"
            _check.require(on_host, name, "backend", "be 'numpy' with comm", repr(backend))
            wanted = "be None without comm, which shares domains out"
            _check.require(comm is not None or domains is None, name, "domains", wanted, domains)
            n_terms = _check.integer(n_terms, name, "n_terms", minimum=1)
            require_setup_memory(cell_counts(cells, name), n_terms, 1 if comm is None else comm.size)
            self.mesh = HexMesh.box(cells, grading=grading)
            self.field = exponential_covariance(n_terms, correlation_length, mode_order=mode_order)
        problem = (
            self.mesh, self.field, mean, float(np.sqrt(variance)), source, self.advection,
            coefficient == "lognormal", backend,
        )  # fmt: skip
        self.discretization = Discretization(*problem) if comm is None else over_ranks(comm, domains, *problem)
        self.partition: Any = getattr(self.discretization, "partition", None)
        self.graph = self.discretization.graph
        self._workspaces: dict[tuple[int, np.dtype], Workspace] = {}
        self._hierarchies = HierarchyCache(self.discretization)

    def __repr__(self) -> str:
        x, y, z = self.mesh.cells
        return f"RandomDiffusion({x} x {y} x {z} cells, {self.mesh.n_nodes} nodes, {self.field.n_terms} terms)"

    def check(self, y: Any) -> None:
        """Raise unless `y` fits and keeps the diffusivity above zero at every Gauss point of every sample.

        `assemble` and `solve` begin with this; call it to know before a long run.

        Raises
        ------
        ValueError
            If the shape of `y` is not (n_terms,), or a sample makes the diffusivity zero or negative somewhere; the
            message names the sample, the point and the value.
        """
        self._parameters(y, "check")

    def assemble(
        self, y: Any, u: Any = None, *, symmetric: bool = False, out: CrsMatrix | SymmetricCrsMatrix | None = None
    ) -> tuple[CrsMatrix | SymmetricCrsMatrix, Any]:
        """Assemble the Jacobian and the residual at `u`, for all samples in one pass.

        Parameters
        ----------
        y : Ensemble or array, shape (n_terms,), dimensionless
        u : Ensemble or array, shape (n_nodes,), optional
            By default the boundary values, and zero inside.
        symmetric : bool
            Store the upper triangle alone: half the memory, and half the time of all products; over ranks that of each
            domain, and couplings between domains in full. Not with advection, and not on a device.
        out : CrsMatrix or SymmetricCrsMatrix, optional
            A matrix from an earlier call like this one, to be overwritten: new memory can cost more than the assembly.

        Returns
        -------
        CrsMatrix or SymmetricCrsMatrix, shape (n_nodes, n_nodes); over ranks DistributedCrsMatrix or, of the upper
        triangles, DistributedSymmetricCrsMatrix
            Rows and columns of nodes at z = 0 and z = 1 are those of the identity.
        Ensemble, shape (n_nodes,)
            The residual, zero at those nodes. A plain array if `y` and `u` are.

        Raises
        ------
        ValueError
            As for `check`, or if `u` or `out` does not fit, or `symmetric` is asked for where it cannot be.
        """
        wanted = "be False with advection, whose matrix is not symmetric, and on a device"
        discrete = self.discretization
        seen = f"True with advection = {self.advection:g} on {library_and_device(discrete.reference_array)[1]}"
        parameters = self._parameters(y, "assemble")
        with discrete.alike():
            _check.require(
                not symmetric or discrete.stores_upper, "RandomDiffusion.assemble", "symmetric", wanted, seen
            )
            if u is None:
                state = discrete.initial_guess(parameters.shape[1], parameters.dtype)
            else:
                parameters, state = self._fit(parameters, u)
            buffer = self._values_of(out, state, symmetric)
        sample_set = _sample_set(parameters.shape[1], y, u)
        work = self._workspaces.pop((parameters.shape[1], parameters.dtype), Workspace())
        work.kappa = self.discretization.coefficient(parameters, work.kappa)
        values, residual = self.discretization.jacobian_and_residual(work.kappa, state, buffer, symmetric)
        self._workspaces[parameters.shape[1], parameters.dtype] = work
        if not isinstance(y, Ensemble) and not isinstance(u, Ensemble):
            return discrete.matrix(values, symmetric), residual[:, 0]
        return discrete.matrix(Ensemble(values, sample_set), symmetric), Ensemble(residual, sample_set)

    def solve(
        self,
        y: Any,
        *,
        rtol: float = 1e-7,
        max_newton_iterations: int = 10,
        cg_rtol: float = 1e-7,
        max_cg_iterations: int = 200,
        coupling: str = "independent",
        solver: str | None = None,
        u0: Any = None,
        operator: str = "stored",
        preconditioner: Multigrid | None = None,
    ) -> DiffusionResult:
        """Solve for every sample, by Newton's method and a Krylov method preconditioned by smoothed aggregation.

        With advection the matrix is not symmetric, and the hierarchy, made for symmetric ones, serves while the cell
        Peclet number ``a h / kappa`` is small: below 0.6 it costs no iterations, at 1 twice as many, at 1.3 ten times
        as many; from about 2 on samples do not converge, as their status states: refine the mesh.

        Parameters
        ----------
        y : Ensemble or array, shape (n_terms,), dimensionless
            A sample that holds NaN is flagged; the others are solved.
        rtol : float, dimensionless
            Newton stops a sample when its residual's 2-norm is this fraction of the first.
        max_newton_iterations : int
        cg_rtol : float, dimensionless
            The same for the linear solver, within a Newton step.
        max_cg_iterations : int
            Of the linear solver, within a Newton step.
        coupling : {"independent", "ensemble"}
            "ensemble" makes all samples share one Krylov space, as in eq. 4 of Phipps et al.; see `cg`.
        solver : {"cg", "bicgstab", "gmres", "direct", "auto"}, optional
            By default "cg", or "gmres" where there is advection. `gmres` keeps up to 31 vectors more, `bicgstab` three.
            "direct" is `krylov.direct`, to rounding whatever `cg_rtol` is, at any Peclet number; with stored matrices
            of their own alone. "auto" takes it up to 800 nodes on the CPU, where it is faster.
        u0 : Ensemble or array, shape (n_nodes,), optional
            Where to start, boundary values aside (`krylov.WarmStart`). Tolerances stay those of the usual start, zero
            inside: a good guess saves iterations and costs no accuracy.
        operator : {"stored", "affine", "matrix-free"}
            "stored": a matrix per sample, assembled. Without source and advection two others give the same answer, to
            the tolerance: "affine" stores one matrix for each term of the expansion and none per sample
            (`AffineMatrix`); "matrix-free" stores the diffusivity at the Gauss points (`DiffusionOperator`).
        preconditioner : Multigrid, optional
            Which matrix the multigrid hierarchy is built of, and the type that it computes in.

        Returns
        -------
        DiffusionResult

        Raises
        ------
        MemoryError
            If the samples do not fit the memory, before any work; the message says how many would.
        ValueError
            As for `check`; or if `u0` does not fit, or `solver` is "cg" and `advection` is not 0; or if an operator
            other than "stored" is asked for with a source, because the matrix then depends on u, or with advection, or
            "affine" for a coefficient that is not; or if `solver` is "direct" with another operator, a preconditioner
            or coupled samples.
        """
        discrete = self.discretization
        with discrete.alike():
            multigrid, solver = self._choices(operator, preconditioner, coupling, solver)
        parameters = self._parameters(y, "solve")
        key = (parameters.shape[1], parameters.dtype)
        sample_set = _sample_set(key[0], y, u0)
        with discrete.alike():
            if key not in self._workspaces:
                self._prepare(*key, multigrid, operator)
            start_values = discrete.initial_guess(*key)
            guess = start_values if u0 is None else self._start(u0, start_values)
        work = self._workspaces.pop(key, Workspace())
        options = {"rtol": cg_rtol, "max_iterations": max_cg_iterations, "coupling": coupling}
        if solver == "direct":
            linear_solver = LinearSolver(_directly, lambda A: None, options)
        else:
            linear_solver = LinearSolver(
                SOLVERS[solver], lambda A: self._hierarchies.preconditioner(multigrid, A, work.hierarchies), options
            )
        start = time.perf_counter()
        system: StoredSystem | OperatorSystem
        if operator == "stored":
            system = StoredSystem(self.discretization, parameters, work, linear_solver)
        else:
            system = OperatorSystem(self.discretization, parameters, operator, linear_solver)
        reference = None if u0 is None else system.reference(start_values)
        with in_space(discrete.space):
            outcome = newton(
                system.residual, system.jacobian, Ensemble(guess, sample_set), solver=system.solve, rtol=rtol,
                reference=reference, max_iterations=max_newton_iterations,
            )  # fmt: skip
            u = outcome.u.samples
            squares = to_numpy(dot(u, u, None))
        response = np.where(outcome.converged, squares / self.mesh.n_nodes, np.nan).astype(squares.dtype)
        self._workspaces[key] = work
        system.seconds["total"] = time.perf_counter() - start
        plain = not isinstance(y, Ensemble)
        of_samples = response[0] if plain else Ensemble(asarray_like(response, u), sample_set)
        counts = outcome.iterations, np.asarray(outcome.linear_iterations)
        return DiffusionResult(u[:, 0] if plain else outcome.u, of_samples, *counts, outcome, system.seconds)

    def _choices(
        self, operator: str, preconditioner: Multigrid | None, coupling: str, solver: str | None
    ) -> tuple[Multigrid, str]:
        """The preconditioner and the name of the linear solver, or an error if the choices do not go together."""
        name = "RandomDiffusion.solve"
        multigrid = require_operator(operator, preconditioner, self.discretization)
        own = operator == "stored" and multigrid.matrix == "sample" and solver not in ("direct", "auto")
        _check.require(
            self.partition is None or own, name, "comm",
            "be None for operators that are not stored, the hierarchy of the mean, and the solvers 'direct' and 'auto'",
            f"operator={operator!r}, {multigrid}, solver={solver!r}",
        )  # fmt: skip
        can_be_direct = operator == "stored" and preconditioner is None and coupling == "independent"
        chosen = self._solver(solver, can_be_direct)
        _check.require(
            self.advection == 0.0 or chosen != "cg", name, "advection",
            "be 0 for solver 'cg', because conjugate gradients need a symmetric matrix", f"{self.advection:g}",
            "Use 'gmres' or 'bicgstab'.",
        )  # fmt: skip
        return multigrid, chosen

    def _prepare(self, n_samples: int, dtype: np.dtype, multigrid: Multigrid, operator: str) -> None:
        """Before the first solve of so many samples: is there memory for it; start to compile a device's kernels."""
        copies = multigrid.matrix == "sample" and multigrid.dtype != dtype
        copy_dtype = np.float32 if multigrid.dtype is None else multigrid.dtype
        copy_itemsize = np.dtype(copy_dtype).itemsize if copies else 0
        require_memory(self.discretization, n_samples, dtype.itemsize, operator, copy_itemsize)
        if operator == "stored" and not isinstance(self.discretization.reference_array, np.ndarray):
            compile_device_kernels(n_samples, dtype, reacts=self.discretization.source != 0.0)

    def _solver(self, solver: str | None, can_be_direct: bool) -> str:
        """The name of the linear solver that is taken."""
        name = "RandomDiffusion.solve"
        usual = "gmres" if self.advection else "cg"
        solver = usual if solver is None else _check.one_of(solver, (*SOLVERS, "direct", "auto"), name, "solver")
        if solver == "auto":
            on_host = isinstance(self.discretization.reference_array, np.ndarray)
            return "direct" if can_be_direct and on_host and self.mesh.n_nodes <= DIRECT_ROWS else usual
        advice = 'Use operator="stored" and coupling="independent".'
        wanted = "not be 'direct' with another operator, a preconditioner or coupled samples"
        _check.require(can_be_direct or solver != "direct", name, "solver", wanted, repr(solver), advice)
        return solver

    def _start(self, u0: Any, start: Any) -> Any:
        """`u0` with the boundary values and the shape of the usual start."""
        state = real_samples(u0, "RandomDiffusion.solve", "u0")
        fits = state.shape[:-1] == start.shape[:1] and state.shape[-1] in (1, start.shape[1])
        wanted = f"have shape {start.shape[:1]} and {start.shape[1]} samples, or 1"
        seen = f"shape {state.shape[:-1]} with {state.shape[-1]} samples"
        _check.require(fits, "RandomDiffusion.solve", "u0", wanted, seen)
        xp, fixed = array_namespace(start), asarray_like(self.discretization.fixed[: start.shape[0], None], start)
        return xp.astype(xp.where(fixed, start, asarray_like(state, start)), start.dtype, copy=False)

    def operator(self, kappa: Any) -> DiffusionOperator:
        """The diffusion operator of any coefficient, not formed as a matrix.

        Parameters
        ----------
        kappa : Ensemble or array, shape (8 * n_cells,), above zero
            The diffusivity at Gauss point q of cell e in row 8 e + q; see `HexMesh.gauss_point`.

        Returns
        -------
        DiffusionOperator, shape (n_nodes, n_nodes)
            Rows and columns of nodes at z = 0 and z = 1 are those of the identity.

        Raises
        ------
        ValueError
            If `kappa` does not fit or is not above zero.
        """
        name = "RandomDiffusion.operator"
        _check.require(self.partition is None, name, "the problem", "be one without comm", repr(self.partition))
        reference_array = self.discretization.reference_array
        samples = require_coefficient(kappa, self.mesh.n_cells, reference_array, name)
        return DiffusionOperator(self.discretization, Ensemble(samples, set_of(kappa)))

    def _parameters(self, y: Any, function: str) -> np.ndarray:
        """The checked parameters, shape (n_terms, n_samples)."""
        function = f"RandomDiffusion.{function}"
        with self.discretization.alike():
            samples = self._host(real_samples(y, function, "y"), function)
            shape, seen = (self.field.n_terms,), samples.shape[:-1]
            advice = "For many samples, pass an Ensemble, its samples in the last axis."
            _check.require(seen == shape, function, "y", f"have shape {shape}", seen, advice)
            dtype = samples.dtype if samples.dtype == np.float32 else np.float64
            samples = np.ascontiguousarray(samples, dtype=dtype)
        self.discretization.require_same(samples, function, "y")
        self.discretization.require_positive(samples, function)
        return samples

    def _host(self, samples: Any, function: str) -> np.ndarray:
        """Parameters as NumPy arrays, from whichever of the two libraries they come."""
        libraries = sorted(
            {library_and_device(a)[0].split(".")[-1] for a in (np.empty(0), self.discretization.reference_array)}
        )
        library = library_and_device(samples)[0].split(".")[-1]
        if library not in libraries:
            raise TypeError(_check.message(function, "y", f"hold arrays of {' or '.join(libraries)}", library))
        return to_numpy(samples)

    def _values_of(self, out: Any, state: Array, symmetric: bool) -> Array:
        """The buffer that `out` offers."""
        if out is None:
            return None
        kind, rows = self.discretization.stored_as(symmetric)
        shape = rows, state.shape[1]
        _check.require_type(out, kind, "RandomDiffusion.assemble", "out", f"be a {kind.__name__}")
        _check.require(
            out.values.shape == shape and out.dtype == state.dtype,
            "RandomDiffusion.assemble",
            "out",
            f"have {shape[0]} values, {shape[1]} samples and values of type {state.dtype}",
            out,
        )
        return out.values

    def _fit(self, y: np.ndarray, u: Any) -> tuple[np.ndarray, Array]:
        """Parameters and state with one dtype and one number of samples."""
        state = real_samples(u, "RandomDiffusion.assemble", "u")
        n_samples = max(y.shape[1], state.shape[-1])
        good = state.shape[:-1] == (self.discretization.n_rows,) and {y.shape[1], state.shape[-1]} <= {1, n_samples}
        wanted = f"have shape ({self.discretization.n_rows},) and {y.shape[1]} samples, or 1"
        seen = f"shape {state.shape[:-1]} with {state.shape[-1]} samples"
        _check.require(good, "RandomDiffusion.assemble", "u", wanted, seen)
        dtype = np.result_type(y.dtype, state.dtype)
        wide = (array_namespace(a).broadcast_to(a, (a.shape[0], n_samples)) for a in (y, state))
        y, state = (contiguous(a, dtype) for a in wide)
        return y, asarray_like(state, self.discretization.reference_array)


def over(comm: Any, function: str) -> contextlib.AbstractContextManager[None]:
    """A context for the check of arguments: an error on one rank of `comm` is raised on all."""
    if comm is None:
        return contextlib.nullcontext()
    from ensemble.distributed.agreement import agreement, require_communicator

    require_communicator(comm, function)
    return agreement(comm)


def over_ranks(comm: Any, domains: int | None, mesh: HexMesh, *others: Any) -> Any:
    """The discretization whose nodes are shared out by coordinates."""
    from ensemble.apps.fem.rank_discretization import RankDiscretization
    from ensemble.distributed import Partition

    points = HexMesh(mesh.axes).points if comm.rank == 0 else None
    partition = Partition(mesh.n_nodes, comm, domains, coordinates=points, method="coordinates")
    return RankDiscretization(partition, mesh, *others)


def _sample_set(n_samples: int, *operands: Any) -> Any:
    """The one sample set that the operands of `n_samples` samples carry, or None."""
    ensembles = (operand for operand in operands if isinstance(operand, Ensemble) and operand.n_samples == n_samples)
    return functools.reduce(common_set, (x.sample_set for x in ensembles), None)


def _directly(A: Any, r: Any, *, rtol: float, M: None = None, **options: Any) -> SolveResult:
    """`direct`, given the options of a Krylov method, of which it needs `rtol` alone."""
    solved: SolveResult = direct(A, r, rtol=rtol)
    return solved
