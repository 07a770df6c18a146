"""Bodies as loops on lanes: whatever the number of registers, each lane has the numbers of the body by NumPy."""

import ctypes
import re

import numpy as np
import pytest

from ensemble._compile import machine_code
from ensemble._compile.lanes.graph_loop import copies_of, graph_loop
from ensemble._compile.lanes.interleaving import interleaved, staggered
from ensemble._compile.lanes.library import assembly_of
from ensemble._compile.machine_code import assembled, code_of
from ensemble._compile.processor import register_bytes
from ensemble._compile.trace.graph import seldom_read
from ensemble._compile.trace.replay import replay
from ensemble._compile.trace.tracer import Scalar, trace

N_CARRIED, N_INPUTS, N_FURTHER = 7, 9, 3


def steps(ends):
    """A body of seven carried values and two numbers.

    The values are read and changed, a counter, fixed, never read, read by others, the last one of another, and read by
    a result alone. `ends` gives the two masks from its values and the namespace.
    """

    def body(total, count, fixed, unread, other, before, last, rate, bound):
        xp = total.__array_namespace__()
        new = total * rate + fixed * other
        masks = ends(xp, new, count, bound)
        carried = new, count + 1.0, fixed, new * count, other - 0.25 * new, other, new
        return *carried, *masks, total + before, fixed * rate, last

    return body


ENDS = {
    "never": lambda xp, total, count, bound: (False, False),
    "by the counter": lambda xp, total, count, bound: (count >= 11.0, count >= bound),
    "by a value": lambda xp, total, count, bound: (total > 50.0, xp.abs(total) > bound),
    "by a function": lambda xp, total, count, bound: (total != total, xp.exp(total) > bound),
}


def run(graph, rows, threshold, limit, n_carried=N_CARRIED, n_further=N_FURTHER, parts=()):
    """The evaluations made by the compiled loop, and the rows after it."""
    width, dtype = rows.shape[1], rows.dtype.name
    loop = graph_loop(graph, "steps", n_carried, width, dtype, parts)
    memory = np.zeros((len(rows) + n_further) * width + 64, dtype)
    first = -memory.ctypes.data % 64 // memory.itemsize
    lanes = memory[first : first + (len(rows) + n_further) * width].reshape(-1, width)
    lanes[: len(rows)] = rows
    place = code_of(assembled([loop]), ["steps"], assembly_of)["steps"]
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(place)
    return call(lanes.ctypes.data, threshold, limit), lanes


def by_numpy(graph, rows, threshold, limit):
    """The same, a node at a time."""
    carried, given = list(rows[:N_CARRIED]), list(rows[N_CARRIED:])
    made, done = 0, False
    while made < limit and not done:
        outputs = [np.broadcast_to(each, rows.shape[1:]) for each in replay(graph, [*carried, *given], np)]
        carried, (at_once, waiting), further = outputs[:N_CARRIED], outputs[N_CARRIED:-N_FURTHER], outputs[-N_FURTHER:]
        made, done = made + 1, at_once.any() or waiting.sum() >= threshold
    return made, np.stack([*carried, *given, *further])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("registers", [1, 2, 4])
@pytest.mark.parametrize("ends", ENDS)
def test_each_lane_has_its_own_numbers(ends, registers, dtype, rng):
    width = registers * register_bytes() // np.dtype(dtype).itemsize
    graph = trace(steps(ENDS[ends]), *[Scalar(dtype)] * N_INPUTS, function="steps")
    assert copies_of(graph, width, dtype) == (1 if ends == "by a function" else registers)
    rows = rng.uniform(-1.0, 1.0, (N_INPUTS, width)).astype(dtype)
    rows[1] = rng.integers(0, 4, width)
    rows[8] = rng.uniform(2.0, 9.0, width)
    for threshold, limit in ((1, 20), (width // 2, 20), (width, 20), (width, 1)):
        with np.errstate(over="ignore", invalid="ignore"):
            expected = by_numpy(graph, rows, threshold, limit)
        made, lanes = run(graph, rows, threshold, limit)
        assert made == expected[0]
        np.testing.assert_array_equal(lanes, expected[1])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_copies_are_evaluated_on_rows_of_their_own(count, rng):
    graph = trace(steps(ENDS["by a value"]), *[Scalar("float64")] * N_INPUTS, function="steps")
    rows = rng.uniform(-1.0, 1.0, (N_INPUTS, count, 3))
    together = replay(interleaved(graph, count), list(rows.reshape(-1, 3)), np)
    alone = replay(graph, list(rows), np)
    for k, expected in enumerate(alone):
        np.testing.assert_array_equal(together[k * count : (k + 1) * count], expected)


def test_parts_of_a_body_are_moved_apart_and_keep_their_values(rng):
    def body(x, a, b):
        values, tangents = [x], [a, b]
        for _ in range(40):  # each operation is followed by its derivative in both directions
            values.append(values[-1] * values[-1] - 0.5)
            tangents = [2.0 * (values[-2] * each) for each in tangents]
        return values[-1], *tangents, tangents[0] + tangents[1]

    def separate(*values):
        return body(*values)[:3]

    for function, n_parts in ((separate, 2), (body, 1)):
        graph = trace(function, *[Scalar("float64")] * 3, function="body")
        moved, starts = staggered(graph, [0])
        rows = rng.uniform(-1.0, 1.0, (3, 5))
        for got, expected in zip(replay(moved, rows, np), replay(graph, rows, np), strict=True):
            np.testing.assert_array_equal(got, expected)
        assert all(i < k for k, node in enumerate(moved.nodes) for i in node.inputs)
        assert sorted(node.operation for node in moved.nodes) == sorted(node.operation for node in graph.nodes)
        ends = [moved.outputs[k] for k in range(1, 1 + n_parts)]
        assert moved.outputs[0] < ends[0] and (n_parts == 1 or ends[1] - ends[0] > 12)
        assert starts == ((moved.outputs[0] + 1, ends[0] + 1) if n_parts == 2 else ())


def test_parts_of_a_loop_are_blocks_of_instructions(rng):
    def body(x, a, b, rate):
        new, tangents = x, [a, b]
        for _ in range(12):
            old, new = new, new * new - 0.5
            tangents = [rate * (old * each) for each in tangents]
        return new, *tangents, False, False, x + a

    graph = trace(body, *[Scalar("float64")] * 4, function="body")
    moved, parts = staggered(graph, [0])
    rows = rng.uniform(-1.0, 1.0, (4, register_bytes() // 8))
    assert len(parts) == 2
    apart, together = (run(*each) for each in ((moved, rows, 1, 5, 3, 1, parts), (graph, rows, 1, 5, 3, 1)))
    assert apart[0] == together[0] == 5
    np.testing.assert_array_equal(apart[1], together[1])
    module = assembled([graph_loop(moved, "steps", 3, register_bytes() // 8, "float64", parts)])
    assert re.findall(r"^part\d", str(machine_code._optimized(module, assembly_of)), re.MULTILINE) == ["part1", "part2"]


def seldom(values, rate, bound):
    """A body of a value and its record, with a choice that is seldom taken, and another one in that."""
    total, most = values
    xp = total.__array_namespace__()
    new = total * rate + 0.25
    square = new * new + rate
    deeper = xp.seldom(new > 2.0 * bound, square * square - new, square)
    return new, xp.seldom(new > bound, xp.maximum(most, deeper + square), most), False, new > 1e30, new - most


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("registers", [1, 2, 4])
def test_choices_that_are_seldom_taken_have_the_numbers_of_all_others(registers, dtype, rng):
    width = registers * register_bytes() // np.dtype(dtype).itemsize
    graph = trace(lambda a, b, rate, bound: seldom((a, b), rate, bound), *[Scalar(dtype)] * 4, function="steps")
    found = [len(nodes) for nodes in seldom_read(graph).values()]
    assert len(found) == 2 and 0 < min(found) < max(found)
    rows = rng.uniform(0.5, 1.5, (4, width)).astype(dtype)
    for bounds in (rng.uniform(0.5, 5.0, width), np.full(width, 1e30), np.zeros(width), np.full(width, np.nan)):
        rows[3] = bounds
        values = [*rows]
        for _ in range(5):
            *carried, _, _, rest = [np.broadcast_to(v, (width,)) for v in replay(graph, values, np)]
            values = [*carried, *rows[2:]]
        made, lanes = run(graph, rows, width, 5, 2, 1)
        assert made == 5
        np.testing.assert_array_equal(lanes, np.stack([*values, rest]))


def test_what_others_read_too_is_computed_always():
    def body(a, b):
        xp = a.__array_namespace__()
        shared = a * b
        return xp.seldom(a > b, xp.exp(shared), a), shared + 1.0

    graph = trace(body, Scalar("float64"), Scalar("float64"))
    (own,) = seldom_read(graph).values()
    assert [graph.nodes[k].operation for k in own] == ["exp"]
