"""Limited slopes: the textbook's functions of a quotient, without the quotient."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble._kernels.gbees.limiters import LIMITERS

TEXTBOOK = {  # phi(theta), LeVeque (2002), section 6.12
    "none": lambda theta: 0.0,
    "minmod": lambda theta: max(0.0, min(1.0, theta)),
    "superbee": lambda theta: max(0.0, min(1.0, 2.0 * theta), min(2.0, theta)),
    "mc": lambda theta: max(0.0, min((1.0 + theta) / 2.0, 2.0, 2.0 * theta)),
    "van_leer": lambda theta: (theta + abs(theta)) / (1.0 + abs(theta)),
}

sizes = st.floats(-1e3, 1e3).filter(lambda v: v == 0.0 or abs(v) > 1e-6)


@pytest.mark.parametrize("name", LIMITERS)
@given(a=sizes, d=sizes)
def test_textbook_values(name, a, d):
    got = float(LIMITERS[name](np.float64(a), np.float64(d), np))
    expected = d * TEXTBOOK[name](a / d) if d else 0.0
    assert got == pytest.approx(expected, rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("name", LIMITERS)
@given(a=st.floats(-1e300, 1e300), d=st.floats(-1e300, 1e300))
def test_no_overflow_and_no_new_extremes(name, a, d):
    with np.errstate(all="raise", under="ignore"):
        slope = float(LIMITERS[name](np.float64(a), np.float64(d), np))
    assert np.isfinite(slope)
    assert abs(slope) <= 2.0 * min(abs(a), abs(d))
    assert slope * d >= 0.0


def test_all_that_the_docstring_of_gbees_names():
    assert set(LIMITERS) == set(TEXTBOOK)
