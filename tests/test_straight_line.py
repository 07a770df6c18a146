"""Programs without branches: SIMD lanes, and results that share a register, have the bits of exact arithmetic."""

import math
from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ensemble._compile.lanes.straight_line import straight_line
from tests.conftest import examples

ENTRIES = 12
"""Entries of the one array that programs read."""

NUMBERS = {"zero": 0.0, "half": 0.5}


def fused(a, b, c):
    """a b + c, rounded once."""
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return float(exact) if exact else a * b + c


MEANING = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: float(np.divide(a, b)),
    "fma": fused,
    "fnma": lambda a, b, c: fused(-a, b, c),
    "!=": lambda a, b: a != b,
    "<=": lambda a, b: a <= b,
    "pick": lambda c, a, b: a if c else b,
}


@st.composite
def programs(draw):
    """Statements, the results that are written, and groups of results, good ones and nonsense alike.

    Statements come in rows of like operations, as the columns of a matrix do: each operand is a row, too, one number
    for all, or anything.
    """
    readable, lines = [*(f"a_{i}" for i in range(ENTRIES)), *NUMBERS], []
    rows, numbers = [[f"a_{3 * i + j}" for j in range(3)] for i in range(4)], list(readable)

    def add(*words):
        lines.append(f"t{len(lines)} {' '.join(words)}")
        return f"t{len(lines) - 1}"

    def operand_row():
        kind = draw(st.sampled_from(["row", "row", "row", "one", "any"]))
        if kind == "row":
            return draw(st.sampled_from(rows))
        one = st.sampled_from(numbers)
        return [draw(one)] * 3 if kind == "one" else [draw(one) for _ in range(3)]

    for _ in range(draw(st.integers(1, 8))):
        operation = draw(st.sampled_from(["+", "-", "*", "/", "fma", "fma", "fnma", "pick"]))
        operands = [operand_row() for _ in range(3 if operation.startswith("f") else 2)]
        if operation == "pick":
            compare = draw(st.sampled_from(["<=", "!="]))
            operands.insert(0, [add(compare, *words) for words in zip(operand_row(), operand_row(), strict=True)])
        rows.append([add(operation, *words) for words in zip(*operands, strict=True)])
        numbers += rows[-1]
    results = numbers[len(readable) :]
    written = draw(st.lists(st.sampled_from(results), min_size=1, max_size=4))
    written += draw(st.lists(st.sampled_from(rows), max_size=1).map(lambda found: [n for row in found for n in row]))
    groups = [row if draw(st.booleans()) else [*row[:2], "-"] for row in rows[4:]]
    groups += draw(st.lists(st.lists(st.sampled_from([*results, "-", "a_3"]), min_size=3, max_size=3), max_size=3))
    return "\n".join(lines), written, "\n".join(" ".join(group) for group in draw(st.permutations(groups)))


def run(program, written, groups, width, values):
    """What the program writes, for `width` columns of values."""
    writes = "\n".join(f"b_{i} {name}" for i, name in enumerate(written))
    body = straight_line("a b", program, writes, NUMBERS, width, groups)
    out = np.zeros(len(written) * width)
    numba.njit(lambda a, b: body((a, b), (0, 0)))(np.ascontiguousarray(values).ravel(), out)
    return out.reshape(len(written), width)


def meant(program, written, values):
    """The same by Python's own floats and exact fractions."""
    known = {**NUMBERS, **{f"a_{i}": float(v) for i, v in enumerate(values)}}
    for line in program.splitlines():
        target, operation, *operands = line.split()
        known[target] = MEANING[operation](*(known[name] for name in operands))
    return [known[name] for name in written]


# Each example is compiled.
@settings(max_examples=examples(6), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(programs(), st.integers(0, 2**32 - 1))
def test_registers_and_lanes_change_no_bit(case, seed):
    program, written, groups = case
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((ENTRIES, 4)) < 0.2, rng.integers(-2, 3, (ENTRIES, 4)), rng.normal(size=(ENTRIES, 4)))
    with np.errstate(all="ignore"):
        expected = np.array([meant(program, written, column) for column in values.T]).T
    np.testing.assert_array_equal(run(program, written, "", 4, values), expected)
    for i in range(2):
        np.testing.assert_array_equal(run(program, written, groups, 1, values[:, i])[:, 0], expected[:, i])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_group_becomes_one_instruction(dtype):
    """A column of products: packed multiplications, and no scalar one."""
    program = "\n".join(f"t{i} * a_{i} a_{4 + i}" for i in range(4))
    body = straight_line("a b", program, "\n".join(f"b_{i} t{i}" for i in range(4)), {}, 1, "t0 t1 t2 t3")
    compiled = numba.njit(lambda a, b: body((a, b), (0, 0)))
    a, out = np.arange(12, dtype=dtype), np.zeros(4, dtype)
    compiled(a, out)
    np.testing.assert_array_equal(out, a[:4] * a[4:8])
    (text,) = compiled.inspect_llvm().values()
    element = {"float32": "float", "float64": "double"}[dtype]
    assert f"fmul <4 x {element}>" in text
    assert f"fmul {element}" not in text


def test_a_group_of_a_result_and_what_it_is_made_of_is_left_alone():
    np.testing.assert_array_equal(
        run("t0 * a_0 a_1\nt1 * t0 a_2", ["t1", "t0"], "t0 t1", 1, [2.0, 3.0, 5.0]), [[30.0], [6.0]]
    )
