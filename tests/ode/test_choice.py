"""The method "auto": "rodas4" or "bdf", by the pattern of the Jacobian."""

import numpy as np
import pytest

from ensemble import Ensemble, gallery, ode
from ensemble.ode.choice import stiff_method
from ensemble.ode.system import System


def banded(n, width):
    def f(t, y, p, xp):
        return [sum(p[0] * y[(i + k) % n] for k in range(width)) - 2.0 * width * y[i] for i in range(n)]

    return f


@pytest.mark.parametrize(
    ("n", "width", "expected"), [(3, 3, "rodas4"), (30, 30, "rodas4"), (200, 3, "rodas4"), (160, 160, "bdf")]
)
def test_costly_factorisations_take_the_method_that_keeps_them(n, width, expected):
    assert stiff_method(System(banded(n, width), n, 1, np), False) == expected
    assert stiff_method(System(banded(n, width), n, 1, np), True) == "rodas4"  # on a device


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_it_has_the_bits_of_the_method_that_it_names(dtype):
    f, start, p = banded(8, 3), np.linspace(1.0, 2.0, 8).astype(dtype), np.linspace(0.5, 1.5, 3).astype(dtype)
    made = ode.solve(f, start, (0.0, 1.0), p=Ensemble(p[None]), method="auto", rtol=1e-4)
    assert made.method == "rodas4"
    expected = ode.solve(f, start, (0.0, 1.0), p=Ensemble(p[None]), method="rodas4", rtol=1e-4)
    assert np.array_equal(made.y.samples, expected.y.samples)
    alone = ode.solve(f, start, (0.0, 1.0), p=p[1:2], method="auto", rtol=1e-4)
    assert np.array_equal(alone.y.samples[:, 0], made.y.samples[:, 1])


def test_it_takes_what_both_methods_take():
    problem = gallery.van_der_pol()
    made = ode.solve(problem.f, problem.y0, problem.t, p=problem.p, method="auto", t_eval=[problem.t[1]])
    assert np.allclose(made.y.samples[0, :, 0], problem.y_end, rtol=1e-3)
    with pytest.raises(ValueError, match="step must be None for auto"):
        ode.solve(problem.f, problem.y0, problem.t, p=problem.p, method="auto", step=0.1)
    with pytest.raises(TypeError, match="f must be traceable"):
        ode.solve(lambda t, y, p, xp: [float(y[0])], [1.0], (0.0, 1.0), method="auto")
    with pytest.raises(ValueError, match="auto"):
        ode.solve(problem.f, problem.y0, problem.t, p=problem.p, method="automatic")
