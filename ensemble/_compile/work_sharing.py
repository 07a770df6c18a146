"""Work sharing: loops over ranges whose parts run on several threads.

    @work_sharing
    def scale(x, factor):
        n = x.size
        for i in prange(n):
            x[i] *= factor

Each thread runs one part of the range. What stands before the loop is computed by every thread: assignments that do not
write. The loop is translated by `loops/` where its statements and the types of its arguments are in their language, and
compiled by Numba otherwise, as a ``parallel`` function: the results have the same bits.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numba
import numpy as np
from numba import types

from ensemble._compile.kernel_cache import cached
from ensemble._compile.loops.native_call import (
    ALL_THREADS,
    BY_SIZE,
    ONE_THREAD,
    SMALL,
    Kind,
    can_call,
    flat_types,
    kinds_of,
    native,
    table_of,
)
from ensemble._compile.loops.reader import reader_code
from ensemble._compile.loops.scope import TranslationError
from ensemble._compile.loops.translation import Form, last_loop, loop_code
from ensemble._compile.machine_code import Code
from ensemble._compile.recording import note, note_gap, recordings
from ensemble._interrupts import shielded

__all__ = [
    "ALL_THREADS", "BY_SIZE", "ONE_THREAD", "SMALL", "WorkSharing", "any_is_large", "one_thread", "procedure",
    "work_sharing",
]  # fmt: skip


def any_is_large(arguments: Sequence[Any]) -> bool:
    """Whether an array among the arguments has more than `SMALL` elements."""
    return any(type(a) is np.ndarray and a.size > SMALL for a in arguments)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Kernels called in this context run on the calling thread: for callers that have a thread for each problem."""
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(threads)


def part_by_numba(function: Callable[..., Any], kinds: Sequence[Kind]) -> Any:
    """Compile ``part(*arguments, low, high)`` of `loop_module` by Numba, as a C function that returns an integer."""
    names: list[str] = []
    flat: list[types.Type] = []

    def taken(kind: Kind) -> str:
        """Write the argument of `function` that has this kind as an expression of the C function's arguments."""
        if isinstance(kind, tuple):
            return "(" + "".join(f"{taken(part)}, " for part in kind) + ")"
        name = f"a{len(names)}"
        names.append(name)
        if not isinstance(kind, types.Array):
            flat.append(kind)
            return name
        extents = [f"{name}_{k}" for k in range(kind.ndim)]
        names.extend(extents)
        flat.extend([types.CPointer(kind.dtype), *[types.int64] * kind.ndim])
        return f"carray({name}, ({', '.join(extents)},))"

    passed = ", ".join(taken(kind) for kind in kinds)
    scope: dict[str, Any] = {"carray": numba.carray, "function": numba.njit(nogil=True, error_model="numpy")(function)}
    exec(f"def part({', '.join([*names, 'low', 'high'])}):\n    return function({passed})\n", scope)
    return shielded(lambda: numba.cfunc(types.int64(*flat, types.int64, types.int64))(scope["part"]))


MOST_FORMS = 64
"""Forms of arguments that a function compares with: types of numbers and tuples, names of one dtype."""


class WorkSharing:
    """A function that is compiled when it is first called, and for every new kind of arguments."""

    def __init__(self, function: Callable[..., None], options: dict[str, Any], form: Form) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options, self._form, self._alone = function, options, form, form.alone
        self._translated: list[tuple[dict[int, Any], Any]] = []
        """For each form of arguments: the compiled function by `threads`, and what it refers to."""
        self._codes: dict[tuple[Kind, ...], Code] = {}
        """Machine code by the kinds of arguments: forms of one kind share it."""
        self._called: dict[tuple[Kind, ...], Code] = {}
        """The same, for callers by `address`."""
        self._refused: set[tuple[Kind, ...]] = set()
        """Kinds of arguments for which Numba compiles the function."""
        self.by_numba = ""
        """Why it does, the last time."""
        self._c_function: Any = None
        """What `address` refers to where Numba compiled it."""

    @functools.cached_property
    def dispatcher(self) -> Any:
        """The function compiled by Numba."""
        return cached(numba.njit(parallel=not self._alone, **self._options)(self._function))

    def __call__(self, *arguments: Any, threads: int = ALL_THREADS) -> Any:
        """Run the loop on `ALL_THREADS` that Numba may use now, on `ONE_THREAD`, the calling one, or `BY_SIZE`."""
        threads = ONE_THREAD if self._alone else threads
        for calls, _ in self._translated:
            if found := calls[threads](*arguments):
                if recordings:
                    note(calls[threads], arguments)
                return found - 1
        made = None if self.by_numba and not self._translated else self._translate(arguments)
        if made is not None and (found := made[0][threads](*arguments)):
            note(made[0][threads], arguments)
            return found - 1
        note_gap()
        alone = threads == ONE_THREAD or (threads == BY_SIZE and not any_is_large(arguments))
        with one_thread() if alone and not self._alone else contextlib.nullcontext():
            return self.dispatcher(*arguments)

    def by_size(self, *arguments: Any) -> Any:
        """The same on threads `BY_SIZE`."""
        for calls, _ in self._translated:
            if found := calls[BY_SIZE](*arguments):
                if recordings:
                    note(calls[BY_SIZE], arguments)
                return found - 1
        return self(*arguments, threads=BY_SIZE)

    def prepare(self, *arguments: Any) -> None:
        """Compile for such arguments, without a call."""
        if kinds_of(arguments) in self._codes:
            return
        if (self.by_numba and not self._translated) or self._translate(arguments) is None:
            self.dispatcher.compile(tuple(numba.typeof(argument) for argument in arguments))

    def address(self, *arguments: Any) -> int:
        """Where ``part(*arguments, low, high)`` of `loop_module` lies for arguments of these kinds, and stays."""
        kinds = kinds_of(arguments)
        assert kinds is not None
        try:
            if kinds not in self._called:
                self._called[kinds] = loop_code(self._function, kinds, self._form._replace(in_words=False))
            return self._called[kinds]["part"]
        except TranslationError as why:
            self.by_numba = str(why)
            self._c_function = part_by_numba(self._function, kinds)
            return int(self._c_function.address)

    def _code(self, kinds: tuple[Kind, ...]) -> Code:
        """The machine code for arguments of these kinds; it stays."""
        if kinds not in self._codes:
            self._codes[kinds] = loop_code(self._function, kinds, self._form)
        return self._codes[kinds]

    def _translate(self, arguments: tuple[Any, ...]) -> tuple[dict[int, Any], Any] | None:
        """The function for arguments of these kinds; None where Numba compiles it."""
        if not self._alone:
            last_loop(self._function)
        kinds = kinds_of(arguments) if can_call() else None
        if kinds is None or kinds in self._refused:
            return None
        try:
            code = self._code(kinds)
        except TranslationError as why:
            self.by_numba = str(why)
            self._refused.add(kinds)
            return None
        places = reader_code()["call"], code.get("count"), code["part"], len(flat_types(kinds))
        modes = (ALL_THREADS, ONE_THREAD, BY_SIZE)
        rows, held = table_of(arguments, kinds)
        calls = {mode: native(*places, rows, ONE_THREAD if self._alone else mode) for mode in modes}
        made = calls, held
        self._translated = [*self._translated, made][-MOST_FORMS:]
        return made


def work_sharing(function: Callable[..., None], *, unrolled: bool = False, **options: Any) -> WorkSharing:
    """Compile a function that ends in ``for i in prange(n)``; `options` are Numba's.

    `unrolled` is for short loops that are measured to be faster so: see `Statements.unroll_where_it_pays`.
    """
    return WorkSharing(function, options, Form(alone=False, unrolled=unrolled))


def procedure(function: Callable[..., None], *, unrolled: bool = False, **options: Any) -> WorkSharing:
    """Compile a function that runs on the calling thread; `options` are Numba's, `unrolled` as of `work_sharing`.

    It returns nothing or an integer that is not negative.
    """
    return WorkSharing(function, options, Form(alone=True, unrolled=unrolled))
