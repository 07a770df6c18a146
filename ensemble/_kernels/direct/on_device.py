"""Factorisation and solution on a device: which form a graph takes, and what goes to the CPU."""

from __future__ import annotations

from typing import Any

from ensemble._backend import asarray_like, to_numpy
from ensemble._kernels.direct.chains import chain_factorized, chain_solved
from ensemble._kernels.direct.elimination import Elimination
from ensemble._kernels.direct.factors import factorized
from ensemble._kernels.direct.levels import MOST_MULTIPLY_ADDS, factorized_by_levels, solved_by_levels
from ensemble._kernels.direct.triangular import factor_solve

__all__ = ["factorized_with_solution"]


def factorized_with_solution(values: Any, plan: Elimination, b: Any) -> tuple[Any, Any, Any]:
    """The values of the factorisation, zeros or NaN, and x in ``A x = b``, in one pass over the values.

    `b` has shape (n, n_samples) and the type of `values`; None for no solution. Bits are those of `factorized` and
    `factor_solve` one after the other.
    """
    if plan.multiply_adds > MOST_MULTIPLY_ADDS:
        made, broken = (
            asarray_like(each, values) for each in factorized.implementations["numba"](to_numpy(values), plan, None)
        )
        return made, broken, None if b is None else factor_solve(made, plan, b[:, None, :], False, None)[:, 0, :]
    return chain_factorized(values, plan, b) or factorized_by_levels(values, plan, b)


@factorized.register("cuda")
def _(values: Any, plan: Elimination, out: Any) -> Any:
    made, broken, _ = factorized_with_solution(values, plan, None)
    if out is None:
        return made, broken
    out[...] = made
    return out, broken


@factor_solve.register("cuda")
def _(factors: Any, plan: Elimination, b: Any, transposed: bool, out: Any) -> Any:
    found = chain_solved(factors, plan, b, transposed, out)
    return solved_by_levels(factors, plan, b, transposed, out) if found is None else found
