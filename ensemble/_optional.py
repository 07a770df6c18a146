"""Packages that are imported where they are first used: a missing one is named in one line, with what to install."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["DISTRIBUTION", "advice_for", "optional"]

DISTRIBUTION = "ensemble-arrays"
"""The name of this project on the package index; it is imported as ``ensemble``."""

EXTRAS = {
    "cupy": "cuda13",
    "dask": "dask",
    "fsspec": "cloud",
    "matplotlib": "plots",
    "meshio": "fem",
    "mpi4py": "mpi",
    "mpl_toolkits": "plots",
    "pandas": "uq",
    "skfem": "fem",
    "xarray": "uq",
    "zarr": "uq",
}
"""The extra of this project that has a package, by the name it is imported by."""

NAMES = {"mpl_toolkits": "matplotlib", "sklearn": "scikit-learn", "skfem": "scikit-fem"}
"""Names of packages on the index, where they are other names than those of their modules."""


def advice_for(module: str) -> str:
    """What to install for a module: "Run pip install 'ensemble-arrays[uq]'."."""
    top = module.partition(".")[0]
    wanted = f"'{DISTRIBUTION}[{EXTRAS[top]}]'" if top in EXTRAS else NAMES.get(top, top)
    return f"Run pip install {wanted}."


def optional(module: str, function: str) -> Any:
    """The module of a package that need not be installed.

    Raises
    ------
    ImportError
        If it cannot be imported. The message is one line: the function, the package, the reason, what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == top
        reason = "no such module" if missing else " ".join(f"{type(error).__name__} ({error})".split())
        name = NAMES.get(top, top)
        text = f"{function}: {name} must be installed; got {reason}. {advice_for(module)}"
        raise ImportError(text, name=module) from error
