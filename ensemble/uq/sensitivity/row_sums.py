"""Sums over rows of samples, kept per replicate: what sensitivity indices of many outputs need in one pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BLOCK = 4096
"""Outputs in a block: its sums lie side by side, its values and their terms stay in the second-level cache."""

BLOCK_VALUES = 1 << 15
"""Values of a block of outputs that are taken at a time, in whole rows."""

PILOT_ROWS = 4
"""Rows whose mean becomes the shift of the sums: its error adds at most 3 % to those of first indices.

They are kept in memory until the shift is known."""

LARGE = 1e100
"""Deviations beyond which outputs are divided by a power of two, so that squares stay in range."""


class Estimate:
    """Indices of one kind: ``value, half_width (n_inputs, n_outputs)``, and ``bounds (2, n_inputs, n_outputs)``.

    Without failed rows the bounds are the values and take no memory.
    """

    def __init__(self, n_inputs: int, n_outputs: int, failures: bool) -> None:
        shape = (n_inputs, n_outputs)
        self.value = np.empty(shape)
        self.half_width = np.empty(shape)
        self.bounds = np.empty((2, *shape)) if failures else np.broadcast_to(self.value, (2, *shape))

    def fill(self, chunk: slice, constant: np.ndarray, results: tuple[np.ndarray, ...]) -> None:
        """Set value, half-width and, where there were failures, bounds of a block of outputs; NaN where constant."""
        for array, result in zip((self.value, self.half_width, self.bounds), results):
            result[..., constant] = np.nan
            array[..., chunk] = result


class RowSums:
    """Sums of the terms of each row, per replicate, output by output.

    A row is `n_parts` consecutive samples, row ``k`` belongs to replicate ``k % n_replicates``. Rows are added one by
    one in the order of their numbers, so that no bit depends on how the samples were cut into groups. A row with a
    failed sample is left out of every sum.
    """

    def __init__(self, n_inputs: int, n_parts: int, n_terms: int, n_replicates: int) -> None:
        self.n_inputs = n_inputs
        self.n_parts = n_parts
        self.n_terms = n_terms
        self.n_replicates = n_replicates
        self.n_outputs = 0
        self.rows_seen = 0
        self.rows_used = np.zeros(n_replicates, dtype=np.int64)
        self._pending: list[tuple[np.ndarray, np.ndarray]] = []
        self._started = False

    def terms(self, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The terms ``(k, n_terms, m)`` of the rows with numbers `rows` and shifted values `y` ``(k, n_parts, m)``."""
        raise NotImplementedError

    def base_parts(self) -> list[int]:
        """The two parts of a row that are independent points of the inputs' distribution."""
        raise NotImplementedError

    def estimate_block(self, estimates: tuple[Estimate, ...], chunk: slice, factor: float) -> None:
        """Fill in the indices of a block of outputs; `factor` is Student's quantile."""
        raise NotImplementedError

    def estimates(self, n_kinds: int, level: float) -> tuple[Estimate, ...]:
        """The indices of all outputs, kind by kind; constant outputs give NaN."""
        failures = self.n_used < self.rows_seen
        results = tuple(Estimate(self.n_inputs, self.n_outputs, failures) for _ in range(n_kinds))
        factor = student_factor(level, self.n_replicates)
        for chunk in self._blocks():
            self.estimate_block(results, chunk, factor)
        return results

    def update(self, values: np.ndarray, failed: np.ndarray) -> None:
        """Add the next samples, `values` ``(n_outputs, k)`` and `failed` ``(k,)``; they need not end with a row."""
        self.n_outputs = len(values)
        self._pending.append((values, failed))
        if not self._started and self._usable_rows_pending() < PILOT_ROWS:
            self._pending[-1] = (np.array(values), np.array(failed))
            return
        self._add_pending()

    def finish(self) -> None:
        """Add rows that still wait for a pilot; samples behind the last whole row stay out."""
        if not self._started and self._usable_rows_pending() > 0:
            self._add_pending()

    def _blocks(self) -> Iterator[slice]:
        for start in range(0, self.n_outputs, BLOCK):
            yield slice(start, min(start + BLOCK, self.n_outputs))

    def block_sums(self, chunk: slice) -> np.ndarray:
        """The sums ``(n_replicates, n_terms, m)`` of a block of outputs."""
        result: np.ndarray = self.sums[chunk.start // BLOCK, :, :, : chunk.stop - chunk.start]
        return result

    def _rows_failed(self) -> np.ndarray:
        """Which samples of the whole rows that wait have failed, ``(n_rows, n_parts)``."""
        failed = np.concatenate([part for _, part in self._pending])
        n_rows = len(failed) // self.n_parts
        return failed[: n_rows * self.n_parts].reshape(n_rows, self.n_parts)

    def _usable_rows_pending(self) -> int:
        return int(np.sum(~np.any(self._rows_failed(), axis=1)))

    def _add_pending(self) -> None:
        failed = self._rows_failed()
        n_rows = len(failed)
        if not self._started:
            self._allocate()
        for chunk in self._blocks() if n_rows else ():
            width = chunk.stop - chunk.start
            step = max(PILOT_ROWS, BLOCK_VALUES // (width * self.n_parts))
            if self.n_used == 0:
                self._set_shift(chunk, np.flatnonzero(~np.any(failed, axis=1))[:PILOT_ROWS])
            for start in range(0, n_rows, step):
                rows = slice(start, min(start + step, n_rows))
                self._add_rows(self._gather(chunk, rows), chunk, rows, failed[rows])
        used = self.rows_seen + np.flatnonzero(~np.any(failed, axis=1))
        np.add.at(self.rows_used, used % self.n_replicates, 1)
        self.rows_seen += n_rows
        self._keep_from(n_rows * self.n_parts)

    def _allocate(self) -> None:
        self._started = True
        self.shift, self.unit = np.zeros(self.n_outputs), np.ones(self.n_outputs)
        self._low = np.full(self.n_outputs, np.inf)
        self._high = np.full(self.n_outputs, -np.inf)
        n_blocks = -(-self.n_outputs // BLOCK)
        self.sums = np.zeros((n_blocks, self.n_replicates, self.n_terms, min(BLOCK, self.n_outputs)))

    def _gather(self, chunk: slice, rows: slice) -> np.ndarray:
        """Values ``(k, n_parts, m)`` of some of the rows that wait, less the shift, in units."""
        start, stop = rows.start * self.n_parts, rows.stop * self.n_parts
        block = np.empty((stop - start, chunk.stop - chunk.start))
        offset = 0
        for values, failed in self._pending:
            low, high = max(start - offset, 0), min(stop - offset, len(failed))
            if low < high:
                part = block[low + offset - start : high + offset - start]
                np.subtract(values[chunk, low:high].T, self.shift[chunk], out=part)
            offset += len(failed)
        if np.any(self.unit[chunk] != 1.0):
            block /= self.unit[chunk]
        return block.reshape(rows.stop - rows.start, self.n_parts, -1)

    def _set_shift(self, chunk: slice, usable: np.ndarray) -> None:
        """The mean of the first usable rows, summed one by one, and units where squares need them; 0 and 1 before."""
        if len(usable):
            pilot = np.concatenate([self._gather(chunk, slice(k, k + 1))[0, self.base_parts()] for k in usable])
            self.shift[chunk] = np.add.accumulate(pilot, axis=0)[-1] / len(pilot)
            size = np.abs(pilot - self.shift[chunk]).max(axis=0)
            extreme = np.isfinite(size) & (size > 0.0) & ((size < 1.0 / LARGE) | (size > LARGE))
            self.unit[chunk] = np.where(extreme, np.ldexp(1.0, np.frexp(size)[1]), 1.0)

    def _add_rows(self, y: np.ndarray, chunk: slice, rows: slice, failed: np.ndarray) -> None:
        numbers = self.rows_seen + np.arange(rows.start, rows.stop)
        seen = y.reshape(-1, y.shape[2])
        if np.any(failed):
            usable = ~np.any(failed, axis=1)
            seen, y, numbers = seen[~failed.ravel()], y[usable], numbers[usable]
        if len(seen):
            np.minimum(self._low[chunk], seen.min(axis=0), out=self._low[chunk])
            np.maximum(self._high[chunk], seen.max(axis=0), out=self._high[chunk])
        sums = self.block_sums(chunk)
        for terms, number in zip(self.terms(y, numbers), numbers):
            sums[number % self.n_replicates] += terms

    def _keep_from(self, n_values: int) -> None:
        """Copy the samples behind the last whole row: they belong to the next one."""
        left = []
        for values, failed in self._pending:
            if n_values < len(failed):
                left.append((np.array(values[:, n_values:]), np.array(failed[n_values:])))
            n_values = max(0, n_values - len(failed))
        self._pending = left

    @property
    def n_used(self) -> int:
        """Rows in the sums."""
        return int(np.sum(self.rows_used))

    def constant(self, chunk: slice) -> np.ndarray:
        """Which outputs do not vary but by rounding: no index of them is defined."""
        size = np.abs(self.shift[chunk] / self.unit[chunk]) + np.maximum(
            np.abs(self._low[chunk]), np.abs(self._high[chunk])
        )
        result: np.ndarray = ~(self._high[chunk] - self._low[chunk] > 8.0 * np.finfo(float).eps * size)
        return result

    def ranges(self, chunk: slice) -> tuple[np.ndarray, np.ndarray]:
        """The observed ranges of shifted outputs in units, samples of rows that were left out included."""
        return self._low[chunk], self._high[chunk]

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances ``(n_outputs,)`` over the two independent points of every row in use."""
        mean, variance = np.empty(self.n_outputs), np.empty(self.n_outputs)
        count = 2.0 * self.n_used
        for chunk in self._blocks():
            total, squares = self.block_sums(chunk)[:, :2].sum(axis=0)
            unit = self.unit[chunk]
            mean[chunk] = self.shift[chunk] + total / count * unit
            with np.errstate(over="ignore", under="ignore"):
                variance[chunk] = np.maximum(squares - total**2 / count, 0.0) / count * unit * unit
            low, high = self.ranges(chunk)
            same = low == high  # rounding of the sums is no variation
            variance[chunk] = np.where(same, 0.0, variance[chunk])
            mean[chunk] = np.where(same, self.shift[chunk] + low * unit, mean[chunk])
        return mean, variance

    def ratio(self, numerators: np.ndarray, denominators: np.ndarray, factor: float) -> tuple[np.ndarray, ...]:
        """The ratio of the sums over replicates ``(n_inputs, m)``, and the half-width of its interval.

        The interval is Student's, of the residuals ``N_r - S D_r`` of the replicates: the delta method for a ratio.
        """
        count = self.n_replicates
        total = denominators.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = numerators.sum(axis=0) / total
            if count < 2 or np.any(self.rows_used == 0):
                return value, np.full_like(value, np.nan)
            residuals = (numerators - value * denominators[:, None]) / (total / count)
            spread = np.sqrt(np.sum(residuals**2, axis=0) / (count * (count - 1)))
        return value, factor * spread


def student_factor(level: float, n_replicates: int) -> float:
    """The quantile of Student's distribution for an interval of probability `level` from replicates."""
    from scipy.special import stdtrit

    return float(stdtrit(n_replicates - 1, 0.5 + 0.5 * level)) if n_replicates > 1 else np.nan


def enclosed_ratio(n_low: np.ndarray, n_high: np.ndarray, d_low: np.ndarray, d_high: np.ndarray) -> np.ndarray:
    """The smallest and the largest ``n / d`` for n and d between their limits, `d_low` at least 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        low = np.where(n_low >= 0.0, n_low / d_high, n_low / d_low)
        high = np.where(n_high >= 0.0, n_high / d_low, n_high / d_high)
    return np.stack([low, high])
