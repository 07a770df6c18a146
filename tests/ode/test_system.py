"""The right-hand side on scalars of several kinds, and its derivatives."""

import numpy as np
import pytest

from ensemble._compile.trace.replay import replay
from ensemble.ode.methods import METHODS
from ensemble.ode.system import System
from tests.ode.problems import lorenz, pendulum, system_of, traced_step


@pytest.mark.parametrize("name", ["euler", "rk4", "tsit5", "dop853", "leapfrog", "yoshida4"])
def test_a_traced_step_is_the_step_on_arrays(name):
    """Samples side by side, arrays of shape (S,), and the replayed trace: equal bits."""
    method, system = METHODS[name], system_of(pendulum, 2)
    t, h = np.array([0.0, 0.5, 1.0]), np.array([0.1, 0.2, 0.3])
    y, p = [np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.1, -0.5])], [np.array([1.7, 1.0, 0.5])]
    carried = method.start(system, t, y, p)
    step = method.step(system, t, h, y, carried, p)
    expected = [*step.y, *step.carried, *(step.error or []), *(c for row in step.dense for c in row)]
    graph = traced_step(method, pendulum, 2, 1)
    results = replay(graph, [t, h, *y, *carried, *p], np)
    assert len(results) == len(expected)
    for result, value in zip(results, expected):
        assert np.array_equal(result, value)


def test_a_step_in_single_precision_stays_in_it():
    graph = traced_step("tsit5", lorenz, 3, 1, "float32")
    assert {node.dtype for node in graph.nodes} == {"float32"}


def test_constants_and_masks_among_the_derivatives_become_numbers_of_the_dtype():
    system = System(lambda t, y, p, xp: [1.0, y[0] > 0.0, 2], 3, 0, np, dtype="float32")
    assert system.graph.dtypes == ("float32",) * 3
    y = [np.ones(2)] * 3
    assert [value.tolist() for value in system.f(np.zeros(2), y, [])] == [[1.0, 1.0], [True, True], [2.0, 2.0]]


def test_a_wrong_number_of_derivatives_is_one_error():
    with pytest.raises(ValueError, match=r"f\(t, y, p, xp\) must return 2 values; got 3"):
        system_of(lorenz, 2).f(0.0, [1.0, 2.0, 3.0], [1.0])
    with pytest.raises(ValueError, match="must return 2 values; got 1"):
        _ = System(lambda t, y, p, xp: y[0], 2, 0, np).graph
