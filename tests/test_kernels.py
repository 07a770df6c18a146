"""One test for all kernels: every implementation gives the reference's answer, to the bit on the CPU."""

import copy
import os

import numpy as np
import pytest

from ensemble._backend import asarray_like, prototype, to_numpy
from ensemble._compile import numba
from ensemble._compile.registry import kernel
from ensemble._kernels.all_kernels import KERNELS
from ensemble._kernels.direct.symbolic.elimination import Elimination
from tests import cases
from tests.cases import CASES, SEED, SUMS_DIFFER, all_cases, device_cases, rebuilt, results, tolerance
from tests.conftest import EVERY_WIDTH

pytestmark = pytest.mark.usefixtures("nothing_is_left_to_numba")


WIDE = {
    "spmv", "symmetric_spmv", "block_spmv", "affine_spmv", "chebyshev_step", "galerkin_values", "factor_solve",
    "minres_update", "filter_series", "tet_gradient_tensor", "hex_product",
}  # fmt: skip
"""Kernels that always take tiles of 32 samples; the others do in slow runs: each width is compiled by itself."""


@pytest.fixture(autouse=True)
def wide_tiles(monkeypatch, request):
    case = getattr(request.node, "callspec", None) and request.node.callspec.params.get("case")
    if (case is not None and case.kernel in WIDE) or os.environ.get("ENSEMBLE_TEST_EVERY_WIDTH"):
        monkeypatch.setattr(numba, "WIDTHS", (32, 4, 1))


def test_every_kernel_has_cases():
    assert set(CASES) == set(KERNELS)


def test_kernels_of_wide_tiles_are_there():
    assert set(KERNELS) >= WIDE


def test_every_kernel_has_a_cpu_implementation():
    assert {name for name, k in KERNELS.items() if "numba" not in k.implementations} == set()


def test_tracebacks_and_profiles_name_the_implementation():
    found = {(name, b): f.__code__.co_name for name, k in KERNELS.items() for b, f in k.implementations.items()}
    assert [key for key, written in found.items() if written == "_"] == []
    assert found["chebyshev_step", "numba"] == "chebyshev_step_numba"


SAME_TEMPLATE = {
    "symmetric_chebyshev_step": [
        "symmetric_spmv", "symmetric_residual", "symmetric_spmv_dot", "symmetric_chebyshev_first",
        "symmetric_chebyshev_last", "symmetric_power_step",
    ],
    "spmv": ["spmv_add", "residual"],
    "block_chebyshev_step": ["block_residual", "block_chebyshev_first", "block_chebyshev_last"],
    "chebyshev_step": ["chebyshev_first", "chebyshev_last"],
}  # fmt: skip
"""Kernels that are instances of one template, which differ in what they do with the product of a row."""

OTHERS_OF_A_TEMPLATE = {name for others in SAME_TEMPLATE.values() for name in others}


def with_marks(chosen):
    """Of a template, one kernel takes every width, type and sharing of values always; the others do in slow runs."""
    once = {"odd_samples", "odd_samples_shared", "no_entries", "not_square", "not_square_shared"}
    return [
        pytest.param(case, marks=pytest.mark.slow)
        if case.kernel in OTHERS_OF_A_TEMPLATE and case.label not in once
        else case
        for case in chosen
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the planted NaN and infinities
@pytest.mark.parametrize("case", with_marks(all_cases(SEED)), ids=str)
def test_numba_matches_reference_to_the_bit(case):
    k = KERNELS[case.kernel]
    for got, expected in zip(results(k.implementations["numba"], case), results(k.reference, case), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


QUICK = {"smooth_prolongator"}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
@pytest.mark.parametrize("label", ["odd_samples", pytest.param("float32", marks=pytest.mark.slow)])
def test_tiles_of_every_width_match_the_reference(name, label, monkeypatch):
    """90 samples are tiles of 64, 16, 8 and 2, which no other case has."""
    shapes = {"odd_samples": (9, 9, 90, np.float64), "float32": (9, 9, 91, np.float32)}
    monkeypatch.setattr(numba, "WIDTHS", EVERY_WIDTH)
    monkeypatch.setattr(cases, "SHAPES", {label: shapes[label]})
    monkeypatch.setattr(cases, "MESHES", {label: ((3, 2, 4), *shapes[label][2:])})
    for case in CASES[name](SEED):
        expected = results(KERNELS[name].reference, case)
        for got, wanted in zip(results(KERNELS[name].implementations["numba"], case), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "case",
    with_marks(c for c in all_cases(SEED) if c.arrays[-1] is None and c.kernel != "factorized_with_solution"),
    ids=str,
)
def test_a_given_buffer_is_filled(case):
    """The same bits, whether the kernel allocates or fills the caller's buffer of stale NaN."""
    k = KERNELS[case.kernel]
    expected = results(k, case)[1 if case.kernel.endswith(("chebyshev_first", "chebyshev_step")) else 0]
    arrays = copy.deepcopy(case.arrays)
    buffer = np.full(expected.shape, np.nan, expected.dtype)
    k(*arrays[:-1], buffer)
    np.testing.assert_array_equal(buffer, expected)


ON_DEVICE = device_cases(SEED)


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ON_DEVICE, ids=str)
def test_device_matches_reference(case):
    """To the bit, but for sums over rows, which a device adds in another order."""
    k = KERNELS[case.kernel]
    got = results(lambda *arrays: fetched(k.implementations["cuda"](*arrays)), case, put)
    for here, expected in zip(got, results(k.reference, case), strict=True):
        assert here.dtype == expected.dtype
        if case.kernel not in SUMS_DIFFER:
            np.testing.assert_array_equal(here, expected)
        else:
            np.testing.assert_allclose(here, expected, rtol=0, atol=tolerance(expected))


def put(argument):
    """Arrays on the device, wherever they stand in the arguments."""
    if isinstance(argument, tuple) and not isinstance(argument, Elimination):  # which stays on the host
        return rebuilt(argument, map(put, argument))
    return asarray_like(argument, prototype("cupy")) if isinstance(argument, np.ndarray) else argument


def fetched(returned):
    return tuple(map(to_numpy, returned)) if isinstance(returned, tuple) else to_numpy(returned)


def test_a_kernel_is_registered_once():
    with pytest.raises(ValueError, match="registered once"):
        KERNELS["spmv"].register("numba")(lambda: None)


def test_a_kernel_name_is_new():
    def spmv():
        """Not another one."""

    with pytest.raises(ValueError, match="name must be new"):
        kernel(spmv)
