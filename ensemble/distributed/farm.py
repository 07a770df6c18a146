"""`farm`: samples dealt to ranks, each of which runs a function of its own samples, and the results joined."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from ensemble._backend import array_namespace, is_array
from ensemble._check import integer, kind_of, message, require
from ensemble._keywords import explains_calls
from ensemble._sample_numbers import numbered_samples, sample_numbers
from ensemble.distributed.agreement import agreement, require_communicator, require_same
from ensemble.distributed.messages import meet
from ensemble.scalar import Ensemble
from ensemble.scalar.namespace import set_of

__all__ = ["farm"]


@explains_calls("farm")
def farm(comm: Any, function: Callable[..., Any], *samples: Any, n_samples: int | None = None) -> Any:
    """Return what `function` returns for all samples, of which each rank runs its own.

    Every rank calls this with the same arguments: ``distributed.farm(comm, lambda y0, p: ode.solve(f, y0, (0, 10),
    p=p), y0, p)``. A rank calls `function` once, with consecutive samples of every Ensemble among `samples` and with
    all else as it is. Results are joined in the order of the samples, on every rank. Where a sample's result does not
    depend on the samples beside it, as in `ode.solve` and `Gbees`, results have the same bits on any number of ranks.

    Parameters
    ----------
    comm : communicator of mpi4py, `distributed.devices` or `distributed.serial()`
    function : callable
        What it returns is joined part by part:

        - Ensembles, and results of `ode.solve`, along their samples;
        - arrays along their last axis, which must be that of the samples;
        - lists, of one entry for each sample, one behind the other;
        - values of tuples, dicts and dataclasses, each by itself;
        - all else must be equal on all ranks.
    *samples
        At least one Ensemble of several samples, unless `n_samples` is given; all of one number of samples.
    n_samples : int, optional
        The number of samples where `samples` are no Ensembles: then `function` gets the numbers of its samples first,
        an array of integers.

    Returns
    -------
    What `function` returns

    Raises
    ------
    TypeError, ValueError
        If an argument or a result does not fit.
    Exception
        What `function` raised on one rank is raised on all, that of the lowest rank where several did.

    Notes
    -----
    Each rank runs its samples to their end: samples of very different cost leave ranks idle. `groups` hands out parts
    to those that are free. A rank has two samples of Ensembles at least, or none: with fewer than two for each rank,
    some ranks wait. Results travel through the memory of the hosts, those on GPUs too.

    Examples
    --------
    >>> from ensemble import Ensemble, distributed, ode
    >>> rates = Ensemble(np.linspace(0.0, 1.0, 5))
    >>> decay = lambda p: ode.solve(lambda t, y, p, xp: [-p[0] * y[0]], [1.0], (0.0, 1.0), p=[p])
    >>> distributed.farm(distributed.serial(), decay, rates).y.samples.round(4)
    array([[1.    , 0.7788, 0.6065, 0.4724, 0.3679]])
    """
    require_communicator(comm, "farm")
    with agreement(comm):
        n = _number_of_samples(samples, n_samples)
    require_same(comm.allgather(n), "farm", "the number of samples")
    # one sample of an Ensemble is shared data, of which functions return no Ensembles: two at least
    active = min(comm.size, n if n_samples is not None else n // 2)
    ends = n * np.minimum(np.arange(comm.size + 1), active) // active
    counts = np.diff(ends)
    first, last = (int(end) for end in ends[comm.rank : comm.rank + 2])
    result: Any = None
    with agreement(comm):
        if last > first:
            own = np.arange(first, last)
            outer = sample_numbers()
            with numbered_samples(own if outer is None else outer[own]):
                parts = [_taken(x, own, n) for x in samples]
                result = function(*([own] if n_samples is not None else []), *parts)
    if comm.size == 1:
        return result
    meet(comm)
    told = comm.allgather(result)
    known = [(value, int(count)) for value, count in zip(told, counts, strict=True) if count]
    return _joined([value for value, _ in known], [count for _, count in known], set_of(*samples), "the result")


def _number_of_samples(samples: tuple[Any, ...], n_samples: int | None) -> int:
    """How many samples there are."""
    found = {x.n_samples for x in samples if isinstance(x, Ensemble) and x.n_samples > 1}
    require(len(found) <= 1, "farm", "samples", "have one number of samples", f"{sorted(found)}")
    if n_samples is not None:
        n = integer(n_samples, "farm", "n_samples", minimum=1)
        require(found <= {n}, "farm", "n_samples", f"be that of the Ensembles, {sorted(found)}", f"{n}")
        return n
    if not found:
        seen = ", ".join(kind_of(x) for x in samples) or "none"
        raise TypeError(message("farm", "samples", "have an Ensemble of several samples", seen, "Or give n_samples=."))
    return int(found.pop())


def _taken(x: Any, own: np.ndarray, n: int) -> Any:
    """The own samples of an Ensemble; all else as it is."""
    return x.take_samples(own) if isinstance(x, Ensemble) and x.n_samples == n > 1 else x


def _joined(values: list[Any], counts: list[int], sample_set: Any, what: str) -> Any:
    """The results of all ranks as one."""
    first, kind = values[0], cast(Any, type(values[0]))
    require(len({type(value) for value in values}) == 1, "farm", what, "be of one type on all ranks",
            " and ".join(sorted({kind_of(value) for value in values})))  # fmt: skip
    if isinstance(first, Ensemble):
        return _joined_ensembles(values, counts, sample_set, what)
    if hasattr(kind, "joined"):
        return kind.joined(values, counts, sample_set)

    def again(parts: list[Any], name: str) -> Any:
        return _joined(parts, counts, sample_set, f"{name} of {what}")

    if isinstance(first, dict):
        require_same([list(value) for value in values], "farm", f"keys of {what}")
        return {key: again([value[key] for value in values], repr(key)) for key in first}
    if isinstance(first, list):
        fits = all(len(value) == count for value, count in zip(values, counts, strict=True))
        seen = f"{[len(value) for value in values]} for {counts}"
        require(fits, "farm", what, "have one entry for each sample", seen, "A tuple is joined entry by entry.")
        return [entry for value in values for entry in value]
    if isinstance(first, tuple):
        require_same([len(value) for value in values], "farm", f"the length of {what}")
        parts = [again([value[k] for value in values], f"entry {k}") for k in range(len(first))]
        return kind(*parts) if hasattr(first, "_fields") else tuple(parts)
    if dataclasses.is_dataclass(first):
        names = [field.name for field in dataclasses.fields(first) if field.init]
        return kind(**{name: again([getattr(value, name) for value in values], name) for name in names})
    if is_array(first) and first.ndim:
        fits = all(value.shape[-1] == count for value, count in zip(values, counts, strict=True))
        seen = f"shapes {[tuple(value.shape) for value in values]} for {counts} samples"
        require(fits, "farm", what, "have its last axis for the samples", seen, "Return an Ensemble, or a list.")
        return array_namespace(*values).concat(values, axis=-1)
    different = next((value for value in values if not _same(value, first)), None)
    advice = "Return an Ensemble, an array with an entry for each sample, or a list."
    require(different is None, "farm", what, "be equal on all ranks", f"{first!r} and {different!r}", advice)
    return first


def _same(value: Any, first: Any) -> bool:
    """Whether two values that have no samples are equal; NaN is equal to itself."""
    return bool(value is first or value == first or (value != value and first != first))


def _joined_ensembles(values: list[Ensemble], counts: list[int], sample_set: Any, what: str) -> Ensemble:
    """Ensembles one behind the other; one that all ranks share stays shared."""
    arrays = [value.samples for value in values]
    xp = array_namespace(*arrays)
    fits = all(a.shape[-1] in (1, count) for a, count in zip(arrays, counts, strict=True))
    seen = f"{[a.shape[-1] for a in arrays]} for {counts}"
    require(fits, "farm", what, "have the samples that the function was given", seen)
    if any(count > 1 for count in counts) and all(a.shape[-1] == 1 for a in arrays):
        same = all(a.shape == arrays[0].shape and bool(xp.all(a == arrays[0])) for a in arrays)
        if same:
            return values[0]
    wide = [xp.broadcast_to(a, (*a.shape[:-1], count)) for a, count in zip(arrays, counts, strict=True)]
    return Ensemble(xp.concat(wide, axis=-1), sample_set)
