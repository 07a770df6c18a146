"""Sample sets in the trees of JAX: a function that is traced once serves all sets of one form.

A set is no value of a traced function: JAX knows it as part of the structure of the arguments, and traces a function
anew for another structure. So `SetKey`, the set in a structure, equals the key of another set of the same form, but:

- a trace that has read weights, points, ids or the seed of a set serves equal sets alone;
- arguments whose sets were equal in the trace have equal sets in every call that it serves: where two ensembles are
  combined, the error of different sets comes in each call.

The result of a compiled function gets the set of that argument of the call from which the traced result has its own.
JAX compares the arguments of a call with those of the trace and, without running code of the user, builds its results:
the keys that were compared last are those of the call. Where this cannot be known the result has no set, and never that
of another call.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

from ensemble.scalar.sample_set import SampleSet

__all__ = ["SetKey", "TracedSet", "key_of", "remember", "set_of"]

MOST_KEYS = 64
"""Keys of the last calls that are remembered; a function of more ensembles gives results without a set."""


class Arguments:
    """How many ensembles with a set a traced function takes."""

    def __init__(self) -> None:
        self.count = 0


class Recent(threading.local):
    """What a thread has done last: the keys of sets it has made, the trace it has begun, the keys it has compared.

    `built` counts ensembles of traced values: the arguments of a call are taken apart before the first of them is.
    """

    def __init__(self) -> None:
        self.keys: list[tuple[int, weakref.ref[SampleSet]]] = []
        self.serials = itertools.count()
        self.built = 0
        self.arguments = Arguments()
        self.compared: list[Pair] = []
        self.results: dict[int, tuple[weakref.ref[Any], SetKey]] = {}


RECENT = Recent()
NUMBERS = itertools.count()
EPOCH = [0]
"""How often arguments of traced functions have been built: keys of one epoch are those of one operation on trees."""

USED = "_used_by_traces"
"""Attribute of a set that a trace has read: keys of it are equal to those of equal sets alone."""


class SetKey:
    """The sample set of an ensemble in a structure of JAX.

    Attributes
    ----------
    given : SampleSet
        A `TracedSet` where the ensemble is that of a traced function.
    form : tuple
        What keys of one trace have in common.
    number, serial : int
        Counts of keys, in all threads and in one: the keys of a structure are consecutive in one.
    arguments, place : Arguments, int
        The arguments of the traced function, and the place among them: of the key of one of them.
    origin : SetKey or None
        The key of the traced result, where the ensemble is the result of a traced function.
    repeated : bool
        Whether JAX keeps it for the results of later calls.
    """

    __slots__ = (
        "arguments", "built", "epoch", "form", "given", "number", "origin", "place", "repeated", "serial", "thread"
    )  # fmt: skip

    def __init__(self, given: SampleSet) -> None:
        self.given, self.form = given, form_of_any(given)
        if not isinstance(given, TracedSet):
            hash(given)  # keys are compared inside JAX's caches, where hashing would let other threads in
        self.number, self.serial, self.epoch = next(NUMBERS), next(RECENT.serials), EPOCH[0]
        self.thread, self.built = threading.get_ident(), RECENT.built
        self.arguments: Arguments | None = None
        self.place = 0
        self.origin: SetKey | None = None
        self.repeated = False

    def __hash__(self) -> int:
        return hash(self.form)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, SetKey) or self.form != other.form:
            return False
        if (used(self.given) or used(other.given)) and not equal_values(self.given, other.given):
            return False
        traced = isinstance(self.given, TracedSet) or isinstance(other.given, TracedSet)
        if self.epoch == other.epoch and not traced and self.given != other.given:  # `jax.tree.map` of two ensembles
            return False
        served, asked = (self, other) if self.number < other.number else (other, self)
        before = RECENT.compared
        if not before or not before[-1].is_beside(served, asked):
            before = RECENT.compared = []  # JAX compares the keys of two structures one after the other
        for pair in before:
            if root(pair.served.given) == root(served.given) and pair.set() != root(asked.given):
                return False
        before.append(
            Pair(served, asked.serial, asked.number, weakref.ref(root(asked.given)), weakref.ref(asked.given))
        )
        del before[:-MOST_KEYS]
        return True

    def __repr__(self) -> str:
        return repr(self.given)


class Pair(NamedTuple):
    """Two keys that were compared: that of a trace, and number and set of one for which the trace is to serve.

    `given` is another object than `set` where the second key is that of a traced set.
    """

    served: SetKey
    serial: int
    number: int
    set: weakref.ref[SampleSet]
    given: weakref.ref[SampleSet]

    def is_beside(self, served: SetKey, asked: SetKey) -> bool:
        """Whether two keys may stand beside these in their structures."""
        return abs(served.serial - self.served.serial) == 1 == abs(asked.serial - self.serial)


def used(sample_set: SampleSet) -> bool:
    """Whether a trace depends on the values of a set."""
    return USED in vars(sample_set)


def root(sample_set: SampleSet) -> SampleSet:
    """The set that a traced set stands for."""
    while isinstance(sample_set, TracedSet):
        sample_set = sample_set.key.given
    return sample_set


def form_of(sample_set: SampleSet) -> tuple[Any, ...]:
    """What a trace may know of a set without depending on its values."""
    arrays = (sample_set.points, sample_set.weights, sample_set.ids)
    shapes = tuple(None if array is None else (array.shape, array.dtype.str) for array in arrays)
    return (sample_set.n_samples, sample_set.method, sample_set.seed is None, shapes)


class TracedSet(SampleSet):
    """The set of an ensemble inside a traced function: what is read of it becomes part of what the trace serves."""

    __slots__ = ("key",)

    key: SetKey

    def __init__(self, key: SetKey) -> None:
        object.__setattr__(self, "key", key)

    @property
    def form(self) -> tuple[Any, ...]:
        """The form of the set."""
        return self.key.form

    def whole(self) -> SampleSet:
        """The set that the function is traced with; the trace serves it and equal ones alone from now on."""
        given = self.key.given
        vars(given)[USED] = True
        return given.whole() if isinstance(given, TracedSet) else given

    @property
    def n_samples(self) -> int:  # type: ignore[override]
        """As of a `SampleSet`."""
        return int(self.key.form[0])

    @property
    def method(self) -> str:  # type: ignore[override]
        """As of a `SampleSet`."""
        return str(self.key.form[1])

    @property
    def points(self) -> np.ndarray | None:  # type: ignore[override]
        """As of a `SampleSet`."""
        return None if self.key.form[3][0] is None else self.whole().points

    @property
    def weights(self) -> np.ndarray | None:  # type: ignore[override]
        """As of a `SampleSet`."""
        return None if self.key.form[3][1] is None else self.whole().weights

    @property
    def ids(self) -> np.ndarray:  # type: ignore[override]
        """As of a `SampleSet`."""
        return self.whole().ids

    @property
    def seed(self) -> int | None:  # type: ignore[override]
        """As of a `SampleSet`."""
        return None if self.key.form[2] else self.whole().seed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SampleSet) and same(self, other)

    def __hash__(self) -> int:
        return hash(self.whole())

    def __reduce__(self) -> Any:
        return self.whole().__reduce__()

    def __repr__(self) -> str:
        return f"SampleSet(n_samples={self.n_samples}, traced)"


def same(a: SampleSet, b: SampleSet) -> bool:
    """Whether two sets are equal; a trace depends on the answer where one of them is none of its arguments."""
    if isinstance(a, TracedSet) and isinstance(b, TracedSet):
        return root(a) == root(b)
    return equal_values(a, b)


def equal_values(a: SampleSet, b: SampleSet) -> bool:
    """Whether two sets are equal, where a trace depends on their values."""
    wholes = [one.whole() if isinstance(one, TracedSet) else one for one in (a, b)]
    return bool(wholes[0] == wholes[1])


def key_of(x: Any) -> SetKey | None:
    """The key of the set of an ensemble that JAX takes apart."""
    if x.sample_set is None:
        return None
    key = SetKey(x.sample_set)
    if isinstance(x.sample_set, TracedSet):
        return key
    reference, origin = RECENT.results.get(id(x), (None, None))
    if origin is not None and reference is not None and reference() is x:
        key.origin = origin
    if sys._getframe(2).f_code.co_name == "reflatten_outputs_for_dispatch":
        key.repeated = True
    else:
        RECENT.results = RECENT.results if key.origin else {}
        RECENT.arguments = Arguments()
        RECENT.keys.append((key.number, weakref.ref(x.sample_set)))
        del RECENT.keys[:-MOST_KEYS]
    return key


def set_of(key: SetKey | None, leaf: Any) -> SampleSet | None:
    """The set of an ensemble that JAX builds of a leaf: a traced one of traced values."""
    if key is None:
        return None
    jax = sys.modules["jax"]
    if isinstance(leaf, jax.core.Tracer):
        EPOCH[0] += 1
        RECENT.built += 1
        if isinstance(key.given, TracedSet):
            return set_in_trace(key)
        if key.arguments is None:
            key.arguments, key.place = RECENT.arguments, RECENT.arguments.count
            key.arguments.count += 1
        return TracedSet(key)
    if not isinstance(leaf, (jax.Array, np.ndarray)):  # a placeholder
        return key.given
    if isinstance(key.given, TracedSet):
        return result_set(key, key)
    if key.origin is None:
        return key.given
    if key.repeated:
        return result_set(key, key.origin)
    others = (found() for number, found in RECENT.keys if number > key.number)
    return None if any(one is None or (form_of(one) == key.form and one != key.given) for one in others) else key.given


def set_in_trace(key: SetKey) -> SampleSet | None:
    """The set of an ensemble of traced values, whose key is one of a traced set.

    Where the values are those of a function that was traced before, for another call, it is that of the argument of
    this call: its keys were compared after `key` was made with those taken apart together with the trace's own.
    """
    if branch := compared_with(key):
        return branch.given()
    source = key
    while isinstance(source.given, TracedSet):
        source = source.given.key
        made = source.thread, source.built
        call = [p for p in RECENT.compared if p.number > key.number and (p.served.thread, p.served.built) == made]
        if call:
            return set_of_argument(sorted(call, key=lambda p: p.serial), source)
    return TracedSet(key)


def compared_with(key: SetKey) -> Pair | None:
    """The keys of a result that JAX has compared: those of the branches of `jax.lax.cond`, of which one is new."""
    own = [p for p in RECENT.compared if p.served is key and p.set is not p.given]
    return own[-1] if own else None


def set_of_argument(call: list[Pair], source: SetKey) -> SampleSet | None:
    """The set of the argument of a call at the place of `source` among those of its trace; None if it is gone."""
    if all(p.set() == call[0].set() for p in call):
        return call[0].given()
    first = min(p.served.serial for p in call)
    found = call[(source.serial - first) % len(call)].given()  # JAX takes the arguments apart more than once
    return found if found is not None and form_of_any(found) == source.form else None


def form_of_any(sample_set: SampleSet) -> tuple[Any, ...]:
    """The form of a set, traced or not."""
    return sample_set.form if isinstance(sample_set, TracedSet) else form_of(sample_set)


def remember(x: Any, key: SetKey | None) -> None:
    """Note that an ensemble is the result of a traced function."""
    if key is not None and (key.repeated or isinstance(key.given, TracedSet)) and type(x.sample_set) is SampleSet:
        RECENT.results[id(x)] = weakref.ref(x), key if key.origin is None else key.origin


def result_set(key: SetKey, result: SetKey) -> SampleSet | None:
    """The set of a result: that of the trace in the call that traced, later that of the argument it came from."""
    source = result
    while isinstance(source.given, TracedSet):
        source = source.given.key
    other = key.thread != threading.get_ident()  # its results come here by calls alone
    if branch := compared_with(key):
        return branch.set()
    compared = [p for p in RECENT.compared if p.set is p.given]  # no results, which JAX compares after a trace
    call = sorted((p for p in compared if other or p.number > key.number), key=lambda p: p.serial)
    if not call and not other:
        return source.given
    if source.arguments is None or source.arguments.count != len(call):
        return None
    found = call[source.place].set()
    return found if found is not None and form_of(found) == key.form else None
