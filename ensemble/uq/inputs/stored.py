"""Inputs from their description in a manifest: for readers of a store, which runs no code of the study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ensemble.uq.inputs.categorical import Categorical
from ensemble.uq.inputs.inputs import Inputs
from ensemble.uq.inputs.mixture import Mixture
from ensemble.uq.inputs.truncated import Truncated
from ensemble.uq.inputs.vector import Vector

__all__ = ["inputs_of_description", "inputs_that_say_themselves"]


def inputs_of_description(description: Mapping[str, Any]) -> Inputs | None:
    """The inputs that `Inputs.description` gave; None where it does not say all of them.

    Distributions of SciPy by name, vectors, mixtures, categories and constants are said by their description; objects
    of the user's and joint distributions by a digest alone. A random field becomes the vector of its coefficients, a
    constant array one of zeros.
    """
    try:
        described = description["inputs"]
        found = {str(name): variable_of(described[name]) for name in description["names"]}
        table = description.get("correlation")
        pairs = (
            {tuple(component(found, one) for one in pair): value for *pair, value in table["pairs"]} if table else {}
        )
        inputs = Inputs(correlation=pairs, correlation_kind=table["kind"] if table else "normal", **found)
        rebuilt = json.loads(json.dumps(inputs.description()))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None  # a description of another version, or a manifest that somebody has changed
    own = rebuilt["inputs"]
    wanted = {name: own.get(name) if is_array(one) else one.get("coefficients", one) for name, one in described.items()}
    return inputs if rebuilt == {**description, "inputs": wanted} else None


def inputs_that_say_themselves(description: Mapping[str, Any]) -> Inputs | None:
    """Those of the inputs whose own description says all of them, without correlations; None where none does."""
    found: dict[str, Any] = {}
    described = description.get("inputs", {})
    for name in described:
        alone = inputs_of_description({"names": [name], "inputs": {name: described[name]}})
        if alone is not None:
            found[name] = variable_of(described[name])
    return Inputs(**found) if found else None


def is_array(described: Mapping[str, Any]) -> bool:
    """Whether this is a constant array, of which a description has the digest."""
    return described.get("kind") == "constant" and "value" not in described


def component(found: Mapping[str, Any], pair: Any) -> Any:
    """An input, or a component of a vector, as `Inputs` takes it in a correlation."""
    name, place = pair
    return (name, place) if isinstance(found[name], Vector) else name


def variable_of(described: Mapping[str, Any]) -> Any:
    """What `Inputs` takes for one input.

    Raises
    ------
    ValueError
        If the description does not say all of it.
    """
    kind = described["kind"]
    if kind == "scipy":
        return frozen_of(described)
    if kind == "constant":
        dtype = np.dtype(described["dtype"])
        return np.zeros(described["shape"], dtype) if is_array(described) else dtype.type(described["value"])
    if kind == "categorical":
        return Categorical(dict(zip(described["labels"], described["probabilities"], strict=True)))
    if kind == "mixture":
        return Mixture([frozen_of(part) for part in described["parts"]], described["weights"])
    if kind == "truncated":
        ends = (described["low"], described["high"])
        low, high = (bound if end is None else float(end) for end, bound in zip(ends, (-np.inf, np.inf), strict=True))
        return Truncated(frozen_of(described["of"]), low, high)
    if kind == "vector" and "component" in described:
        return Vector(variable_of(described["component"]), int(described["size"]))
    if kind == "vector":
        return Vector([variable_of(one) for one in described["components"]])
    if "coefficients" in described:
        return variable_of(described["coefficients"])
    raise ValueError(f"a {kind} is not said by its description")


def frozen_of(described: Mapping[str, Any]) -> Any:
    """A frozen distribution of SciPy, by its name and parameters."""
    from scipy import stats

    generic = getattr(stats, str(described["distribution"]), None)
    if (
        "digest" in described
        or "inverse" in described
        or not isinstance(generic, stats.rv_continuous | stats.rv_discrete)
    ):
        raise ValueError("the name and the parameters do not say all of the distribution")
    return generic(**{str(name): float(value) for name, value in described["parameters"].items()})
