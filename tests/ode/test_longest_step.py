"""No step is longer than `max_step`, of any method and loop, forwards and backwards; t is rounded."""

import numpy as np
import pytest

from ensemble import Ensemble, ode
from ensemble.ode import OdeStatus, OdeWarning


def still(t, y, p, xp):
    return [0.0 * v for v in y]


def untraced(t, y, p, xp):
    return [0.0 * v * float(t) for v in y]


LOOPS = {name: (still, 2, name) for name in ("tsit5", "dop853", "taylor", "rodas4", "bdf")}
LOOPS |= {"rodas4, many unknowns": (still, 31, "rodas4"), "untraced": (untraced, 2, "tsit5")}
each_loop = pytest.mark.parametrize("f, n, method", LOOPS.values(), ids=LOOPS)


@each_loop
@pytest.mark.parametrize("direction", [1.0, -1.0])
@pytest.mark.parametrize("end, steps", [(1.0, 2), (1.4, 3), (1.504, 4), (1.51, 4)])
def test_the_last_step_is_no_longer_than_the_longest(f, n, method, direction, end, steps):
    """Where the rest is just above the longest step, two equal steps are left and no short one."""
    found = ode.solve(f, np.ones(n), (0.0, direction * end), method=method, first_step=0.5, max_step=0.5)
    assert found.status[0] == OdeStatus.finished and found.t_reached.samples[0] == direction * end
    assert found.n_steps[0] == steps and found.n_rejected[0] == 0


@each_loop
def test_a_bound_that_no_step_reaches_changes_no_bit(f, n, method):
    def turning(t, y, p, xp):
        return [a + b for a, b in zip([-y[1], y[0], *([0.0] * (n - 2))], f(t, y, p, xp), strict=True)]

    free, bounded = (ode.solve(turning, np.ones(n), (0.0, 1.5), method=method, max_step=h) for h in (np.inf, 2.0))
    np.testing.assert_array_equal(bounded.y.samples, free.y.samples)
    assert bounded.n_steps[0] == free.n_steps[0]


@pytest.mark.parametrize("f, n, method", [LOOPS["tsit5"], LOOPS["rodas4, many unknowns"]])
def test_a_longest_step_of_a_few_spacings_of_t_is_kept(f, n, method):
    """The spacing of float32 numbers at 1000 is 6.1e-5: 16 spacings, and less than half a one."""
    start = np.ones(n, np.float32)
    found = ode.solve(f, start, (1000.0, 1000.03125), method=method, first_step=1e-3, max_step=1e-3)
    assert found.status[0] == OdeStatus.finished and found.n_steps[0] * 1e-3 >= 0.03125
    with pytest.warns(OdeWarning, match="step too small"):
        found = ode.solve(f, start, (1000.0, 1000.03125), method=method, first_step=1e-5, max_step=1e-5)
    assert found.status[0] == OdeStatus.step_too_small and found.n_steps[0] == 1


def test_each_sample_has_its_longest_step():
    longest = np.array([0.5, np.inf, 0.2])
    found = ode.solve(still, [1.0], (0.0, 1.504), first_step=1.504, max_step=Ensemble(longest))
    np.testing.assert_array_equal(found.n_steps, [4, 1, 8])
    for s, h in enumerate(longest):
        assert ode.solve(still, [1.0], (0.0, 1.504), first_step=1.504, max_step=h).n_steps[0] == found.n_steps[s]


@pytest.mark.parametrize("n", [1, 31])
def test_a_first_step_beside_a_pole_is_no_longer(n):
    """The derivative is not finite at the end of the step that is tried first."""

    def f(t, y, p, xp):
        return [xp.where((t > 0.0) & (t < 2e-9), np.nan, 1.0) + 0.0 * v for v in y]

    with pytest.warns(OdeWarning, match="step too small"):
        found = ode.solve(f, np.ones(n), (0.0, 1e-6), method="rodas4", max_step=1e-9, stops=False)
    assert found.t_reached.samples[0] == 0.0
