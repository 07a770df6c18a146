"""Powers of two in compiled code are those of NumPy's frexp and ldexp."""

import numpy as np
import pytest

from ensemble._compile.numba import compiled_procedure
from ensemble._compile.powers import exponent_of, times_power_of_two


@compiled_procedure
def _taken_apart(values, powers, exponents, scaled):
    for k in range(values.size):
        exponents[k] = exponent_of(values[k])
        scaled[k] = times_power_of_two(scaled[k], powers[k])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_are_those_of_numpy(dtype):
    limits, rng = np.finfo(dtype), np.random.default_rng(8)
    least, most = int(np.log2(float(limits.smallest_subnormal))), limits.maxexp
    values = np.ldexp(rng.uniform(1.0, 2.0, 5000).astype(dtype), rng.integers(least, most, 5000))
    values[:3] = limits.max, limits.smallest_subnormal, limits.smallest_normal
    units, powers = np.ldexp(np.ones(5000, dtype), rng.integers(least, most, 5000)), rng.integers(-2500, 2500, 5000)
    powers[::2] //= 10
    exponents, scaled = np.zeros(5000, np.int64), units.copy()
    _taken_apart(values, powers, exponents, scaled)
    assert not _taken_apart.by_numba
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(scaled, np.ldexp(units, powers))
    np.testing.assert_array_equal(exponents, np.frexp(values)[1] - 1)
