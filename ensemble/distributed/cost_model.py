"""A model of the time of products, V-cycles and conjugate gradients on many ranks.

Time is that of the busiest rank: its kernels, by measured seconds per row and stored entry, and its messages. A message
of s samples takes ``a + b s`` [1]_, with one pair for short and one for long messages, since MPI sends them by two
protocols. Reductions and all-gathers take a number of messages that grows as the logarithm of the ranks [2]_.
Computation is not taken to hide messages, and ranks
of one node slow each other only as far as the measured seconds say. All times are in seconds, all sizes in bytes.

References
----------
.. [1] Phipps et al. (2017), SIAM J. Sci. Comput. 39, C162-C193, equations 13 and 14, figures 10 to 12.
.. [2] Thakur, Rabenseifner, Gropp (2005), Int. J. High Perform. Comput. Appl. 19, 49-66.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ensemble._check import integer, message, real_array, require
from ensemble._kernels.sparse.exact_sums import ROW_LENGTH

__all__ = ["IterationTime", "KernelTime", "LevelLoad", "MessageTime", "Network", "fit_kernel", "fit_messages",
           "iteration_time"]  # fmt: skip

REDUCTIONS = 3
"""Inner products of one iteration of CG: r . z, p . A p and r . r, each in a reduction of its own."""


@dataclass(frozen=True)
class MessageTime:
    """Seconds of one message by its size: two straight lines, one for each protocol of MPI.

    Parameters
    ----------
    latency, per_byte : float, s and s/byte
        Start and slope for messages up to `limit`.
    limit : float, bytes
        The size of the longest short message.
    long_latency, long_per_byte : float, s and s/byte
        Start and slope for longer messages, which wait for the receiver first.

    Examples
    --------
    >>> time = MessageTime(2e-6, 1e-9)
    >>> time(1000)
    3e-06
    >>> time.gain(1000.0, 32)                   # 32 samples in one message or in 32
    2.8235294117647056
    """

    latency: float
    per_byte: float
    limit: float = math.inf
    long_latency: float = 0.0
    long_per_byte: float = 0.0

    def __call__(self, n_bytes: float) -> float:
        """The seconds of a message of `n_bytes` bytes."""
        if n_bytes <= self.limit:
            return self.latency + self.per_byte * n_bytes
        return self.long_latency + self.long_per_byte * n_bytes

    def gain(self, bytes_per_sample: float, n_samples: int) -> float:
        """How much less a message costs per sample with `n_samples` of them than with one, equation 14: s T(1) / T(s).

        With one protocol it is ``s (a + b) / (a + b s)`` where ``b = per_byte * bytes_per_sample``.
        """
        return n_samples * self(bytes_per_sample) / self(bytes_per_sample * n_samples)


@dataclass(frozen=True)
class Network:
    """What connects the ranks.

    Parameters
    ----------
    message : MessageTime
        Time between two ranks, bandwidth being the share of one rank while all of them send.
    per_message : float, s
        What each message of an exchange costs its rank: packing, posting and testing it.
    per_call : float, s
        What an exchange, a reduction or an all-gather costs whatever its size, before and after its messages.

    Examples
    --------
    >>> network = Network(MessageTime(2e-6, 1e-9), per_message=1e-6)
    >>> round(1e6 * network.exchange(3, 2000), 3)   # three neighbours, 2000 bytes to all of them together
    7.0
    >>> round(1e6 * network.reduction(1024, 0), 3)
    20.0
    """

    message: MessageTime
    per_message: float = 0.0
    per_call: float = 0.0

    def exchange(self, messages: int, n_bytes: float) -> float:
        """Seconds of messages to as many neighbours, of `n_bytes` together, whose latencies pass at once. None: 0."""
        if not messages:
            return 0.0
        alone = self.message(n_bytes / messages)
        slope = self.message.per_byte if n_bytes / messages <= self.message.limit else self.message.long_per_byte
        further = (messages - 1) * slope * n_bytes / messages
        return self.per_call + messages * self.per_message + alone + further

    def reduction(self, ranks: int, n_bytes: float) -> float:
        """Seconds of an all-reduce of `n_bytes` on each rank: the faster of two algorithms of [2]_ of the module.

        Recursive doubling sends all of it in each of log2 P steps, Rabenseifner's method halves of it, quarters and so
        on, twice. One rank: 0.
        """
        steps = (ranks - 1).bit_length()
        halves = sum(self.message(n_bytes / 2**k) for k in range(1, steps + 1))
        return min(steps * self.message(n_bytes), 2.0 * halves) + self.per_call if steps else 0.0

    def gather(self, ranks: int, n_bytes: float) -> float:
        """Seconds of an all-gather after which each rank has `n_bytes`: log2 P steps of twice the bytes each."""
        steps = (ranks - 1).bit_length()
        return sum(self.message(n_bytes / 2**k) for k in range(1, steps + 1)) + self.per_call if steps else 0.0


@dataclass(frozen=True)
class KernelTime:
    """Seconds of a kernel for all samples of an ensemble.

    Parameters
    ----------
    overhead : float, s
        Time of a call, however small.
    per_row, per_entry : float, s
        Time for each row, and for each stored entry, of all samples together.

    Examples
    --------
    >>> round(1e6 * KernelTime(1e-5, 1e-8, 2e-9)(1000, 27_000), 3)
    74.0
    """

    overhead: float
    per_row: float
    per_entry: float

    def __call__(self, rows: float, entries: float) -> float:
        """The seconds on so many rows and entries; none without rows."""
        return self.overhead + self.per_row * rows + self.per_entry * entries if rows else 0.0


@dataclass(frozen=True)
class LevelLoad:
    """What the busiest rank of one level of a hierarchy has to do.

    Parameters
    ----------
    rows, entries : float
        Size of the matrix on that rank.
    messages, ghost_rows : float
        Neighbours of a product, and the rows that they send.
    restriction_messages, restriction_rows, prolongation_messages, prolongation_rows : float
        The same of the transfers to and from the next level.
    total_rows : float
        Rows of all ranks.
    ranks : int
        Those that have rows.
    """

    rows: float
    entries: float
    messages: int = 0
    ghost_rows: float = 0.0
    restriction_messages: int = 0
    restriction_rows: float = 0.0
    prolongation_messages: int = 0
    prolongation_rows: float = 0.0
    total_rows: float = 0.0
    ranks: int = 1


@dataclass(frozen=True)
class IterationTime:
    """Seconds of one iteration of conjugate gradients with one V-cycle, by what they are spent on.

    Attributes
    ----------
    kernels : float
        The product, the V-cycle without the coarsest level, and vectors.
    messages : float
        Exchanges of the product and of all levels.
    reductions : float
        Inner products and the largest entry over all ranks.
    coarse : float
        The all-gather and the solution of the coarsest level.
    of_levels : tuple of float
        Exchanges of each level, those of the product not counted.
    """

    kernels: float
    messages: float
    reductions: float
    coarse: float
    of_levels: tuple[float, ...]

    @property
    def total(self) -> float:
        """All of it."""
        return self.kernels + self.messages + self.reductions + self.coarse


def fit_messages(n_bytes: Sequence[float], seconds: Sequence[float]) -> MessageTime:
    """Fit the seconds of messages by two straight lines in their size, with the least relative errors.

    The limit between the lines is the size among those given that leaves the least sum of squares. A line that falls is
    replaced by the mean. From fewer than six sizes one line is fitted.

    Parameters
    ----------
    n_bytes : sequence of float, bytes
        Sizes, at least two different ones.
    seconds : sequence of float above zero, s

    Raises
    ------
    ValueError
        If the lengths differ, a time is not above zero, or there is one size alone.

    Examples
    --------
    >>> fit_messages([8, 80, 800], [1.008e-06, 1.08e-06, 1.8e-06])
    MessageTime(latency=1e-06, per_byte=1e-09, limit=inf, long_latency=0.0, long_per_byte=0.0)
    """
    name = "fit_messages"
    sizes, times = real_array(n_bytes, name, "n_bytes", "be sizes"), real_array(seconds, name, "seconds", "be times")
    require(sizes.ndim == 1 and sizes.shape == times.shape, name, "seconds", f"have shape {sizes.shape}", times.shape)
    require(bool(np.all(times > 0.0)), name, "seconds", "be above zero", float(np.min(times, initial=np.inf)))
    order = np.argsort(sizes, kind="stable")
    x, t = sizes[order], times[order]
    different = np.unique(x)
    if different.size < 2:
        raise ValueError(message(name, "n_bytes", "have two sizes at least", different.size))
    (a, b), best = _line(x, t)
    found = MessageTime(a, b)
    for limit in different[2:-3]:
        short = x <= limit
        (a, b), error = _line(x[short], t[short])
        (c, d), more = _line(x[~short], t[~short])
        if error + more < best:
            best, found = error + more, MessageTime(a, b, float(limit), c, d)
    return found


def _line(x: np.ndarray, t: np.ndarray) -> tuple[tuple[float, float], float]:
    """The line with the least sum of squared relative errors that does not fall, and that sum."""
    slope, weights = 0.0, 1.0 / t
    if np.unique(x).size > 1:
        (start, slope), *_ = np.linalg.lstsq(np.stack([weights, weights * x], axis=1), np.ones_like(t), rcond=None)
    if slope <= 0.0 or start < 0.0:
        if slope > 0.0:  # through zero
            start, slope = 0.0, float(np.sum(weights * x) / np.sum((weights * x) ** 2))
        else:
            start, slope = float(np.sum(weights) / np.sum(weights**2)), 0.0
    start, slope = float(f"{start:.12g}"), float(f"{slope:.12g}")
    return (start, slope), float(np.sum((weights * (start + slope * x) - 1.0) ** 2))


def fit_kernel(rows: Sequence[float], entries: Sequence[float], seconds: Sequence[float]) -> KernelTime:
    """Fit the seconds of a kernel by call, row and entry, none of them negative, with the least relative errors.

    Parameters
    ----------
    rows, entries : sequence of float
        Size of each measured matrix.
    seconds : sequence of float above zero, s

    Examples
    --------
    >>> time = fit_kernel([10, 100, 1000], [70, 700, 5000], [3.7e-06, 1e-05, 5.3e-05])
    >>> f"{time.overhead:.2g} {time.per_entry:.2g}"
    '3e-06 1e-08'
    """
    from scipy.optimize import nnls

    name = "fit_kernel"
    r, e, t = (
        real_array(values, name, argument, "be numbers")
        for values, argument in ((rows, "rows"), (entries, "entries"), (seconds, "seconds"))
    )
    require(r.ndim == 1 and r.shape == e.shape == t.shape, name, "seconds", f"have shape {r.shape}", t.shape)
    require(bool(np.all(t > 0.0)), name, "seconds", "be above zero", float(np.min(t, initial=np.inf)))
    table = np.stack([np.ones_like(r), r, e], axis=1) / t[:, None]
    scale = np.maximum(np.linalg.norm(table, axis=0), np.finfo(float).tiny)
    found = nnls(table / scale, np.ones_like(t))[0] / scale
    return KernelTime(*(float(value) for value in found))


def iteration_time(
    levels: Sequence[LevelLoad],
    network: Network,
    n_samples: int,
    *,
    product: KernelTime,
    level: KernelTime,
    vectors: KernelTime,
    coarse: KernelTime,
    degree: int = 2,
    ranks: int | None = None,
) -> IterationTime:
    """Return the seconds of one iteration of `cg` with a V-cycle of `smoothed_aggregation`, by the busiest ranks.

    A level makes ``2 degree`` products, a restriction and a prolongation, each with one exchange, in float32. The
    product of `cg` exchanges float64. An inner product is an all-reduce of 57 int64 numbers for each sample, in which
    sums are exact; the cycle in float32 needs the largest entry of the residual besides. Every rank gathers and solves
    the coarsest level.

    Parameters
    ----------
    levels : sequence of LevelLoad
        Loads from the finest level to the coarsest.
    network : Network
    n_samples : int
    product, level, vectors, coarse : KernelTime
        Times for `n_samples` samples: a product with the finest matrix, the kernels of a level, the vectors of an
        iteration, and the solution of the coarsest level, whose entries are those of a dense matrix.
    degree : int
        Degree of the Chebyshev smoother.
    ranks : int, optional
        Ranks of reductions and of the all-gather; default: those of the finest level.

    Examples
    --------
    >>> kernel = KernelTime(1e-6, 1e-9, 1e-9)
    >>> levels = [LevelLoad(1000, 27_000), LevelLoad(40, 1600, total_rows=40)]
    >>> time = iteration_time(levels, Network(MessageTime(1e-6, 1e-9)), 8, product=kernel, level=kernel,
    ...                       vectors=kernel, coarse=kernel)
    >>> time.messages, round(1e6 * time.kernels, 3), round(1e6 * time.coarse, 3)
    (0.0, 87.0, 2.64)
    """
    name = "iteration_time"
    require(len(levels) > 0, name, "levels", "have one level at least", len(levels))
    integer(n_samples, name, "n_samples", minimum=1)
    integer(degree, name, "degree", minimum=1)
    finest, last = levels[0], levels[-1]
    ranks = finest.ranks if ranks is None else integer(ranks, name, "ranks", minimum=1)
    smooth = levels[:-1]
    computed = product(finest.rows, finest.entries) + vectors(finest.rows, finest.entries)
    computed += sum(level(part.rows, part.entries) for part in smooth)
    of_levels = tuple(
        2 * degree * network.exchange(part.messages, 4.0 * n_samples * part.ghost_rows)
        + network.exchange(part.restriction_messages, 4.0 * n_samples * part.restriction_rows)
        + network.exchange(part.prolongation_messages, 4.0 * n_samples * part.prolongation_rows)
        for part in smooth
    )
    own = network.exchange(finest.messages, 8.0 * n_samples * finest.ghost_rows)
    rows = last.total_rows or last.rows
    at_end = network.gather(ranks, 4.0 * n_samples * rows) + coarse(rows, rows * rows)
    reduced = REDUCTIONS * network.reduction(ranks, 8.0 * ROW_LENGTH * n_samples)
    return IterationTime(computed, own + sum(of_levels), reduced, at_end, of_levels)
