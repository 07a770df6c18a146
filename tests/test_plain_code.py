"""Functions that are written to LLVM as they stand do what Python does with them."""

import math

import numba
import numpy as np
import pytest

from ensemble._kernels._plain_code import Integers, Numbers, entry, plain

SHIFT, HALF = 3, 0.5


def divided(a: int, b: int) -> tuple[int, int]:
    return a // b, a % b


def roots(w: Numbers, first: int, count: int, least: float) -> float:
    total = 0.0
    for i in range(first, first + count):
        if w[i] < 0.0 or math.sqrt(w[i]) < least:
            continue
        total += math.sqrt(w[i])
    return total


def program(w: Numbers, places: Integers, n: int, up: bool, least: float) -> float:
    """Every statement and operation of the language."""
    whole, rest = divided(n + SHIFT, 3)
    w[0], w[1] = whole, rest
    w[2] = w[3] = -HALF * n
    for i in range(n - 1, -1, -2):
        w[places[0] + i] += i / 4 - abs(w[i])
    j = 0
    while True:
        j += 1
        if j == 2:
            continue
        if (j > 6 and not up) or 10 < j <= 11:
            break
        w[places[1]] = w[places[1]] * 0.75 + j**2
    last = max(min(j, n), 2) if up else 2
    w[places[1] + 1] = float(last) * (least if np.isnan(w[n]) else w[n])
    places[2] = int(w[places[1]]) + last
    w[places[1] + 2] = np.inf if up and n != 4 else np.nan
    found, count = -1, 0
    for i in range(n):
        if i == 2:
            w[5] = n
        elif w[i] >= HALF:
            found, count = i, count + 1
    w[4] = found
    if count == 0:
        return -1.0
    return roots(w, 0, n, least) + count


def test_a_program_does_what_python_does(rng):
    written = {f.__name__: plain(f) for f in (divided, roots, program)}
    for function in written.values():
        function.names = {**function.names, **written}
    call = entry(written["program"])
    run = numba.njit(lambda w, places, n, up, least: call(w, places, n, up, least), error_model="numpy")
    seen = set()
    for n in (4, 5, 9):
        for up in (False, True):
            w, places = rng.normal(size=20), np.array([1, 12, 0, 0])
            w[n] = np.nan if n == 5 else w[n]
            twin, twin_places = w.copy(), places.copy()
            expected = program(twin, twin_places, n, up, 0.25)
            assert run(w, places, n, up, 0.25) == expected
            np.testing.assert_array_equal(w, twin)
            np.testing.assert_array_equal(places, twin_places)
            seen.add(expected)
    assert len(seen) > 3


def of_a_list(w: Numbers, n: int) -> float:
    return sum([w[i] for i in range(n)])


def of_a_wide_number(w: Numbers, n: int) -> int:
    return w[n]


@pytest.mark.parametrize(
    "function, words",
    [(of_a_list, r"of_a_list: not in this language: \[w\[i\] for i in range\(n\)\]"),
     (of_a_wide_number, "of_a_wide_number: a value of type double where i64 is declared")],
)  # fmt: skip
def test_what_is_not_in_the_language_is_refused_by_name(function, words):
    call = entry(plain(function))
    run = numba.njit(lambda w, n: call(w, n))
    with pytest.raises(Exception, match=words):
        run(np.zeros(3), 2)
