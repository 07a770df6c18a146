"""`ode.solve` on CUDA devices: by the emulator against the CPU, to the bit; compiled by NVRTC; on a device."""

import numpy as np
import pytest

from ensemble import Ensemble, ode
from ensemble._compile.trace.cuda_source import OPTIONS
from ensemble._kernels.ode import ode_launch
from ensemble.ode import compiled, device
from tests import nvrtc
from tests.ode.problems import RHO, SOLVERS, TIMES, lorenz, passage

CASES = {name: {"method": name, **options} for name, options in SOLVERS.items()}
CASES |= {f"{name}, times": {**options, "t_eval": TIMES} for name, options in CASES.items()}
CASES["events"] = {"method": "dop853", "t_eval": TIMES, "events": (passage, lambda t, y, p, xp: y[0] - 1.5)}
CASES["steps of their own"] = {"method": "rk4", "step": Ensemble(np.linspace(0.01, 0.013, RHO.size))}
CASES["longest steps"] = {"method": "tsit5", "max_step": Ensemble(np.linspace(0.02, 0.0998, RHO.size))}
CASES["float32"] = {"method": "tsit5", "rtol": 1e-4, "atol": 1e-4}


def solved(rho, y0=(1.0, 1.0, 1.0), **options):
    return ode.solve(lorenz, np.asarray(y0), (0.0, 1.0), p=[Ensemble(rho)], **{"rtol": 1e-8, "atol": 1e-10, **options})


def given(case):
    return {"y0": np.ones(3, np.float32)} if case == "float32" else {}


def as_arrays(result):
    parts = [result.y, result.t_reached, result.y_reached, *result.t_events]
    arrays = [part.samples for part in parts] + [result.status, result.n_steps, result.n_rejected, result.n_events]
    return [array.get() if hasattr(array, "get") else array for array in arrays]


@pytest.mark.parametrize("case", CASES)
def test_the_kernel_gives_the_bits_of_the_cpu(case, emulated, monkeypatch):
    rho = RHO.copy()
    rho[5] = np.nan
    with pytest.warns(ode.OdeWarning, match="sample 5"):
        expected = solved(rho, **given(case), **CASES[case])
    monkeypatch.setattr(compiled, "run", device.run)
    with pytest.warns(ode.OdeWarning, match="sample 5"):
        result = solved(rho, **given(case), **CASES[case])
    for a, b in zip(as_arrays(result), as_arrays(expected), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(nvrtc.library() is None, reason="no NVRTC")
@pytest.mark.parametrize("case", ["rk4", "events", "rodas4, times", "float32"])
def test_the_kernel_compiles(case, emulated, monkeypatch):
    texts = []
    monkeypatch.setattr(ode_launch, "kernel", lambda text: texts.append(text) or (lambda *launched: None))
    monkeypatch.setattr(compiled, "run", device.run)
    with pytest.warns(ode.OdeWarning):
        solved(RHO, **given(case), **CASES[case])
    assert nvrtc.compiled(nvrtc.library(), texts[0], *OPTIONS)


@pytest.mark.cuda
@pytest.mark.parametrize("case", CASES)
def test_a_device_gives_the_bits_of_the_cpu(case):
    cupy = pytest.importorskip("cupy")
    rho = np.linspace(0.0, 21.0, 1037)
    options = dict(CASES[case])
    if isinstance(options.get("step"), Ensemble):
        options["step"] = Ensemble(np.linspace(0.01, 0.013, rho.size))
    if "max_step" in options:
        options["max_step"] = Ensemble(np.linspace(0.02, 0.0998, rho.size))
    expected = solved(rho, **given(case), **options)
    result = solved(cupy.asarray(rho), **given(case), **options)
    for a, b in zip(as_arrays(result), as_arrays(expected), strict=True):
        np.testing.assert_array_equal(a, b)
