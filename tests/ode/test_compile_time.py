"""The processor time of a new right-hand side, in units of a function that Numba compiles."""

import time

import numba
import numpy as np
import pytest

from ensemble import ode


def seconds(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def ring(n, coefficient):
    def f(t, y, p, xp):
        return [y[i - 1] - coefficient * y[i] + y[(i + 1) % n] - p[0] * xp.exp(-y[i] * y[i]) for i in range(n)]

    return f


def straight_line(n_lines):
    """A function of `n_lines` products and sums."""
    lines = "\n".join(f"    x{k + 1} = x{k} * a + x{k // 2}" for k in range(n_lines))
    scope = {}
    exec(f"def function(x0, a):\n{lines}\n    return x{n_lines}", scope)
    return scope["function"]


@pytest.mark.slow
def test_forty_unknowns_with_exponentials_compile_in_the_time_of_a_short_function(tmp_path, monkeypatch):
    """Twice its time on a quiet machine; translation by Numba took nine times as long."""

    def solve(n):
        ode.solve(ring(n, 2.0 + 1e-3 * n), np.ones(n), (0.0, 0.1), p=[0.1], method="dop853")

    solve(1)  # compiles the driver
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    unit = seconds(lambda: numba.njit("float64(float64, float64)")(straight_line(300)))
    taken = seconds(lambda: solve(40))
    assert taken <= 5.0 * unit


def test_a_body_is_translated_once_for_all_processes(tmp_path, monkeypatch):
    ode.solve(lambda t, y, p, xp: [-p[0] * y[0]], np.ones(1), (0.0, 0.1), p=[0.1])  # compiles what runs it
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    ode.solve(ring(3, 2.125), np.ones(3), (0.0, 0.1), p=[0.1])
    kept = sorted(path.name.partition("_")[0] for path in tmp_path.rglob("*") if path.suffix in (".o", ".ll"))
    assert kept == ["code", "lanes"]
