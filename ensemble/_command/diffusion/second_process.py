"""Compilation in two processes: Numba compiles one function at a time in each."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from types import TracebackType
from typing import Self

from ensemble._command.shared.ranks import launched
from ensemble._compile.cache_folder import is_marked, mark

__all__ = ["OneSampleCompilation", "start"]

WARM_UP_CELLS = 20
"""Enough for three multigrid levels: the third computes with the kernels of all later ones."""

PHYSICS = ("terms", "correlation_length", "mean", "variance", "source", "grading", "mode_order", "rtol")
"""Options that choose kernels."""

JOB = "diffusion"


def start(options: argparse.Namespace) -> OneSampleCompilation:
    """The second process of a run with these options; it starts before the imports of the first."""
    cells = options.cells
    options.warm_up_cells = min(WARM_UP_CELLS, max(cells) if isinstance(cells, tuple) else cells)
    return OneSampleCompilation(options, options.warm_up_cells)


class OneSampleCompilation:
    """A second process that compiles the kernels of one sample while this one compiles those of ensembles.

    It solves a small problem for one sample, and its kernels are kept on disk. It is started where kernels of these
    sources were not compiled before and where there are two cores. A context manager; the process ends with it.

    Parameters
    ----------
    options : argparse.Namespace
        Those of ``ensemble diffusion``.
    cells : int
        Cells of the small problem along each axis.
    """

    def __init__(self, options: argparse.Namespace, cells: int) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        wanted = options.scalar_runs > 0 and options.backend == "numpy" and (os.cpu_count() or 1) > 1
        # A child of a rank would be taken for a rank.
        if wanted and not launched() and not getattr(options, "mpi", False) and not is_marked(JOB):
            words = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in PHYSICS]
            words += [f"--cells={cells}", "--samples=1", "--ensemble-size=1", "--scalar-runs=0", "--quiet", "--json"]
            nowhere = subprocess.DEVNULL
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ensemble", "diffusion", *words], stdin=nowhere, stdout=nowhere, stderr=nowhere,
                env={**os.environ, "NUMBA_NUM_THREADS": "1"},
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until the kernels are on disk."""
        if self.process is not None and self.process.wait() == 0:
            mark(JOB)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
