"""Samplers from their description in a manifest."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

from ensemble.uq.samplers.choice import SAMPLERS
from ensemble.uq.samplers.quadrature import Gauss, SparseGrid
from ensemble.uq.samplers.sampler import Sampler

__all__ = ["sampler_of_description"]

KINDS: dict[str, type[Sampler]] = {**SAMPLERS, Gauss.name: Gauss, SparseGrid.name: SparseGrid}


def sampler_of_description(description: Mapping[str, Any], inputs: Any, n: int) -> Sampler | None:
    """The sampler of a study for its inputs; None where the description does not say all of it, as of given points."""
    options = {str(key): value for key, value in description.items() if key != "name"}
    kind = KINDS.get(str(description.get("name")))
    if kind is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run has given them
            sampler: Any = kind(**options).for_inputs(inputs, n)
        same = json.loads(json.dumps(sampler.description())) == dict(description)
    except (TypeError, ValueError):
        return None
    return sampler if same else None
