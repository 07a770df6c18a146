"""What a user's type checker sees of public functions: mypy reads this file with `ensemble`, and nothing runs it."""

from typing import Any, assert_type

import numpy as np

import ensemble as en
from ensemble import ode
from ensemble._typing import PlainArray
from ensemble.apps.kalman import FilterResult, LinearGaussianModel, kalman_filter
from ensemble.krylov import DirectResult, SolveResult, bicgstab, cg, direct, gmres, minres
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import Hierarchy, smoothed_aggregation
from ensemble.ode import OdeResult
from ensemble.uq import UqResult

Numbers = np.ndarray[tuple[Any, ...], np.dtype[Any]]


def arrays(x: en.Ensemble) -> None:
    """Operators and methods of an ensemble, and statistics over samples."""
    for result in (x + 1, 1 - x, x < 2, -x, x[0], x @ x):
        assert_type(result, en.Ensemble)
    for result in (x.mean(), x.std(), x.sum(), x.max(), x.reshape(-1), x.astype(np.float32)):
        assert_type(result, en.Ensemble)
    assert_type(x.shape, tuple[int, ...])
    assert_type(en.sample_mean(x), PlainArray)
    assert_type(en.sample_quantile(x, 0.5), PlainArray)


def solvers(A: CrsMatrix, b: en.Ensemble) -> None:
    """Matrices, preconditioners and solvers."""
    M = smoothed_aggregation(A)
    assert_type(M, Hierarchy)
    for result in (cg(A, b, M=M, rtol=1e-6), minres(A, b), gmres(A, b, restart=20), bicgstab(A, b)):
        assert_type(result, SolveResult)
    assert_type(direct(A, b), DirectResult)
    cg(A, b, tol=1e-6)  # type: ignore[call-arg]


def studies(inputs: en.Inputs) -> None:
    """A study and its statistics."""
    study = en.propagate(lambda s: {"u": s.a}, inputs, 16)
    assert_type(study, UqResult)
    assert_type(study.mean("u"), Numbers)
    assert_type(study.quantile("u", 0.5), Numbers)


def applications(model: LinearGaussianModel, y: np.ndarray) -> None:
    """Differential equations and filters."""
    solution = ode.solve(lambda t, u: -u, np.ones(2), [0.0, 1.0], rtol=1e-6)
    assert_type(solution, OdeResult)
    assert_type(solution.y, en.Ensemble)
    ode.solve(lambda t, u: -u, np.ones(2), [0.0, 1.0], rtol=None)  # type: ignore[arg-type]
    assert_type(kalman_filter(model, y), FilterResult)
