"""`morris`: elementary effects of many inputs, from few runs of the model."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, Literal

import numpy as np

from ensemble._check import check_level, integer, require
from ensemble._keywords import explains_calls
from ensemble._typing import Executor
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.sensitivity.indices import MorrisEffects
from ensemble.uq.sensitivity.morris_sums import MorrisSums
from ensemble.uq.sensitivity.row_plan import run_rows
from ensemble.uq.sensitivity.rows import MorrisRows
from ensemble.uq.sensitivity.sobol_indices import random_inputs, require_independent
from ensemble.uq.study.declared import Outputs

__all__ = ["morris"]


@explains_calls("morris")
def morris(
    model: Callable[[Any], Any],
    inputs: Inputs,
    n: int,
    *,
    n_levels: int = 4,
    seed: int | None = None,
    sampler: Any = "monte_carlo",
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
) -> MorrisEffects:
    """Compute elementary effects of every input on every output: which inputs can be left out, from few runs.

    The model runs on ``n * (D + 1)`` samples for D inputs that are not constant; 10 to 50 rows are usual.

    Parameters
    ----------
    model : callable
        As in `propagate`.
    inputs : Inputs
        Independent of each other. The components of a vector or of a random field move together and are one input;
        the sign of their effect has no meaning then.
    n : int
        The number of rows, of D + 1 samples each.
    n_levels : even int, at least 2
        Values that an input takes: the quantiles of the probabilities ``(k + 1/2) / n_levels``.
    seed : int, optional
        Default: a new one, which is the attribute `seed` of the result.
    sampler : {"monte_carlo", "sobol", "halton"} or Sampler
        Sampler of the rows.
    ensemble_size, backend, on_failure, store, resume, retry_failed, sample_seconds, progress, executor, level, outputs
        As in `sobol_indices`.

    Returns
    -------
    MorrisEffects
        ``.mu_star[name]``, ``.mu[name]``, ``.sigma[name]``, shape (D, \\*shape), ``.interval(name, kind)``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of range; if different inputs are correlated; if no row is without
        failures.
    SampleError
        If samples failed and `on_failure` is "raise".

    Notes
    -----
    An elementary effect is the change of the output when one input moves by half of its probability, divided by that
    half [1]_: its unit is that of the output. `mu_star` is the mean of their sizes [2]_, `mu` their mean, `sigma` their
    standard deviation: large where the input acts nonlinearly or together with others. The levels of [1]_ include the
    ends of the range, which a normal input does not have; here they are the midpoints of equal parts.

    References
    ----------
    .. [1] Morris (1991), Technometrics 33(2), 161-174.
    .. [2] Campolongo, Cariboni, Saltelli (2007), Environmental Modelling and Software 22(10), 1509-1518.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> inputs = en.Inputs(a=stats.uniform(), b=stats.uniform(), c=stats.uniform())
    >>> effects = en.uq.morris(lambda x: {"y": 3.0 * x.a + x.b**2}, inputs, 16, seed=5, progress=False)
    >>> effects.mu_star["y"].round(1), effects.sigma["y"].round(1)
    (array([3. , 1.1, 0. ]), array([0. , 0.2, 0. ]))
    """
    function = "morris"
    germs = random_inputs(inputs, function)
    require_independent(inputs, function, "en.uq.shapley_effects takes dependent ones.")
    n_levels = integer(n_levels, function, "n_levels", minimum=2)
    require(n_levels % 2 == 0, function, "n_levels", "be even", n_levels)
    rows = MorrisRows(sampler, list(germs.values()), inputs.n_germs, n_levels, function)

    def make_sums(resolved: MorrisRows, seed: int) -> MorrisSums:
        def moves(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            points = resolved.row_points(numbers, seed)
            return resolved.orders(points), resolved.signs(points)

        return MorrisSums(len(germs), resolved.n_replicates, moves)

    analysis = {
        "make_sums": make_sums,
        "kind": MorrisEffects,
        "names": tuple(germs),
        "level": check_level(level, function),
    }
    effects: MorrisEffects = run_rows(
        model, inputs, integer(n, function, "n", minimum=2), rows, analysis, function=function, seed=seed,
        ensemble_size=ensemble_size, backend=backend, on_failure=on_failure, store=store, resume=resume,
        retry_failed=retry_failed, sample_seconds=sample_seconds, progress=progress, executor=executor, outputs=outputs,
    )  # fmt: skip
    return effects
