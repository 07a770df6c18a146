"""The base of all results of algorithms: a status, a table, and an error on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

__all__ = ["AlgorithmError", "AlgorithmResult", "table"]


class AlgorithmError(RuntimeError):
    """An algorithm did not reach its target; raised by `raise_if_failed` only."""


class AlgorithmResult:
    """Base of the results: `status` names how the algorithm ended; "converged": it reached its target."""

    status: str

    @property
    def converged(self) -> bool:
        """Whether the target was reached."""
        return self.status == "converged"

    def raise_if_failed(self) -> Self:
        """This result, or `AlgorithmError` with its table where the target was not reached.

        Raises
        ------
        AlgorithmError
            If `status` is not "converged".
        """
        if not self.converged:
            raise AlgorithmError(repr(self))
        return self


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns under their names."""
    texts = [list(names)] + [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    widths = [max(len(text[k]) for text in texts) for k in range(len(names))]
    return "\n".join("  ".join(t.rjust(w) for t, w in zip(text, widths, strict=True)) for text in texts)
