"""Multi-indices packed into one 64-bit integer each, so that cells can be sorted and found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ensemble._backend import array_namespace
from ensemble._typing import Array
from ensemble.apps.gbees.errors import GridError

__all__ = ["Packing", "find", "merged_columns"]

BITS = 63
"""Bits of a signed 64-bit key."""


@dataclass(frozen=True)
class Packing:
    """Bits of each dimension in a key, and the index of its zero; the first dimension takes the highest bits.

    Keys sort as multi-indices do. The neighbours of a stored cell have unique keys, too, so keys of neighbours are
    sums; `fits` is false once that fails for a cell, and keys have to be packed again.
    """

    lows: tuple[int, ...]
    bits: tuple[int, ...]
    periods: tuple[int | None, ...]

    @classmethod
    def around(cls, lowest: list[int], highest: list[int], periods: tuple[int | None, ...]) -> Packing:
        """A packing for indices from `lowest` to `highest` and a margin of one; unused bits are distributed evenly.

        Raises
        ------
        GridError
            If the spans take more than 63 bits.
        """
        margins = [0 if period else 1 for period in periods]
        lows = [-(period // 2) if period else low for low, period in zip(lowest, periods)]
        spans = [period or high - low + 1 for low, high, period in zip(lowest, highest, periods)]
        bits = [(span + 2 * margin - 1).bit_length() for span, margin in zip(spans, margins)]
        if sum(bits) > BITS:
            raise GridError(
                f"Gbees: the grid must fit keys of {BITS} bits; got {' x '.join(str(span) for span in spans)} cells "
                f"across, which take {sum(bits)}. Make the cells wider (a smaller factor) or raise the threshold."
            )
        spare = (BITS - sum(bits)) // max(1, sum(margins))
        bits = [b + min(spare, 8) * margin for b, margin in zip(bits, margins)]
        lows = [low if period else low - (2**b - span) // 2 for low, span, b, period in zip(lows, spans, bits, periods)]
        return cls(tuple(lows), tuple(bits), tuple(periods))

    @classmethod
    def of(cls, columns: Sequence[Array], periods: Sequence[int | None], margin: int = 0) -> Packing:
        """A packing for multi-indices given as n arrays (N,), and for `margin` more on either side."""
        xp = array_namespace(columns[0])
        lowest = [int(xp.min(s)) - margin for s in columns]
        highest = [int(xp.max(s)) + margin for s in columns]
        return cls.around(lowest, highest, tuple(periods) or (None,) * len(columns))

    @property
    def shifts(self) -> tuple[int, ...]:
        """The lowest bit of each dimension."""
        return tuple(sum(self.bits[i + 1 :]) for i in range(len(self.bits)))

    def pack(self, columns: list[Array]) -> Array:
        """Keys (N,) of multi-indices given as n arrays (N,)."""
        key = None
        for s, low, shift in zip(columns, self.lows, self.shifts):
            part = (s - low) * 2**shift
            key = part if key is None else key + part
        return key

    def column(self, keys: Array, i: int) -> Array:
        """Component `i` of the multi-indices of `keys`."""
        return ((keys >> self.shifts[i]) & (2 ** self.bits[i] - 1)) + self.lows[i]

    def neighbour(self, keys: Array, i: int, step: int) -> Array:
        """Keys of the cells one `step` (1 or -1) along dimension `i`."""
        stride = step * 2 ** self.shifts[i]
        period = self.periods[i]
        if not period:
            return keys + stride
        xp = array_namespace(keys)
        last = self.lows[i] + (period - 1 if step > 0 else 0)
        return xp.where(self.column(keys, i) == last, keys - (period - 1) * stride, keys + stride)

    def fits(self, columns: list[Array]) -> bool:
        """Whether the neighbours of all these cells have unique keys."""
        xp = array_namespace(columns[0])
        for s, low, b, period in zip(columns, self.lows, self.bits, self.periods):
            if not period and not (int(xp.min(s)) > low and int(xp.max(s)) < low + 2**b - 1):
                return False
        return True


def merged_columns(columns: list[Array], more: list[Array], periods: tuple[int | None, ...]) -> Packing:
    """A packing for two sets of cells."""
    xp = array_namespace(columns[0])
    both = [columns, more]
    lowest = [min(int(xp.min(part[i])) for part in both) for i in range(len(columns))]
    highest = [max(int(xp.max(part[i])) for part in both) for i in range(len(columns))]
    return Packing.around(lowest, highest, periods)


def find(keys: Array, wanted: Array) -> Array:
    """Positions of `wanted` in the sorted `keys`; ``len(keys)`` for missing ones."""
    xp = array_namespace(keys)
    n = keys.shape[0]
    at = xp.searchsorted(keys, wanted)
    there = xp.take(keys, xp.minimum(at, xp.full_like(at, n - 1))) == wanted
    return xp.where(there, at, xp.full_like(at, n))
