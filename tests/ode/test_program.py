"""Large graphs evaluated by an interpreter."""

import numpy as np
import pytest

from ensemble._compile.lanes.types import zeros
from ensemble._compile.numba import compiled_procedure
from ensemble._compile.plain_code import entry
from ensemble._compile.trace.operations import OPERATIONS
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.tracer import Scalar, trace
from ensemble._kernels.ode.batches import SCATTERED, SIDE_BY_SIDE, batches_of, run_batches
from ensemble._kernels.ode.program import CODES, _whole, program_of, run_program
from tests.bodies import F64


def some_function(t, a, b, p):
    """Every operation, once or more."""
    xp = t.__array_namespace__()
    x, y = 0.25 + a * a, 0.5 + b * b
    total = t + p
    for name in sorted(CODES):
        operation = getattr(xp, name)
        rule, arity = OPERATIONS[name].rule, OPERATIONS[name].arity
        operands = [x + 1.0 if name == "acosh" else x / (1.0 + x + y), y / (1.0 + y), x][:arity]
        if rule == "logical" or name == "where":
            operands = [x < y, *(y > 1.0 if rule == "logical" else y for _ in operands[1:])]
        value = operation(*operands)
        total = total + xp.where(value, x, y) if rule in ("compare", "predicate", "logical") else total + value
    return total, a, 2.0 * b, xp.full_like(t, 3.0), a


@pytest.mark.parametrize("n_samples", [1, 63, 200])
def test_an_interpreted_graph_is_the_replayed_one(n_samples):
    graph = trace(some_function, *[F64] * 4)
    program = program_of(graph, 2, "float64")
    rng = np.random.default_rng(1)
    rows, state = rng.standard_normal((2, n_samples)), rng.standard_normal((2, n_samples))
    results = run_program(program, rows, state)
    expected = replay(graph, [rows[0], *state, rows[1]], np)
    for result, value in zip(results, expected):
        assert np.allclose(result, value, rtol=1e-14, atol=0.0)
    one = run_program(program, rows[:, -1:], state[:, -1:])
    assert np.array_equal(one[:, 0], results[:, -1])
    assert _whole().by_numba == ""  # which takes six times as long to compile it


def test_rows_are_used_again():
    def chain(t, *y):
        return [sum(y[k] * y[k - 1] + 1.0 for _ in range(3)) for k in range(len(y))]

    graph = trace(chain, *[F64] * 41)
    program = program_of(graph, 40, "float64")
    assert program.n_spare < 10
    y = np.random.default_rng(2).random((40, 3))
    assert np.array_equal(run_program(program, np.zeros((1, 3)), y), replay(graph, [0.0, *y], np))


def test_a_graph_with_integers_has_no_program():
    assert (
        program_of(trace(lambda t, x: x + t.__array_namespace__().astype(x, "int32"), F64, F64), 1, "float64") is None
    )
    assert program_of(trace(lambda t, x: x, F64, Scalar("float32")), 1, "float64") is None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_batches_of_a_program_have_its_bits(dtype):
    """Every basic operation, one or many of a kind, operands apart, side by side or the same for all."""
    n, real = 20, Scalar(dtype)

    def body(t, *values):
        xp, y, p = t.__array_namespace__(), values[:n], values[n]
        single = [abs(y[0]), -y[1], xp.square(y[2]), 1.0 / y[3], xp.sqrt(y[4]), xp.where(y[5] < y[6], t, p),
                  xp.where(y[0] <= y[1], y[0], y[2]), xp.where(y[0] > y[1], y[0], y[2]),
                  xp.where(y[0] >= y[1], y[0], y[2]), xp.where(y[0] == y[0], y[3], y[2]),
                  xp.where(y[0] != y[0], y[3], y[2]), p, p, y[19]]  # fmt: skip
        scaled = [p * each for each in y]
        sums = [a + b for a, b in zip(scaled, y)]
        scattered = [sums[7 * k % n] - scaled[3 * k % n] for k in range(n)]
        return [*single, *(a / t for a in sums), *(t - a for a in scaled), *scattered]

    program = program_of(trace(body, real, *[real] * (n + 1)), n, dtype)
    made, rng = batches_of(program), np.random.default_rng(5)
    rows, state = rng.random((2, 1)).astype(dtype), rng.standard_normal((n, 1)).astype(dtype)
    width = 64 // state.itemsize
    slots = np.full(made.n_slots + 2 * width, np.nan, dtype)
    first = program.first_output
    slots[:first] = np.concatenate([program.constants, rows[:, 0], state[:, 0]])

    @compiled_procedure
    def run(code, slots, free):
        batches(code, 0, code.size, slots, free, zeros(slots, width))

    run(made.code, slots, made.n_slots)
    expected = run_program(program, rows, state)[:, 0]
    assert slots[first : first + program.n_outputs].tobytes() == expected.tobytes()
    assert {SCATTERED, SIDE_BY_SIDE} == set(kinds_of(made.code))


def kinds_of(code):
    at, found = 0, []
    while at < code.size:
        found.append(int(code[at + 1]))
        at += 8 if found[-1] == SIDE_BY_SIDE else 3 + 4 * int(code[at + 2])
    return found


batches = entry(run_batches)
