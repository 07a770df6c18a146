"""All prefix sums of an associative operation, by the algorithms of the literature and by chunks.

Elements are tuples of arrays whose first axis is the series. An operation takes two such tuples of equal length and
combines them entry by entry, the earlier operand first; it need not commute.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ensemble._backend import array_namespace, assigned
from ensemble._check import integer, kind_of, message, one_of, require
from ensemble._keywords import explains_calls, explains_construction

__all__ = ["SCANS", "Sengupta", "check_scan", "prefix_scan"]

Elements = tuple[Any, ...]
Operation = Callable[[Elements, Elements], Elements]


@explains_construction("Sengupta")
@dataclass(frozen=True)
class Sengupta:
    """The scan of Sengupta, Lefohn and Owens with the length at which it changes: for `scan` and `algorithm`.

    Parameters
    ----------
    threshold : int, at least 1
        Entries at which Hillis and Steele's scan takes over; 1 descends to the last entry, as "sengupta" does.

    Raises
    ------
    TypeError, ValueError
        If `threshold` is no whole number of 1 or more.

    Examples
    --------
    >>> import numpy as np
    >>> prefix_scan(lambda a, b: (a[0] + b[0],), (np.arange(1, 6),), algorithm=Sengupta(2))[0]
    array([ 1,  3,  6, 10, 15])
    """

    threshold: int = 1

    def __post_init__(self) -> None:
        integer(self.threshold, "Sengupta", "threshold", minimum=1)


def check_scan(scan: Any, function: str, argument: str = "scan") -> None:
    """Raise unless `scan` is the name of an algorithm or a `Sengupta`."""
    if not isinstance(scan, Sengupta):
        one_of(scan, SCANS, function, argument)


@explains_calls("prefix_scan")
def prefix_scan(
    op: Operation,
    elements: Elements,
    *,
    algorithm: str | Sengupta = "chunked",
    reverse: bool = False,
    identity: Elements | None = None,
    threshold: int = 1,
    chunk: int | None = None,
) -> Elements:
    """Compute all partial results ``a[0], a[0] ∘ a[1], ..., a[0] ∘ ... ∘ a[T-1]`` of an associative operation.

    Parameters
    ----------
    op : callable, ``op(earlier, later) -> tuple``
        Associative; takes and returns tuples of arrays, entry i of the result made of entry i of both operands. If it
        has a method ``into(earlier, later, out)``, which writes the result into arrays that may be those of an operand,
        scans work in place where they can.
    elements : tuple of arrays, each of shape (T, ...)
        T >= 1, any number. Arrays of any Array API library, or Ensembles.
    algorithm : {"chunked", "sequential", "hillis_steele", "blelloch", "ladner_fischer", "sengupta"} or Sengupta
        "sequential" applies `op` T - 1 times to one entry; the others apply it to many entries at once:
        "hillis_steele" [1]_ in log2 T calls and T log2 T work, "blelloch" [2]_ in 2 log2 T calls, "ladner_fischer" [3]_
        in two calls fewer, "sengupta" [4]_ the same on separate levels, with Hillis-Steele once `threshold` entries are
        left; "chunked" scans chunks of `chunk` entries in parallel, then the chunks' totals, then joins the two.
    reverse : bool
        Scan from the end: entry k is ``a[k] ∘ ... ∘ a[T-1]``, operands still in their order in time.
    identity : tuple of arrays without the first axis, optional
        The element e with ``e ∘ a = a = a ∘ e``; "blelloch" needs it, the others never use it.
    threshold : int
        Entries at which "sengupta" changes to Hillis-Steele; 1 descends to the last entry. ``Sengupta(n)`` has its own.
    chunk : int, optional
        Entries of a chunk of "chunked"; about the square root of T where it is not given.

    Returns
    -------
    tuple of arrays, each of shape (T, ...)

    Raises
    ------
    TypeError
        If `elements` is no tuple of arrays.
    ValueError
        If lengths differ or are 0, the algorithm is unknown, or "blelloch" gets no identity element.

    References
    ----------
    .. [1] W. D. Hillis, G. L. Steele, Data parallel algorithms, Comm. ACM 29 (1986), 1170-1183.
    .. [2] G. E. Blelloch, Scans as primitive parallel operations, IEEE Trans. Comput. 38 (1989), 1526-1538.
    .. [3] R. E. Ladner, M. J. Fischer, Parallel prefix computation, J. ACM 27 (1980), 831-838.
    .. [4] S. Sengupta, A. E. Lefohn, J. D. Owens, A work-efficient step-efficient prefix sum algorithm, 2006.

    Examples
    --------
    >>> import numpy as np
    >>> (total,) = prefix_scan(lambda a, b: (a[0] + b[0],), (np.arange(1, 6),))
    >>> total
    array([ 1,  3,  6, 10, 15])
    """
    check_scan(algorithm, "prefix_scan", "algorithm")
    if isinstance(algorithm, Sengupta):
        threshold = algorithm.threshold
        algorithm = "sengupta"
    if not callable(op):
        raise TypeError(message("prefix_scan", "op", "be callable", kind_of(op)))
    if not isinstance(elements, tuple) or not elements or not all(getattr(a, "shape", ()) for a in elements):
        raise TypeError(
            message("prefix_scan", "elements", "be a tuple of arrays with one axis or more", repr(elements))
        )
    lengths = {a.shape[0] for a in elements}
    require(len(lengths) == 1, "prefix_scan", "elements", "be equally long on the first axis", sorted(lengths))
    require(lengths != {0}, "prefix_scan", "elements", "hold one entry or more", "none")
    options: dict[str, Any] = {}
    if algorithm == "blelloch":
        advice = "Give identity=, or use ladner_fischer, which needs none."
        require(identity is not None, "prefix_scan", "identity", "be given for blelloch", None, advice)
        fits = isinstance(identity, tuple) and len(identity) == len(elements)
        seen = kind_of(identity)  # never the arrays themselves: showing them would wait for a device
        require(fits, "prefix_scan", "identity", f"be a tuple of {len(elements)} arrays", seen, advice)
        options["identity"] = identity
    elif algorithm == "sengupta":
        options["threshold"] = integer(threshold, "prefix_scan", "threshold", minimum=1)
    elif algorithm == "chunked" and chunk is not None:
        options["chunk"] = integer(chunk, "prefix_scan", "chunk", minimum=1)
    op = _counted(op)
    if not reverse:
        return SCANS[algorithm](op, elements, **options)
    return _flip(SCANS[algorithm](_exchanged(op), _flip(elements), **options))


def _counted(op: Operation) -> Operation:
    """The operation, which must return as many arrays as it is given."""

    def counted(earlier: Elements, later: Elements) -> Elements:
        out = op(earlier, later)
        if not isinstance(out, tuple) or len(out) != len(earlier):
            seen = f"{len(out)} arrays" if isinstance(out, tuple) else kind_of(out)
            raise TypeError(message("prefix_scan", "op", f"return a tuple of {len(earlier)} arrays", seen))
        return out

    if hasattr(op, "into"):
        counted.into = op.into  # type: ignore[attr-defined]
    return counted


def _exchanged(op: Operation) -> Operation:
    """The operation with its operands exchanged."""

    def exchanged(earlier: Elements, later: Elements) -> Elements:
        return op(later, earlier)

    into = getattr(op, "into", None)
    if into is not None:
        exchanged.into = lambda earlier, later, out: into(later, earlier, out)  # type: ignore[attr-defined]
    return exchanged


def _flip(elements: Elements) -> Elements:
    xp = array_namespace(*elements)
    return tuple(xp.flip(a, axis=0) for a in elements)


def _cut(elements: Elements, key: Any) -> Elements:
    return tuple(a[key, ...] for a in elements)


def _join(*parts: Elements) -> Elements:
    """The parts one after another; empty ones are left out."""
    filled = [part for part in parts if part[0].shape[0]]
    if len(filled) == 1:
        return filled[0]
    xp = array_namespace(*filled[0])
    return tuple(xp.concat(list(arrays), axis=0) for arrays in zip(*filled, strict=True))


def _copied(elements: Elements) -> Elements:
    xp = array_namespace(*elements)
    return tuple(xp.asarray(a, copy=True) for a in elements)


def _put(elements: Elements, key: Any, values: Elements) -> Elements:
    return tuple(assigned(_wide(a, value), (key, ...), value) for a, value in zip(elements, values, strict=True))


def _wide(a: Any, value: Any) -> Any:
    """`a`, or a copy with the samples of `value` where it holds one for all: sums of shared entries may differ."""
    if getattr(value, "n_samples", 1) == 1 or a.n_samples > 1:
        return a
    return array_namespace(a, value).concat([a, value[:0, ...]], axis=0)


def _fill(op: Operation, a: Elements, key: Any, earlier: Elements, later: Elements) -> Elements:
    """`a` after ``a[key] = op(earlier, later)``."""
    into = getattr(op, "into", None)
    if into is None:
        return _put(a, key, op(earlier, later))
    into(earlier, later, _cut(a, key))
    return a


def _empty_like(elements: Elements) -> Elements:
    xp = array_namespace(*elements)
    return tuple(xp.empty_like(a) for a in elements)


def sequential(op: Operation, a: Elements) -> Elements:
    """One entry after another."""
    total, parts = _cut(a, slice(0, 1)), [_cut(a, slice(0, 1))]
    for k in range(1, a[0].shape[0]):
        total = op(total, _cut(a, slice(k, k + 1)))
        parts.append(total)
    return _join(*parts)


def hillis_steele(op: Operation, a: Elements) -> Elements:
    """Each entry takes in the one 1, 2, 4, ... places before it."""
    distance, length = 1, a[0].shape[0]
    while distance < length:
        first, earlier, later = slice(0, distance), slice(0, length - distance), slice(distance, length)
        if hasattr(op, "into"):
            a = _fill(op, _put(_empty_like(a), first, _cut(a, first)), later, _cut(a, earlier), _cut(a, later))
        else:
            a = _join(_cut(a, first), op(_cut(a, earlier), _cut(a, later)))
        distance *= 2
    return a


def _up_sweep(op: Operation, a: Elements, levels: int) -> Elements:
    length = a[0].shape[0]
    for d in range(levels):
        step, half = 2 ** (d + 1), 2**d
        right = slice(step - 1, length, step)
        left = slice(half - 1, half + step * (len(range(*right.indices(length))) - 1), step)
        a = _fill(op, a, right, _cut(a, left), _cut(a, right))
    return a


def ladner_fischer(op: Operation, a: Elements) -> Elements:
    """The circuit of Ladner and Fischer in place: a tree of partial results up, the gaps filled in the pass down."""
    length = a[0].shape[0]
    levels = length.bit_length() - 1
    a = _up_sweep(op, _copied(a), levels)
    for d in range(levels - 1, -1, -1):
        step, half = 2 ** (d + 1), 2**d
        gap = slice(step + half - 1, length, step)
        count = len(range(*gap.indices(length)))
        if count:
            done = slice(step - 1, step * count, step)
            a = _fill(op, a, gap, _cut(a, done), _cut(a, gap))
    return a


def blelloch(op: Operation, a: Elements, identity: Elements) -> Elements:
    """Up-sweep, identity element at the root, down-sweep to the exclusive scan, and one more pass to the inclusive."""
    xp = array_namespace(*a)
    original, length = a, a[0].shape[0]
    levels = (length - 1).bit_length()
    size = 2**levels
    one = tuple(xp.expand_dims(xp.asarray(e), axis=0) for e in identity)
    fill = tuple(xp.broadcast_to(e, (size - length, *x.shape[1:])) for e, x in zip(one, a, strict=True))
    a = _up_sweep(op, _join(_copied(a), fill), levels)
    last = tuple(xp.broadcast_to(e, (1, *x.shape[1:])) for e, x in zip(one, a, strict=True))
    a = _put(a, slice(size - 1, size), last)
    for d in range(levels - 1, -1, -1):
        step, half = 2 ** (d + 1), 2**d
        right, left = slice(step - 1, size, step), slice(half - 1, size, step)
        lower = _copied(_cut(a, left))
        a = _put(a, left, _cut(a, right))
        a = _fill(op, a, right, _cut(a, right), lower)
    return op(_cut(a, slice(0, length)), original)


def sengupta(op: Operation, a: Elements, threshold: int = 1) -> Elements:
    """Pairs are joined level by level down to `threshold` entries, which Hillis-Steele scans; then back up."""
    length = a[0].shape[0]
    if length <= max(threshold, 1):
        return hillis_steele(op, a)
    paired = length - length % 2
    pairs = op(_cut(a, slice(0, paired, 2)), _cut(a, slice(1, paired, 2)))
    odd_places = sengupta(op, pairs, threshold)  # entries 1, 3, 5, ... of the result
    count = (length - 1) // 2
    if hasattr(op, "into"):
        whole = _put(_put(_empty_like(a), slice(0, 1), _cut(a, slice(0, 1))), slice(1, length, 2), odd_places)
        even = slice(2, length, 2)
        return _fill(op, whole, even, _cut(odd_places, slice(0, count)), _cut(a, even)) if count else whole
    even_places = _cut(a, slice(0, 1))
    if count:
        even_places = _join(even_places, op(_cut(odd_places, slice(0, count)), _cut(a, slice(2, length, 2))))
    return _interleaved(even_places, odd_places, length)


def _interleaved(even: Elements, odd: Elements, length: int) -> Elements:
    xp = array_namespace(*even)
    out: list[Any] = []
    for first, second in zip(even, odd, strict=True):
        paired = xp.stack([first[: second.shape[0], ...], second], axis=1)
        whole = xp.reshape(paired, (2 * second.shape[0], *second.shape[1:]))
        out.append(whole if length % 2 == 0 else xp.concat([whole, first[-1:, ...]], axis=0))
    return tuple(out)


def chunked(op: Operation, a: Elements, chunk: int | None = None) -> Elements:
    """Chunks scanned in parallel, their totals scanned, and each chunk joined with the total before it."""
    xp = array_namespace(*a)
    length = a[0].shape[0]
    chunk = max(1, math.isqrt(length)) if chunk is None else min(chunk, length)
    n_chunks = length // chunk
    whole = n_chunks * chunk
    if chunk == 1:
        return hillis_steele(op, a)
    columns = tuple(xp.reshape(x[:whole, ...], (n_chunks, chunk, *x.shape[1:])) for x in a)
    total = tuple(x[:, 0, ...] for x in columns)
    local = [total]
    for k in range(1, chunk):
        total = op(total, tuple(x[:, k, ...] for x in columns))
        local.append(total)
    inside = tuple(xp.stack(list(arrays), axis=1) for arrays in zip(*local, strict=True))
    flat = tuple(xp.reshape(x, (whole, *x.shape[2:])) for x in inside)
    if n_chunks > 1:
        before = _cut(hillis_steele(op, total), slice(0, n_chunks - 1))
        spread = tuple(xp.repeat(x, chunk, axis=0) for x in before)
        flat = _join(_cut(flat, slice(0, chunk)), op(spread, _cut(flat, slice(chunk, whole))))
    if whole == length:
        return flat
    rest = hillis_steele(op, _cut(a, slice(whole, length)))
    end = tuple(xp.repeat(x[-1:, ...], length - whole, axis=0) for x in flat)
    return _join(flat, op(end, rest))


SCANS: dict[str, Callable[..., Elements]] = {
    "chunked": chunked,
    "sequential": sequential,
    "hillis_steele": hillis_steele,
    "blelloch": blelloch,
    "ladner_fischer": ladner_fischer,
    "sengupta": sengupta,
}
"""Every algorithm by its name."""
