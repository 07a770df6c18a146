"""Text that the docstrings of all Krylov methods have in common, written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

__all__ = ["TEXTS", "documented"]

TEXTS = {
    "other libraries": """
Arrays of PyTorch, JAX and other libraries on the CPU are solved by NumPy's kernels, with derivatives by A and b;
those of a sample that does not converge are NaN.
""",
    "hermitian": """
A complex A must be Hermitian, not symmetric: of inner products the real parts count.
""",
    "complex": """
Inner products of complex vectors are complex: the iterations are those of other implementations.
""",
    "range of numbers": """
Where inner products are outside the range of numbers (A of size 1e200 or 1e-200, say), a sample is solved again in
units of its own, in which `callback` counts iterations anew; coupled samples are flagged.
""",
    "system": """
A : CrsMatrix, SciPy sparse matrix or LinearOperator, shape (n, n)
b : Ensemble or array, shape (n,), or (n / c, c) for a matrix of c x c blocks, which x then has
    An array of shape (n, 1) is taken for its column. Where b is zero so is x, whatever `x0` is.
""",
    "x0": """
x0 : Ensemble or array, shape (n,), optional
    Starting guess; zero by default.
""",
    "tolerances": """
rtol, atol : float or array, shape (n_samples,), dimensionless and in units of b
    By default ``rtol`` is 1e-8, and 1e-5 where the vectors are float32.
""",
    "run": """
compact : bool
    Take finished samples out of vectors and matrices when at least half are done and more than a few iterations
    lie ahead. Changes no result.
callback : callable, optional
    Called as ``callback(iteration, residual_norms)`` after each iteration, norms of shape (n_samples,). Where it
    returns True the samples that still run end as ``stopped``.
""",
    "raises": """
Raises
------
ValueError
    If shapes or numbers of samples do not fit, or a tolerance is negative.
TypeError
    If A is no operator.
""",
}
"""Lines ``{name}`` of a docstring stand for these."""

F = TypeVar("F", bound=Callable[..., object])


def documented(function: F) -> F:
    """Replace the lines ``{name}`` of a function's docstring by the texts of these names, at their indentation."""
    lines = []
    for line in inspect.cleandoc(function.__doc__ or "").splitlines():
        stripped = line.strip()
        named = stripped.startswith("{") and stripped.endswith("}")
        lines += TEXTS[stripped[1:-1]].strip("\n").splitlines() if named else [line]
    function.__doc__ = "\n".join(lines) + "\n" if lines else None  # without lines: Python runs without docstrings
    return function
