"""Kernels that carry complex numbers: every implementation gives the reference's answer."""

from dataclasses import replace

import numpy as np
import pytest

from ensemble._compile import cuda, numba
from ensemble._compile.registry import one_complex_type
from ensemble._kernels.all_kernels import KERNELS
from ensemble._kernels.direct.forms.by_tiles import factorized_tiles, has_tiles
from ensemble._kernels.sparse.complex_numbers import magnitudes, quotients, times
from ensemble.gallery import poisson
from ensemble.linalg import CrsMatrix
from ensemble.linalg.factorizations.factorization import planned
from tests import nvrtc
from tests.cases import CASES, SEED, SUMS_DIFFER, rebuilt, results, tolerance

ELIMINATING = {"factorized", "factor_solve"}
CARRIED = sorted(name for name, k in KERNELS.items() if "numba" in k.carries_complex and name not in ELIMINATING)
TYPES = {"odd_samples": np.complex128, "float32": np.complex64, "one_sample": np.complex128, "wide": np.complex128}
TYPES |= {"over_one_block": np.complex128, "no_entries": np.complex128}
QUICK = {"spmv", "spmv_dot", "basis_add", "bicgstab_update", "minres_update"}


def complex_numbers(argument, dtype, rng):
    """Real arrays as real parts of complex ones; zero coefficients stay zero."""
    if isinstance(argument, tuple):
        return rebuilt(argument, [complex_numbers(part, dtype, rng) for part in argument])
    if not (isinstance(argument, np.ndarray) and argument.dtype.kind == "f"):
        return argument
    return (argument + 1j * np.where(argument == 0, 0.0, rng.standard_normal(argument.shape))).astype(dtype)


def complex_cases(name, labels):
    for case in CASES[name](SEED):
        if case.label in labels:
            arrays = complex_numbers(case.arrays, TYPES[case.label], np.random.default_rng(SEED))
            yield replace(case, arrays=arrays)


def chosen(labels, backend="numba"):
    """Cases of all kernels of a backend: the quick ones of two labels always."""
    carried = [name for name in CARRIED if backend in KERNELS[name].carries_complex]
    found = [case for name in carried for case in complex_cases(name, labels)]
    quick = [case.kernel in QUICK and case.label in ("odd_samples", "float32") for case in found]
    return [
        case if always else pytest.param(case, marks=pytest.mark.slow)
        for case, always in zip(found, quick, strict=True)
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the planted NaN and infinities
@pytest.mark.parametrize("case", chosen(TYPES), ids=str)
def test_compiled_kernels_have_the_bits_of_the_reference(case, monkeypatch):
    monkeypatch.setattr(numba, "WIDTHS", (32, 4, 1))
    k = KERNELS[case.kernel]
    assert one_complex_type(*case.arrays)
    for got, expected in zip(results(k, case), results(k.reference, case), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", chosen(("odd_samples", "float32", "one_sample", "over_one_block"), "cuda"), ids=str)
def test_device_kernels_have_the_bits_of_the_reference(case, on_cpu):
    """But for sums over rows, which a device adds in another order."""
    k = KERNELS[case.kernel]
    for got, expected in zip(results(k.implementations["cuda"], case), results(k.reference, case), strict=True):
        assert got.dtype == expected.dtype
        if case.kernel not in SUMS_DIFFER:
            np.testing.assert_array_equal(got, expected)
        else:
            np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(expected))


@pytest.fixture(scope="module")
def compiler():
    library = nvrtc.library()
    if library is None:
        pytest.skip("no NVRTC")
    return library


OF_COMPLEX = sorted(name for name, module in cuda.KERNEL_MODULES.items() if module.of_complex)


@pytest.mark.parametrize("number, lanes, vector, offset", [
    ("Complex<double>", 16, 1, "int"),
    pytest.param("Complex<float>", 1, 2, "long long", marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.parametrize("name", OF_COMPLEX)
def test_nvrtc_compiles_the_kernels_of_complex_numbers(compiler, name, number, lanes, vector, offset):
    family = cuda.KERNEL_MODULES[name]
    options = cuda.Layout(number, lanes, vector, 0).options(offset)
    for extra in family.extras:
        assert nvrtc.compiled(compiler, family.source(), *options, *extra, instances=family.of_complex)


REAL_ALONE = {
    "affine_chebyshev_first", "affine_chebyshev_last", "affine_chebyshev_step", "affine_coefficient", "affine_residual",
    "affine_spmv", "affine_spmv_dot", "affine_spmv_transpose", "affine_values",  # affine matrices
    "block_chebyshev_first", "block_chebyshev_last", "block_chebyshev_step", "block_residual", "block_spmv",
    "block_spmv_transpose",  # blocks, which complex solves take as a CrsMatrix
    "diffusion_jacobian_and_residual", "diffusion_residual", "hex_diagonal", "hex_product",  # finite elements
    "tet_closed_form", "tet_edge_lengths", "tet_gradient_tensor", "tet_shape_dshape", "tet_shape_shape",
    "tet_transform", "tet_values",
    "domain_digits", "exact_totals", "rounded_digits",  # processes
    "entry_units", "narrowed", "scaled_finish", "scaled_start", "too_small",  # hierarchies in single precision
    "backward_error", "small_eigh3", "small_root3", "small_solve", "factorized_with_solution",
}  # fmt: skip
"""Kernels of a device that carry real numbers alone, as those of the CPU do."""


def test_no_kernel_of_a_device_lacks_complex_numbers_that_the_cpu_carries():
    """A new kernel carries both kinds of numbers on both backends, or stands in the list."""
    on_device = {name for name, k in KERNELS.items() if "cuda" in k.implementations}
    by_cpu, by_device = ({n for n, k in KERNELS.items() if b in k.carries_complex} for b in ("numba", "cuda"))
    assert by_device == by_cpu & on_device and on_device - by_device == REAL_ALONE
    for name, module in cuda.KERNEL_MODULES.items():  # instances of one template are all there, or none
        templates = {each.partition("<")[0] for each in module.of_complex}
        left_out = [each for each in module.instances if each.partition("<")[0] in templates]
        assert set(left_out) <= {*module.of_complex, "substitutions<float>", "substitutions<double>"}, name


def test_other_device_kernels_refuse_complex_numbers(on_cpu):
    x = np.ones((4, 2), complex)
    module = cuda.KERNEL_MODULES["krylov/vectors"]
    with pytest.raises(TypeError, match="largest: arrays on a device must be real; got complex numbers"):
        module.function("largest", cuda.layout_of(2, x), False)
    real = cuda.layout_of(2, x.real.copy())
    for arrays in ((x, x, x), (x.real.copy(), x, x)):
        with pytest.raises(TypeError, match="dot: arrays on a device must be real; got complex numbers"):
            module.launch("dot", real, (1,), 16, (*arrays, np.int64(4), np.int32(2)))


ELIMINATIONS = {"list": (8, 8), "rows": (70, 70), "supernodes": (12, 12, 12)}


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("form", ["list", *(pytest.param(f, marks=pytest.mark.slow) for f in ("rows", "supernodes"))])
@pytest.mark.parametrize("dtype", [np.complex128, pytest.param(np.complex64, marks=pytest.mark.slow)])
def test_eliminations_of_every_form_solve_complex_systems(form, symmetric, dtype, rng):
    """To the bit of its own run for each sample; LDL^T conjugates nothing."""
    A = poisson(ELIMINATIONS[form])
    n, factors = A.shape[0], np.exp(0.1 * rng.standard_normal((A.nnz, 5)))
    shift = (-0.3 + 0.1j) * (A.graph.row_of_entry == A.graph.indices)[:, None]
    values = (A.values * (np.ones_like(factors) if symmetric else factors) + shift * np.arange(1, 6)).astype(dtype)
    plan = planned(A, kind="ldlt" if symmetric else "lu", ordering="auto", matching="graph", dtype=np.float64).plan
    found = "list" if plan.flat is not None else "rows" if plan.supernodes is None else "supernodes"
    assert found == form or symmetric
    b = (rng.standard_normal((n, 1, 5)) + 1j * rng.standard_normal((n, 1, 5))).astype(dtype)
    made, broken = KERNELS["factorized"](values, plan, None)
    assert not broken.any() and made.dtype == dtype
    assert np.array_equal(KERNELS["factorized"](values[:, 3:4].copy(), plan, None)[0][:, 0], made[:, 3])
    if has_tiles(plan):
        assert np.array_equal(factorized_tiles(values, plan)[0].rows(slice(None)), made)
    for transposed in (False, True):
        x = KERNELS["factor_solve"](made, plan, b, transposed, None)[:, 0, :]
        matrix = CrsMatrix(A.graph, values)
        r = b[:, 0, :] - (matrix.apply_transpose(x) if transposed else matrix.apply(x))
        assert np.abs(r).max() <= 200 * np.finfo(dtype).eps * np.abs(x).max()


def test_first_factors_of_inner_products_are_conjugated(rng):
    x, y = rng.standard_normal((2, 9, 3)) + 1j * rng.standard_normal((2, 9, 3))
    inner = np.sum(x.conj() * y, axis=0)
    np.testing.assert_allclose(KERNELS["dot"](x, y, None), inner, rtol=1e-14)
    np.testing.assert_allclose(KERNELS["basis_dots"](x[None], y, None)[0], inner, rtol=1e-14)
    both = KERNELS["dot_and_square"](x, y)
    np.testing.assert_allclose(both, [inner, np.sum(abs(y) ** 2, axis=0)], rtol=1e-14)


@pytest.mark.parametrize("arrays", [
    (np.ones(3), np.ones(3, complex)), (np.ones(3, np.complex64), np.ones(3, complex)), (np.ones(3),),
    (np.ones(3, complex), np.ones(3, ">c16")), (np.ones(3, complex), np.ones(3, object)),
])  # fmt: skip
def test_mixed_types_are_left_to_the_reference(arrays):
    assert not one_complex_type(*arrays)


def test_arithmetic_of_complex_coefficients(rng):
    """Bits do not depend on the shape, and quotients of any size are right."""
    a, b = rng.standard_normal((2, 65)) + 1j * rng.standard_normal((2, 65))
    np.testing.assert_allclose(times(a, b), a * b, rtol=1e-15, atol=1e-15)
    for operation in (times, quotients):
        whole = operation(a, b)
        assert all(operation(a[k : k + 1], b[k : k + 1])[0] == whole[k] for k in range(65))
    assert np.array_equal(times(a.real, b.real), a.real * b.real)
    assert np.array_equal(quotients(a.real, b.real), a.real / b.real)
    for size in (1e-300, 1e-160, 1.0, 1e160, 1e300):
        np.testing.assert_allclose(quotients(a * size, b * size), a / b, rtol=4e-15)
        np.testing.assert_allclose(magnitudes(a * size), np.abs(a) * size, rtol=4e-16)
    np.testing.assert_allclose(quotients(a, b.real), a / b.real, rtol=4e-16)
    np.testing.assert_allclose(quotients(a.real, b), a.real / b, rtol=4e-15, atol=1e-15)
