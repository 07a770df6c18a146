"""Print the files that a reader opens to follow one call from its public name to the code that does the work.

    python -m tools.walks [NAME ...]

For each call the functions on Python's stack are recorded when the work is reached: a kernel, or a write to disk. The
files of these functions, in their order, are the walk; CONTRIBUTING.md has the numbers.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import ensemble as en
from ensemble import distributed, ode
from ensemble.apps import fem
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter
from ensemble.gallery import poisson
from ensemble.krylov import cg
from ensemble.multigrid import smoothed_aggregation

ROOT = Path(en.__file__).parent


def conjugate_gradients() -> None:
    A = poisson((24, 24))
    cg(A, np.ones(A.shape[0]), M=smoothed_aggregation(A, coarse_size=20)).raise_if_failed()


def study() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = en.vectorize(lambda x: 2.0 * x.load)
        en.propagate(model, en.Inputs(load=stats.norm(1.0, 0.2)), 8, seed=1, progress=False, store=f"{folder}/run.zarr")


def filtered() -> None:
    one = np.eye(1)
    kalman_filter(LinearGaussianModel(one, one, one, one, np.zeros(1), one), np.ones((5, 1)))


def decay() -> None:
    ode.solve(lambda t, y, p, xp: (-p[0] * y[0],), [1.0], (0.0, 1.0), p=en.Ensemble(np.array([[1.0, 2.0]])))


def assembled() -> None:
    form = fem.bilinear_form(lambda u, v, w: w.kappa * fem.dot(fem.grad(u), fem.grad(v)))
    form.assemble(fem.TetMesh.box(2), kappa=1.0)


def distributed_rows() -> None:
    A = poisson((20, 20)).to_scipy()
    partition = distributed.Partition(400, distributed.serial(), domains=2, graph=A)
    rows = distributed.DistributedCrsMatrix(partition, A[partition.rows])
    cg(rows, partition.scatter(np.ones(400))).raise_if_failed()


WALKS: dict[str, tuple[Callable[[], None], str, str]] = {
    "cg": (conjugate_gradients, "_kernels/multigrid/relaxation.py", "_run_chebyshev"),
    "propagate": (study, "uq/store/journal.py", "_write"),
    "kalman_filter": (filtered, "_compile/work_sharing.py", "__call__"),
    "ode.solve": (decay, "_compile/work_sharing.py", "__call__"),
    "form": (assembled, "_kernels/fem/thread_parts.py", "__call__"),
    "distributed rows": (distributed_rows, "_kernels/sparse/crs.py", "spmv_dot_numba"),
}
"""What is called, and the file and function in which its work begins: compiled code is called, or a file written."""


def stacks(call: Callable[[], None]) -> list[list[tuple[str, str]]]:
    """Run `call`; list (file, function) from it to each function of the library that runs, once each."""
    found: dict[tuple[tuple[str, str], ...], None] = {}

    def note(frame: Any, event: str, argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(str(ROOT)):
            return
        stack, at = [], frame
        while at is not None and at.f_code is not call.__code__:
            if at.f_code.co_filename.startswith(str(ROOT)):
                stack.append((str(Path(at.f_code.co_filename).relative_to(ROOT)), at.f_code.co_name))
            at = at.f_back
        found[tuple(reversed(stack))] = None

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [list(stack) for stack in found]


def main() -> None:
    """Print the walks that are named, or all."""
    for name in sys.argv[1:] or WALKS:
        call, *work = WALKS[name]
        call()  # the second call loads and compiles nothing
        walk = max((stack for stack in stacks(call) if stack and stack[-1] == tuple(work)), key=len)
        files = list(dict.fromkeys(file for file, _ in walk))
        print(f"{name}: {len(files)} files, {len(walk)} functions")
        for file in files:
            print(f"    {file}: {', '.join(dict.fromkeys(function for at, function in walk if at == file))}")


if __name__ == "__main__":
    main()
