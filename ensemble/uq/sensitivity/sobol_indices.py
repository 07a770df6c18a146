"""`sobol_indices`: first and total Sobol' indices of a model's outputs, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, Literal

import numpy as np

from ensemble._check import check_level, integer, kind_of, message, require
from ensemble._keywords import explains_calls
from ensemble._typing import Executor
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.sensitivity.indices import SobolIndices
from ensemble.uq.sensitivity.row_plan import run_rows
from ensemble.uq.sensitivity.rows import PickFreezeRows
from ensemble.uq.sensitivity.sobol_sums import PairSums, SobolSums
from ensemble.uq.study.declared import Outputs

__all__ = ["random_inputs", "require_independent", "sobol_indices"]


def random_inputs(inputs: Any, function: str) -> dict[str, slice]:
    """The inputs that are not constant, and their columns."""
    if not callable(getattr(inputs, "from_uniform", None)):
        raise TypeError(message(function, "inputs", "be Inputs", kind_of(inputs)))
    found = {name: part for name, part in inputs.germs.items() if part.stop > part.start}
    require(bool(found), function, "inputs", "have one that is not constant", repr(inputs))
    return found


def require_independent(inputs: Inputs, function: str, advice: str) -> None:
    """Raise ValueError where different inputs are correlated."""
    pairs = inputs.copula.between
    seen = f"{len(pairs)} correlated pair{'s' if len(pairs) > 1 else ''}"
    require(not pairs, function, "inputs", "be independent", seen, advice)


@explains_calls("sobol_indices")
def sobol_indices(
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
    pairs: bool = False,
) -> SobolIndices:
    """Compute first and total Sobol' indices of every output, with confidence intervals, for scalars and fields alike.

    The model runs on ``n * (D + 2)`` samples for D inputs that are not constant; vectors and random fields are one
    input each. The outputs are added up as they come: memory does not grow with `n`.

    Parameters
    ----------
    model : callable
        As in `propagate`.
    inputs : Inputs
        Independent of each other. The components of one input may depend on each other, by `correlation` or as a
        joint distribution: they count as one.
    n : int
        The number of rows, of D + 2 samples each; Sobol' points are balanced for 8 times a power of two.
    seed : int, optional
        Default: a new one, which is the attribute `seed` of the result.
    sampler : {"sobol", "halton", "monte_carlo"} or Sampler
        Sampler of the rows. Intervals need replicates: those of the sampler, or 8 parts of independent points.
    ensemble_size, backend, on_failure, store, resume, retry_failed, sample_seconds, progress, executor
        As in `propagate`. With ``resume=True`` and a larger `n` a study is extended: its rows stay as they are.
    level : float in (0, 1), dimensionless
        Probability of the intervals.
    outputs : Outputs, optional
        As in `propagate`: coordinates of the axes of outputs for datasets and pictures.
    pairs : bool
        Indices of pairs of inputs as well, ``.second[name]``, shape (D, D, \\*shape): the model runs on
        ``n * (2 D + 2)`` samples.

    Returns
    -------
    SobolIndices
        ``.first[name]`` and ``.total[name]``, shape (D, \\*shape), ``.interval(name, kind)``, ``.bounds(name, kind)``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of range; if different inputs are correlated; if no row is without
        failures.
    SampleError
        If samples failed and `on_failure` is "raise".

    Notes
    -----
    First indices: Saltelli et al. (2010) [1]_, Table 2 (b), with values shifted to about zero mean; total indices:
    Jansen, ibid. (f). They had the smallest errors of those that were compared (ensemble/uq/EXPERIMENTS.md). Pairs:
    Saltelli (2002) [2]_, Theorem 2.

    Each replicate gives numerator and variance; the interval is Student's of their residuals from the common ratio.

    A failed sample takes its row out of all sums. `bounds` encloses what the indices could be with values in the
    output's observed range in place of the rows that are missing.

    References
    ----------
    .. [1] Saltelli, Annoni, Azzini, Campolongo, Ratto, Tarantola (2010), Computer Physics Communications 181(2),
       259-270.
    .. [2] Saltelli (2002), Computer Physics Communications 145(2), 280-297.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> inputs = en.Inputs(a=stats.norm(0.0, 2.0), b=stats.norm(0.0, 1.0))
    >>> indices = en.sobol_indices(lambda x: {"y": x.a + x.b}, inputs, 1024, seed=5, progress=False)
    >>> indices.first["y"].round(1), indices.total["y"].round(1)
    (array([0.8, 0.2]), array([0.8, 0.2]))
    """
    function = "sobol_indices"
    germs = random_inputs(inputs, function)
    require_independent(
        inputs, function, "Sobol' indices do not add up for dependent inputs; en.uq.shapley_effects does."
    )
    if not isinstance(pairs, bool | np.bool_):
        raise TypeError(message(function, "pairs", "be True or False", kind_of(pairs)))
    rows = PickFreezeRows(sampler, list(germs.values()), inputs.n_germs, function, bool(pairs))
    analysis = {
        "make_sums": lambda rows, _: (PairSums if pairs else SobolSums)(len(germs), rows.n_replicates),
        "kind": SobolIndices,
        "names": tuple(germs),
        "level": check_level(level, function),
    }
    indices: SobolIndices = run_rows(
        model, inputs, integer(n, function, "n", minimum=2), rows, analysis, function=function, seed=seed,
        ensemble_size=ensemble_size, backend=backend, on_failure=on_failure, store=store, resume=resume,
        retry_failed=retry_failed, sample_seconds=sample_seconds, progress=progress, executor=executor, outputs=outputs,
    )  # fmt: skip
    return indices
