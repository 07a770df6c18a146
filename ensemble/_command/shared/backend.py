"""The option ``--backend`` of sub-commands."""

from __future__ import annotations

from ensemble._backend import prototype

__all__ = ["require_backend"]


def require_backend(name: str) -> None:
    """Raise unless arrays of the library `name` can be made here."""
    try:
        prototype("cupy" if name == "cupy" else "numpy")  # "array" is the Array API code of GBEES, on NumPy here
    except RuntimeError as error:
        raise ValueError(f"--{error}") from None
