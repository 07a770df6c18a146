"""Loops over ranges of rows, translated from their syntax trees to LLVM without Numba's pipeline.

Numba infers types over the whole function, and translates functions that it calls as functions of their own, twice.
Loops of kernels have one type for each variable, known where it is first assigned: here each statement is translated as
it is read, and the statements of called functions (`inner`, `spliced`) with those of the caller. It takes a third of
the time, and the machine code is kept on disk. Results have the bits of the code that Numba makes: operations on lanes
are those of `lanes/`, nothing is reassociated or contracted.

The language is a part of what Numba compiles: numbers, arrays in C order, lanes and tuples; assignments, ``if``,
``while``, ``for`` over ranges and tuples, ``break``, ``continue``, ``return``, arithmetic, comparisons, ``min``,
``max``, ``abs``, ``len``, square roots, ``np.rint``, NumPy's scalar types, ``new``, ``np.empty`` and ``np.zeros``.
Names in the scope of a function are constants: what depends on them alone is decided when it is translated. Integers
are int64 or uint64, which do not mix. Parts of arrays between two places lie in the array. Memory ends where the
statement that allocates it is met again, or with the function. `TranslationError` is raised for anything else.
"""
