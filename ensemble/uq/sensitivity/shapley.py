"""`shapley_effects`: the parts of an output's variance that dependent inputs have."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, Literal

import numpy as np

from ensemble._check import check_level, integer
from ensemble._keywords import explains_calls
from ensemble._typing import Executor
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.sensitivity.indices import ShapleyEffects
from ensemble.uq.sensitivity.row_plan import run_rows
from ensemble.uq.sensitivity.rows import PermutedRows
from ensemble.uq.sensitivity.shapley_sums import ShapleySums
from ensemble.uq.sensitivity.sobol_indices import random_inputs
from ensemble.uq.study.declared import Outputs

__all__ = ["shapley_effects", "sums_of_rows"]


@explains_calls("shapley_effects")
def shapley_effects(
    model: Callable[[Any], Any],
    inputs: Inputs,
    n: int,
    *,
    seed: int | None = None,
    sampler: Any = "sobol",
    ensemble_size: int | Literal["auto"] = "auto",
    backend: str = "numpy",
    on_failure: str | None = None,
    store: str | PathLike[str] | None = None,
    resume: bool | str = False,
    retry_failed: bool | int = False,
    sample_seconds: float | None = None,
    progress: bool = True,
    executor: Executor | None = None,
    level: float = 0.95,
    outputs: Outputs | None = None,
) -> ShapleyEffects:
    """Compute Shapley effects of every output: shares of the variance that add up to 1, for dependent inputs too.

    The model runs on ``n * (D + 1)`` samples for D inputs that are not constant. For independent inputs an effect lies
    between the first and the total Sobol' index.

    Parameters
    ----------
    model : callable
        As in `propagate`.
    inputs : Inputs
        With or without correlation.
    n : int
        The number of rows, of D + 1 samples each; Sobol' points are balanced for 8 times a power of two.
    seed, sampler, ensemble_size, backend, on_failure, store, resume, retry_failed, sample_seconds, progress, executor
        As in `sobol_indices`.
    level, outputs
        As in `sobol_indices`.

    Returns
    -------
    ShapleyEffects
        ``.effects[name]``, shape (D, \\*shape), ``.interval(name)``, ``.bounds(name)``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of range; if no row is without failures.
    SampleError
        If samples failed and `on_failure` is "raise".

    Notes
    -----
    The effect of an input is the mean, over all orders of the inputs, of what it adds to the part of the variance that
    the inputs before it explain [1]_. Each row has a random order of its own, as the permutations of [2]_. A row goes
    from one point to another one input after the other; those not yet reached are drawn given those that were, through
    the Gaussian copula. Explained variances are of the pick-freeze form [3]_, as differences of Jansen's squares: no
    inner loop, and the effects add up to 1 by construction. For independent inputs this is the sampling of [4]_.

    References
    ----------
    .. [1] Owen (2014), SIAM/ASA Journal on Uncertainty Quantification 2(1), 245-251.
    .. [2] Song, Nelson, Staum (2016), SIAM/ASA Journal on Uncertainty Quantification 4(1), 1060-1083.
    .. [3] Broto, Bachoc, Depecker (2020), SIAM/ASA Journal on Uncertainty Quantification 8(2), 693-716.
    .. [4] Goda (2021), Reliability Engineering and System Safety 213, 107794.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> inputs = en.Inputs(a=stats.norm(), b=stats.norm(), correlation={("a", "b"): 0.9})
    >>> effects = en.uq.shapley_effects(lambda x: {"y": x.a + x.b}, inputs, 1024, seed=5, progress=False)
    >>> effects.effects["y"].round(1)
    array([0.5, 0.5])
    """
    function = "shapley_effects"
    germs = random_inputs(inputs, function)
    rows = PermutedRows(sampler, list(germs.values()), inputs.copula, inputs.n_germs, function)
    analysis = {
        "make_sums": lambda resolved, seed: sums_of_rows(resolved, seed, len(germs)),
        "kind": ShapleyEffects,
        "names": tuple(germs),
        "level": check_level(level, function),
    }
    effects: ShapleyEffects = run_rows(
        model, inputs, integer(n, function, "n", minimum=2), rows, analysis, function=function, seed=seed,
        ensemble_size=ensemble_size, backend=backend, on_failure=on_failure, store=store, resume=resume,
        retry_failed=retry_failed, sample_seconds=sample_seconds, progress=progress, executor=executor, outputs=outputs,
    )  # fmt: skip
    return effects


def sums_of_rows(rows: PermutedRows, seed: int, n_inputs: int) -> ShapleySums:
    """The sums of one output over rows whose permutations follow from their points."""

    def orders(numbers: np.ndarray) -> np.ndarray:
        return rows.orders(rows.row_points(numbers, seed))

    return ShapleySums(n_inputs, rows.n_replicates, orders)
