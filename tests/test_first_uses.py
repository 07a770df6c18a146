"""What a first use compiles: a kernel that is added to it is added here, and Numba's pipeline is not."""

from __future__ import annotations

import pytest

from benchmarks.bench_first_uses import PROGRAMS, first_use

MOST = {"cg, aggregation": 39, "direct": 17, "eigsh": 21, "ode.solve": 3, "kalman_filter": 3}
"""Kernels that are translated, and the reader of their arguments."""


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("cg, aggregation", "eigsh", "ode.solve")]


@pytest.mark.parametrize("name", ["kalman_filter", "direct", *SLOW])
def test_a_first_use_compiles_no_more_kernels_than_it_did_and_none_by_numba(name):
    _, translated, by_numba = first_use(PROGRAMS[name])
    assert 0 < translated <= MOST[name]
    assert by_numba == 0
