"""A model for the methods of OpenTURNS and SALib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ensemble._check import require, require_type
from ensemble._optional import optional
from ensemble.uq.adapters.array_function import ArrayFunction
from ensemble.uq.inputs.inputs import Inputs

__all__ = ["to_openturns", "to_salib"]


def to_openturns(
    model: Callable[[Any], Any], inputs: Inputs, outputs: Sequence[str] | None = None, *, ensemble_size: int = 32
) -> Any:
    """Return a model as a function of OpenTURNS, which evaluates its samples as ensembles (``func_sample``).

    Parameters
    ----------
    model, inputs, outputs, ensemble_size
        As in `ArrayFunction`.

    Returns
    -------
    openturns.Function
        From the values of the inputs, in their units, to those of the outputs, both with their names. Samples that
        fail are NaN.

    Raises
    ------
    ImportError
        If OpenTURNS is not installed.
    TypeError, ValueError
        As `ArrayFunction`.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> function = to_openturns(lambda x: {"tip": 2.0 * x.load}, en.Inputs(load=stats.norm()))
    >>> function([[1.0], [3.0]])[1][0]
    6.0
    """
    openturns = optional("openturns", "to_openturns")
    function = ArrayFunction(model, inputs, outputs, ensemble_size=ensemble_size)

    def of_sample(sample: Any) -> list[list[float]]:
        return function(sample).tolist()  # type: ignore[no-any-return]

    def of_point(point: Any) -> list[float]:
        return function([list(point)])[0].tolist()  # type: ignore[no-any-return]

    made = openturns.PythonFunction(len(function.columns), len(function.values), of_point, func_sample=of_sample)
    made.setInputDescription(function.columns)
    made.setOutputDescription(function.values)
    return made


def to_salib(inputs: Inputs) -> dict[str, Any]:
    """Return the problem of SALib for some inputs.

    Its variables are the columns of the unit cube, each from 0 to 1: sample them with SALib, evaluate them with
    ``ArrayFunction.from_uniform``, and analyse the values with SALib. Components of vectors and terms of fields are
    one group.

    Parameters
    ----------
    inputs : Inputs
        Independent ones.

    Returns
    -------
    dict
        With `num_vars`, `names`, `bounds`, and `groups` where an input has several columns.

    Raises
    ------
    ValueError
        If inputs are correlated: the methods of SALib are for independent ones.

    Examples
    --------
    >>> from scipy import stats
    >>> import ensemble as en
    >>> to_salib(en.Inputs(E=stats.norm(), v=[stats.norm(), stats.norm()]))["groups"]
    ['E', 'v', 'v']
    """
    require_type(inputs, Inputs, "to_salib", "inputs", "be Inputs")
    advice = "Use uq.shapley_effects."
    require(not inputs.copula.pairs, "to_salib", "inputs", "be independent", "correlated ones", advice)
    owners = [name for name, columns in inputs.germs.items() for _ in range(columns.start, columns.stop)]
    names = [
        name if columns.stop - columns.start == 1 else f"{name}[{k}]"
        for name, columns in inputs.germs.items()
        for k in range(columns.stop - columns.start)
    ]
    problem: dict[str, Any] = {"num_vars": len(names), "names": names, "bounds": [[0.0, 1.0]] * len(names)}
    return problem | ({"groups": owners} if owners != names else {})
