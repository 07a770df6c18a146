"""Applications: each folder solves one class of problems for many samples at once; imported when it is first used."""

import importlib
from typing import TYPE_CHECKING, Any

from ensemble._names import no_attribute

if TYPE_CHECKING:
    from ensemble.apps import analyses, fem, gbees, kalman

__all__ = ["analyses", "fem", "gbees", "kalman"]


def __getattr__(name: str) -> Any:
    name = {"uq": "analyses"}.get(name, name)  # the five analyses belong to uncertainty quantification
    if name in __all__:
        return importlib.import_module(f"ensemble.apps.{name}")
    raise no_attribute("ensemble.apps", name)


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__path__"]
