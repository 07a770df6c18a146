"""`record_divergence`: where code needs one value of an ensemble, how often, and the values of the samples."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType

import numpy as np

from ensemble._check import require
from ensemble.scalar.divergence.policy import caller, place_of, records_in_force

__all__ = ["DivergenceRecord", "Site", "record_divergence"]

Place = tuple[str, str, int]


@dataclass(eq=False)
class Site:
    """One expression that needed one truth value or one number.

    Attributes
    ----------
    expression, filename, lineno : str, str, int
        Its position; the expression is empty where the source is not available.
    kind : str
        "bool", or the kind of number: "Python float", "Python int", "Python complex", "index".
    n_samples : int
        The number of samples of the ensemble.
    asked, split : int
        Number of evaluations, and of those in which the samples did not agree.
    values : numpy.ndarray, shape (n_samples,)
        Number of True values of each sample; of a number, its last value per sample.
    """

    expression: str
    filename: str
    lineno: int
    kind: str
    n_samples: int
    values: np.ndarray
    asked: int = 0
    split: int = 0

    def add(self, values: np.ndarray) -> None:
        """Count one evaluation."""
        self.asked += 1
        first = values[0]
        self.split += not np.all((values == first) | ((values != values) & (first != first)))
        self.values = self.values + values if self.kind == "bool" else values.copy()

    def __str__(self) -> str:
        least, most = self.values.min(), self.values.max()
        span = f"{least:.6g}" if least == most or least != least else f"{least:.6g} to {most:.6g}"
        return f"True {span} times" if self.kind == "bool" else f"{self.kind} {span}"


class DivergenceRecord:
    """What `record_divergence` collects: sites in the order of their first evaluation."""

    def __init__(self) -> None:
        self._sites: dict[tuple[Place, str, int], Site] = {}
        self._places: dict[tuple[CodeType, int], Place] = {}

    @property
    def sites(self) -> tuple[Site, ...]:
        """Every site."""
        return tuple(self._sites.values())

    def __len__(self) -> int:
        return len(self._sites)

    def __iter__(self) -> Iterator[Site]:
        return iter(self.sites)

    def _record(self, kind: str, values: np.ndarray) -> None:
        frame = caller()
        at = frame.f_code, frame.f_lasti
        if at not in self._places:
            self._places[at] = place_of(frame)
        # One condition of a loop occurs twice in the bytecode, before the loop and at its end.
        key = self._places[at], kind, values.size
        if key not in self._sites:
            self._sites[key] = Site(*self._places[at], kind, values.size, np.zeros(values.size, dtype=np.int64))
        self._sites[key].add(values)

    def signature(self, n_samples: int | None = None) -> np.ndarray:
        """One row of integers per site, one column per sample: samples of one path have equal columns.

        An entry is the number of True values of a sample; of a number, the rank of its last value. Samples can be
        grouped by their columns before they are run again.

        Parameters
        ----------
        n_samples : int, optional
            Which sites, where ensembles of several numbers of samples were evaluated.

        Returns
        -------
        numpy.ndarray of int64, shape (n_sites, n_samples)

        Raises
        ------
        ValueError
            If `n_samples` is left out and the sites differ in it.
        """
        counts = {site.n_samples for site in self} if n_samples is None else {n_samples}
        seen = f"sites of {' and '.join(str(n) for n in sorted(counts)) or 'no'} samples"
        require(len(counts) == 1, "signature", "n_samples", "say which sites are meant", seen)
        n = counts.pop()
        rows = [
            site.values if site.kind == "bool" else np.unique(site.values, return_inverse=True)[1]
            for site in self
            if site.n_samples == n
        ]
        return np.array(rows, dtype=np.int64).reshape(len(rows), n)

    def groups(self, n_samples: int | None = None) -> list[np.ndarray]:
        """The samples of equal signature, each group rising, by their first sample."""
        signature = self.signature(n_samples)
        parts: dict[bytes, list[int]] = {}
        for s in range(signature.shape[1]):
            parts.setdefault(signature[:, s].tobytes(), []).append(s)
        return [np.array(part) for part in parts.values()]

    def __repr__(self) -> str:
        if not self._sites:
            return "DivergenceRecord: nothing asked for one value"
        head = ("place", "expression", "samples", "asked", "split", "answers")
        rows = [
            (
                f"{os.path.basename(site.filename)}:{site.lineno}",
                site.expression if len(site.expression) <= 40 else f"{site.expression[:37]}...",
                *(str(number) for number in (site.n_samples, site.asked, site.split)),
                str(site),
            )
            for site in self
        ]
        widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
        return "\n".join(line.rstrip() for line in lines)


@contextmanager
def record_divergence() -> Iterator[DivergenceRecord]:
    """Record each place in the ``with`` block that needs one truth value or number of an ensemble of several samples.

    Agreement and disagreement are both recorded; what then happens is decided by the `divergence` policy in force.

    Returns
    -------
    context manager of a DivergenceRecord
        ``print(record)`` shows the table; ``record.sites``, ``record.signature()`` and ``record.groups()`` hold it.

    Notes
    -----
    Held in a `contextvars.ContextVar`: other threads and tasks are not recorded. Nor is what happens inside
    ``run(f, ...)`` with the policy "split", whose result has it in ``.groups``.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble.scalar import Ensemble, divergence
    >>> x = Ensemble(np.array([1.0, 3.0, 9.0]))
    >>> with divergence("any"), record_divergence() as record:
    ...     while x > 1.0:
    ...         x = x / 2.0
    >>> [(site.kind, site.asked, site.split) for site in record]
    [('bool', 5, 4)]
    >>> record.signature()
    array([[0, 2, 4]])
    """
    record = DivergenceRecord()
    token = records_in_force.set((*records_in_force.get(), record._record))
    try:
        yield record
    finally:
        records_in_force.reset(token)
