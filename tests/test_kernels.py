"""One test for all kernels: every implementation gives the reference's answer, to the bit on the CPU."""

import copy

import numpy as np
import pytest

from ensemble._kernels import KERNELS
from ensemble._kernels._registry import kernel
from tests.cases import CASES, all_cases

SEED = 20731


def results(implementation, case):
    """All that a call returns or changes, as arrays."""
    arrays = copy.deepcopy(case.arrays)
    returned = implementation(*arrays)
    returned = returned if isinstance(returned, tuple) else (returned,)
    return [np.asarray(a) for a in (*returned, *(arrays[i] for i in case.in_place))]


def test_every_kernel_has_cases():
    assert set(CASES) == set(KERNELS)


def test_every_kernel_has_a_cpu_implementation():
    assert {name for name, k in KERNELS.items() if "numba" not in k.implementations} == set()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the planted NaN and infinities
@pytest.mark.parametrize("case", list(all_cases(SEED)), ids=str)
def test_numba_matches_reference_to_the_bit(case):
    k = KERNELS[case.kernel]
    for got, expected in zip(results(k.implementations["numba"], case), results(k.reference, case), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", [c for c in all_cases(SEED) if c.arrays[-1] is None], ids=str)
def test_a_given_buffer_is_filled(case):
    """The same bits, whether the kernel allocates or fills the caller's buffer of stale NaN."""
    k = KERNELS[case.kernel]
    expected = results(k, case)[1 if case.kernel.endswith(("chebyshev_first", "chebyshev_step")) else 0]
    arrays = copy.deepcopy(case.arrays)
    buffer = np.full(expected.shape, np.nan, expected.dtype)
    k(*arrays[:-1], buffer)
    np.testing.assert_array_equal(buffer, expected)


def test_a_kernel_is_registered_once():
    with pytest.raises(ValueError, match="registered once"):
        KERNELS["spmv"].register("numba")(lambda: None)


def test_a_kernel_name_is_new():
    def spmv():
        """Not another one."""

    with pytest.raises(ValueError, match="name must be new"):
        kernel(spmv)
