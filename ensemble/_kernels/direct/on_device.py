"""Factorisation and solution together, and which form a graph takes on a device.

Bytes that must move are those of a factorisation and of a substitution, less one reading of what lies left of the
diagonal.
"""

from __future__ import annotations

from typing import Any

from ensemble._backend import asarray_like, to_numpy
from ensemble._compile.registry import into, kernel
from ensemble._kernels.direct.bands import band_factorized, band_solved
from ensemble._kernels.direct.chains import chain_factorized, chain_solved
from ensemble._kernels.direct.forms.factors import factorized
from ensemble._kernels.direct.forms.triangular import factor_solve
from ensemble._kernels.direct.levels import MOST_MULTIPLY_ADDS, factorized_by_levels, solved_by_levels
from ensemble._kernels.direct.slots import slots_factorized, slots_solved
from ensemble._kernels.direct.symbolic.elimination import Elimination
from ensemble._kernels.sparse.complex_numbers import is_complex

__all__ = ["factorized_with_solution"]


@kernel
def factorized_with_solution(values, plan, b):
    """`factorized`, and x in ``A x = b``: b of shape (n, n_samples) and the type of `values`, or None."""
    made, broken = factorized(values, plan, None)
    return made, broken, None if b is None else factor_solve(made, plan, b[:, None, :], False, None)[:, 0, :]


factorized_with_solution.register("numba")(factorized_with_solution.reference)


@factorized_with_solution.register("cuda")
def _(values: Any, plan: Elimination, b: Any) -> Any:
    """In one pass over the values, with the bits of two."""
    if plan.multiply_adds > MOST_MULTIPLY_ADDS:
        found = factorized.implementations["numba"](to_numpy(values), plan, None)
        made, broken = (asarray_like(each, values) for each in found)
        return made, broken, None if b is None else _solved(made, plan, b[:, None, :], False, None)[:, 0, :]
    of_real = () if is_complex(values) else (chain_factorized, band_factorized, slots_factorized)
    for form in (*of_real, factorized_by_levels):
        found = form(values, plan, b)
        if found is not None:
            break
    return found


@factorized.register("cuda", complex_numbers=True)
def _(values: Any, plan: Elimination, out: Any) -> Any:
    made, broken, _ = factorized_with_solution.implementations["cuda"](values, plan, None)
    return into(out, made), broken


@factor_solve.register("cuda", complex_numbers=True)
def _solved(factors: Any, plan: Elimination, b: Any, transposed: bool, out: Any) -> Any:
    of_real = () if is_complex(factors) else (chain_solved, band_solved, slots_solved)
    for form in (*of_real, solved_by_levels):
        found = form(factors, plan, b, transposed, out)
        if found is not None:
            break
    return found
