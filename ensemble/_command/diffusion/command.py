"""``ensemble diffusion``: statistics of a diffusion problem whose diffusivity is a random field."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._backend import available_bytes
from ensemble._command.diffusion.record import Record
from ensemble._command.diffusion.report import as_json, as_table
from ensemble._command.diffusion.sampling import MOST_SOBOL_TERMS, uniform_points
from ensemble._command.shared.backend import require_backend
from ensemble._command.shared.files import require_different, require_plot, require_writable, save_figure
from ensemble._command.shared.progress import Progress
from ensemble._command.shared.ranks import on_ranks
from ensemble._files import write_arrays
from ensemble._progress import say
from ensemble.apps.fem import RandomDiffusion
from ensemble.apps.fem.solves.device_kernels import compile_device_kernels
from ensemble.distributed.agreement import agreement
from ensemble.gallery import poisson
from ensemble.krylov import cg
from ensemble.linalg import CrsMatrix
from ensemble.multigrid.coarse import CoarseSolver
from ensemble.scalar import Ensemble

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble diffusion``, on the ranks of a launcher of MPI where one started it."""
    return on_ranks(options, carry_out)


def carry_out(options: argparse.Namespace, comm: Any) -> int:
    """Solve and report; over the ranks of `comm`, None for none, of which the first reports."""
    first = comm is None or comm.rank == 0
    with contextlib.nullcontext() if comm is None else agreement(comm):
        if first:
            require_writable("--out", options.out, (".npz",))
            require_plot("--plot", options.plot)
            require_different(out=options.out, plot=options.plot)
        require_reachable(options.rtol)
        require_backend(options.backend)
        require_sampler(options)
    options.output.expect(options.out, options.plot)
    start = time.perf_counter()
    record = prepare(options, comm)
    record.seconds["prepare"] = time.perf_counter() - start
    with Progress(options.samples, quiet=options.quiet) as progress:
        try:
            solve_all(record, progress)
        except KeyboardInterrupt:
            record.interrupted = True
            progress.say(f"interrupted: {record.done} of {options.samples} samples are done")
    if record.done == 0:
        return 130
    if first:
        try:
            options.output.print(json.dumps(as_json(record), allow_nan=False) if options.json else as_table(record))
        finally:
            write_files(record)
    failed = record.done - record.good.size
    if failed:
        numbers = np.flatnonzero(~record.converged[: record.done])
        say(f"{options.prog}: {failed} samples did not converge: {_check.samples_text(numbers)}")
    return 130 if record.interrupted else 1 if failed else 0


def require_reachable(rtol: float) -> None:
    """Raise unless a residual can be reduced by the factor `rtol`, and has to be."""
    if not np.finfo(np.float64).eps <= rtol < 1.0:
        raise ValueError(f"--rtol must be below 1, and not below float64's 2.2e-16; got {rtol:g}.")


def require_sampler(options: argparse.Namespace) -> None:
    """Raise unless the sampler can draw points of so many terms, and the memory holds them."""
    if options.sampler == "sobol" and options.terms > MOST_SOBOL_TERMS:
        seen = f"{options.terms}. Take --sampler monte-carlo"
        raise ValueError(f"--terms must be at most {MOST_SOBOL_TERMS} with Sobol' points; got {seen}.")
    n, nodes = options.samples, np.max(options.cells) + 1
    needed, available = 8 * n * (2 * options.terms + int(nodes) + 6), available_bytes(np.empty(0))
    if needed > available:
        seen = f"{n:,} samples, which need at least {needed / 1e9:.1f} GB"
        raise MemoryError(f"--samples must fit the {available / 1e9:.1f} GB that are free; got {seen}. Take fewer.")


def problem_of(options: argparse.Namespace, cells: int | tuple[int, ...], comm: Any) -> RandomDiffusion:
    """The problem that the options describe, on `cells`; over the ranks of `comm`."""
    return RandomDiffusion(
        cells,  # type: ignore[arg-type]
        n_terms=options.terms,
        correlation_length=options.correlation_length,
        mean=options.mean,
        variance=options.variance,
        source=options.source,
        grading=options.grading,
        mode_order=options.mode_order,
        backend=options.backend,
        comm=comm,
    )


def prepare(options: argparse.Namespace, comm: Any) -> Record:
    """Set up the problem and its samples, and refuse what cannot be solved, before any solve.

    On a device the compilation of its kernels starts here, in threads.
    """
    n = options.samples
    # A short run needs no wide ensemble; a power of two keeps it one tile of SIMD lanes.
    size = min(options.ensemble_size, 1 << (n - 1).bit_length())
    if options.backend == "cupy":
        for n_samples in (size, 1) if options.scalar_runs else (size,):
            compile_device_kernels(n_samples, np.dtype(np.float64), reacts=options.source != 0.0)
    problem = problem_of(options, options.cells, comm)
    points = uniform_points(n, options.terms, options.sampler, options.seed)
    problem.check(Ensemble(points))
    n_z = problem.mesh.cells[2] + 1

    def whole() -> np.ndarray:
        return np.zeros(n, dtype=np.int64)

    return Record(
        problem,
        options,
        size,
        points,
        np.full(n, np.nan),
        whole(),
        whole(),
        np.zeros(n, dtype=bool),
        np.zeros((n_z, n)),
        comm,
    )


def solve_all(record: Record, progress: Progress) -> None:
    """Solve ensemble after ensemble; then some samples alone.

    The first ensemble, and one sample alone, compile kernels or load them, and write memory for the first time: their
    time is that of compiling. A run of one ensemble compiles with a small problem instead.
    """
    options, points, size = record.options, record.points, record.ensemble_size
    tolerances = {"rtol": options.rtol, "cg_rtol": options.rtol}
    line = middle_line(record.problem)
    several = options.samples > size

    def solve(first: int, timed: bool) -> None:
        n = min(size, options.samples - first)
        # The last ensemble is filled with copies of its last sample, discarded later: no further kernel width.
        chosen = np.minimum(np.arange(first, first + size), first + n - 1)
        result = record.problem.solve(Ensemble(np.ascontiguousarray(points[:, chosen])), **tolerances)
        record.keep(result, first, n, line, timed)

    def solve_alone(i: int) -> float:
        return record.problem.solve(Ensemble(np.ascontiguousarray(points[:, i : i + 1])), **tolerances).seconds["total"]

    start = time.perf_counter()
    progress.say("compiling kernels, or loading them where they were compiled before ...")
    try:
        if several:
            solve(0, timed=False)
        else:
            warm_up(problem_of(options, options.warm_up_cells, record.comm), size, tolerances)
        if options.scalar_runs:
            options.beside.wait()
            solve_alone(0)
    finally:
        record.seconds["compile"] = time.perf_counter() - start
    progress.restart()
    if several:
        progress.advance(record.done, record.iterations[: record.done])
    for first in range(record.done, options.samples, size):
        before = record.done
        solve(first, timed=True)
        progress.advance(record.done - before, record.iterations[: record.done])
    record.scalar_seconds += [solve_alone(i) for i in range(min(options.scalar_runs, options.samples))]


def warm_up(problem: RandomDiffusion, n_samples: int, tolerances: dict[str, Any]) -> None:
    """Compile the kernels of a solve on a small problem.

    The direct solver of coarsest levels comes first, and conjugate gradients without a hierarchy: when the process of
    `OneSampleCompilation` comes to the graph functions of a hierarchy, its parent has compiled them, and the parent
    finds those of the direct solver, which it needs last.
    """
    warm_up_coarsest(n_samples)
    y = Ensemble(np.zeros((problem.field.n_terms, n_samples)))
    if problem.discretization.keeps_upper(n_samples):
        matrix, residual = problem.assemble(y, symmetric=True)
        cg(matrix, residual, max_iterations=2)
    problem.solve(y, **tolerances)


def warm_up_coarsest(n_samples: int) -> None:
    """Compile what factorises a coarsest matrix: those of a small problem are inverted instead."""
    graph, values = (matrix := poisson((9, 9))).graph, matrix.values.astype(np.float32)
    coarsest = CrsMatrix(graph, np.repeat(values, n_samples, axis=1))
    solver = CoarseSolver(coarsest)
    solver.amplification(coarsest)
    solver.apply(np.zeros((graph.shape[0], n_samples), np.float32), None)


def middle_line(problem: RandomDiffusion) -> np.ndarray:
    """The nodes of the mesh line along z that lies nearest to the centre."""
    x, y, z = problem.mesh.axes
    i, j = (int(np.argmin(np.abs(axis - 0.5))) for axis in (x, y))
    return i + x.size * (j + y.size * np.arange(z.size))


def write_files(record: Record) -> None:
    """Write the files of --out and --plot."""
    options, n = record.options, record.done
    if options.out is not None:
        arrays: dict[str, Any] = {
            "y": record.points[:, :n],
            "response": record.response[:n],
            "iterations": record.iterations[:n],
            "newton_iterations": record.newton_iterations[:n],
            "converged": record.converged[:n],
            "z": record.problem.mesh.axes[2],
            "u_along_z": record.profile[:, :n],
            "summary": np.array(json.dumps(as_json(record), allow_nan=False)),
        }
        options.output.write(options.out, lambda: write_arrays(options.out, arrays))
    if options.plot is not None:
        from ensemble._command.diffusion.plot import figure  # Matplotlib takes a second to import

        options.output.write(options.plot, lambda: save_figure(figure(record), options.plot))
