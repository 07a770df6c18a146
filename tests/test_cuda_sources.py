"""The CUDA kernels where no GPU is: run on the CPU against the references, and compiled by NVRTC."""

import importlib

import numpy as np
import pytest

from ensemble import Ensemble
from ensemble._compile import cuda, device
from ensemble._kernels.all_kernels import KERNELS
from ensemble._kernels.multigrid import pairs
from ensemble._kernels.sparse import affine_mma
from ensemble.apps.fem import RandomDiffusion
from ensemble.apps.fem.solves import solve_memory
from ensemble.krylov import bicgstab, cg, gmres
from ensemble.multigrid import Chebyshev, GaussSeidel, Jacobi, smoothed_aggregation
from tests import nvrtc
from tests.cases import SEED, SUMS_DIFFER, device_cases, rebuilt, results, tolerance
from tests.device_problems import affine_arrays, block_problem, convection, problem, solved, solved_by_reduction
from tests.krylov.problems import nonsymmetric

solve_module = importlib.import_module("ensemble.krylov._solve")

CASES = device_cases(SEED)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the planted NaN and infinities
@pytest.mark.parametrize("case", CASES, ids=str)
def test_device_kernel_matches_reference(case, on_cpu):
    """To the bit, but for sums over rows, which a device adds in another order."""
    k = KERNELS[case.kernel]
    for got, expected in zip(results(k.implementations["cuda"], case), results(k.reference, case), strict=True):
        assert got.dtype == expected.dtype
        if case.kernel not in SUMS_DIFFER:
            np.testing.assert_array_equal(got, expected)
        else:
            np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(expected))


def shifted(argument):
    """Arrays that begin one item after a multiple of 16 bytes, as slices of a device's arrays may."""
    if isinstance(argument, tuple):
        return rebuilt(argument, map(shifted, argument))
    if not isinstance(argument, np.ndarray) or not argument.ndim:
        return argument
    memory = np.zeros(argument.nbytes + 32, np.uint8)
    begin = -memory.ctypes.data % 16 + argument.itemsize
    moved = memory[begin : begin + argument.nbytes].view(argument.dtype).reshape(argument.shape)
    moved[...] = argument
    return moved


LOADS_OF_16_BYTES = [
    case for case in CASES
    if (case.kernel.startswith("tet_") and case.label.startswith("5_by_3"))
    or (case.kernel == "diffusion_residual" and case.label == "one_sample")
    or (case.kernel in ("spmv", "gather_sums") and case.label == "odd_samples")
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", LOADS_OF_16_BYTES, ids=str)
def test_arrays_may_begin_at_any_address(case, on_cpu):
    k = KERNELS[case.kernel]
    for got, expected in zip(
        results(k.implementations["cuda"], case, shifted), results(k.reference, case), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_terms_of_affine_matrices_may_begin_at_any_address(on_cpu):
    """An even number of terms is read 16 bytes at a time."""
    arrays = affine_arrays(61, 4, 8)
    k = KERNELS["affine_spmv"]
    got = k.implementations["cuda"](*map(shifted, arrays), None)
    np.testing.assert_array_equal(got, k.implementations["numba"](*arrays, None))


@pytest.mark.parametrize("case", [case for case in CASES if case.kernel == "galerkin_values"], ids=str)
def test_galerkin_products_by_slabs_have_the_same_bits(case, on_cpu, monkeypatch):
    """Whether A P is made as a whole or slab by slab."""
    k = KERNELS[case.kernel]
    monkeypatch.setattr(pairs, "SLAB_BYTES", 1)
    (by_slabs,) = results(k.implementations["cuda"], case)
    np.testing.assert_array_equal(by_slabs, results(k.reference, case)[0])


# --- affine products on the matrix units


def counting(monkeypatch):
    """Launches of the kernels on the matrix units, which are used from the first row on."""
    launched = []
    launch = affine_mma.product
    monkeypatch.setattr(affine_mma, "FEWEST_ROWS", 0)
    monkeypatch.setattr(device, "ordered_matrix_units", lambda: 5)
    monkeypatch.setattr(affine_mma, "product", lambda *arguments: launched.append(arguments[0]) or launch(*arguments))
    return launched


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("n_terms, n_samples", [(6, 32), (4, 16), (5, 16), (8, 64), (7, 48), (9, 32), (21, 16)])
def test_matrix_units_give_the_bits_of_the_reference(n_terms, n_samples, on_cpu, monkeypatch):
    arrays = affine_arrays(61, n_terms, n_samples)
    launched = counting(monkeypatch)
    for name in ("affine_spmv", "affine_residual"):
        vectors = (np.random.default_rng(5).standard_normal((61, n_samples)),) if name == "affine_residual" else ()
        k = KERNELS[name]
        got = k.implementations["cuda"](*arrays, *vectors, None)
        np.testing.assert_array_equal(got, k.implementations["numba"](*arrays, *vectors, None))
    assert launched == ["affine_product<SET>", "affine_product<RESIDUAL>"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["first", "step", "last"])
def test_matrix_units_take_chebyshev_steps(kind, on_cpu, monkeypatch):
    indptr, indices, terms, coefficients, x = affine_arrays(50, 6, 32)
    launched = counting(monkeypatch)
    rng = np.random.default_rng(91019)
    dinv, b, w = (rng.standard_normal((50, 32)) for _ in range(3))
    a, c = rng.standard_normal((2, 32))
    scalars = (c,) if kind == "first" else (a, c)
    k, outs = KERNELS[f"affine_chebyshev_{kind}"], []
    for backend in ("cuda", "numba"):
        mine, out = w.copy(), np.full((50, 32), np.nan)
        k.implementations[backend](indptr, indices, terms, coefficients, dinv, b, x, *scalars, mine, out)
        outs.append((mine, out))
    np.testing.assert_array_equal(outs[0], outs[1])
    assert launched == [f"affine_chebyshev<{kind.upper()}>"]


@pytest.mark.parametrize(
    "n_rows, n_terms, n_samples, dtype",
    [(49, 6, 32, float), (61, 3, 32, float), (61, 6, 24, float), (61, 6, 32, np.float32)],
)
def test_other_affine_products_go_without_matrix_units(n_rows, n_terms, n_samples, dtype, on_cpu, monkeypatch):
    arrays = affine_arrays(n_rows, n_terms, n_samples)
    launched = counting(monkeypatch)
    monkeypatch.setattr(affine_mma, "FEWEST_ROWS", 50)
    KERNELS["affine_spmv"].implementations["cuda"](*arrays[:2], *(a.astype(dtype) for a in arrays[2:]), None)
    assert not launched


def test_without_matrix_units_the_plain_kernel_runs(on_cpu, monkeypatch):
    launched = counting(monkeypatch)
    monkeypatch.setattr(device, "ordered_matrix_units", lambda: 0)
    KERNELS["affine_spmv"].implementations["cuda"](*affine_arrays(61, 6, 32), None)
    assert not launched


# --- NVRTC
@pytest.fixture(scope="module")
def compiler():
    library = nvrtc.library()
    if library is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc")
    return library


LAYOUTS = [
    ("double", 16, 2, "int"),
    *(
        pytest.param(*layout, marks=pytest.mark.slow)
        for layout in [("double", 32, 1, "long long"), ("double", 1, 1, "int"), ("float", 8, 4, "int")]
    ),
]


@pytest.mark.parametrize("real, lanes, vector, offset", LAYOUTS)
@pytest.mark.parametrize("name", cuda.KERNEL_MODULES)
def test_nvrtc_compiles_every_kernel(compiler, name, real, lanes, vector, offset):
    family = cuda.KERNEL_MODULES[name]
    options = (family.only or cuda.Layout(real, min(lanes, family.widest), vector, 0)).options(offset)
    for extra in family.extras:
        assert nvrtc.compiled(compiler, family.source(), *options, *extra, instances=family.instances)


# --- whole solves, with NumPy arrays in the role of device arrays


@pytest.mark.slow
def test_a_solve_by_reduction_agrees_with_the_cpu(request):
    A, b = convection(6)
    expected = solved_by_reduction(A, b)
    request.getfixturevalue("as_device")
    got = solved_by_reduction(A, b)
    assert got.converged.all()
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(got.x.samples, expected.x.samples, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_samples", [1, 6])
def test_a_whole_solve_agrees_with_the_cpu(n_samples, request):
    A, b = problem(n_samples)
    expected = solved(A, b)
    request.getfixturevalue("as_device")
    got = solved(A, b)
    assert got.converged.all()
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(got.x.samples, expected.x.samples, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(got.residual_norms, expected.residual_norms, rtol=1e-4)


@pytest.mark.emulated
@pytest.mark.parametrize("n_samples, smoother", [(1, Chebyshev()), (5, Chebyshev()), (3, Jacobi())])
def test_a_whole_solve_with_blocks_agrees_with_the_cpu(n_samples, smoother, request):
    A, b = block_problem(n_samples)
    expected = cg(A, b, M=smoothed_aggregation(A, coarse_size=60, smoother=smoother), rtol=1e-9)
    request.getfixturevalue("as_device")
    got = cg(A, b, M=smoothed_aggregation(A, coarse_size=60, smoother=smoother), rtol=1e-9)
    assert got.converged.all()
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(got.x.samples, expected.x.samples, rtol=1e-10, atol=1e-10)


@pytest.mark.emulated
def test_a_solve_with_strength_and_gauss_seidel_agrees_with_the_cpu(request):
    A, b = problem(3)
    options = {"coarse_size": 60, "smoother": GaussSeidel(), "strength": 0.05, "improve_candidates": 2}
    expected = cg(A, b, M=smoothed_aggregation(A, **options), rtol=1e-9)
    request.getfixturevalue("as_device")
    got = cg(A, b, M=smoothed_aggregation(A, **options), rtol=1e-9)
    assert got.converged.all()
    np.testing.assert_array_equal(got.iterations, expected.iterations)
    np.testing.assert_allclose(got.x.samples, expected.x.samples, rtol=1e-11, atol=1e-11)


def test_scalars_on_the_device_change_no_bit(as_device, monkeypatch):
    """The loop with its scalars on the host queues the same kernels and takes the same decisions."""
    A, b = problem(5)
    by_device = solved(A, b)
    monkeypatch.setattr(solve_module, "runs_on_device", lambda *arguments: False)
    by_host = solved(A, b)
    np.testing.assert_array_equal(by_device.x.samples, by_host.x.samples)
    np.testing.assert_array_equal(by_device.residual_norms, by_host.residual_norms)
    np.testing.assert_array_equal(by_device.iterations, by_host.iterations)


@pytest.mark.emulated
def test_a_sample_on_the_device_is_its_own_scalar_run(as_device):
    A, b = problem(5)
    b.samples[:, 1] *= 1e-9
    b.samples[:, 2] = 0.0
    b.samples[3, 4] = np.nan
    together = solved(A, b)
    for i in range(5):
        alone = solved(A.sample(i), Ensemble(b.samples[:, i : i + 1].copy()))
        assert together.status[i] == alone.status[0]
        assert together.iterations[i] == alone.iterations[0]
        np.testing.assert_array_equal(together.x.samples[:, i], alone.x.samples[:, 0])


@pytest.mark.emulated
def test_finished_samples_are_taken_out_on_the_device(as_device, monkeypatch):
    """Narrowing in mid-solve changes no bit."""
    A, b = problem(6)
    options = {"rtol": 1e-10, "max_iterations": 400}
    x0 = cg(A, b, rtol=1e-12).x.samples.copy()
    x0[:, 4:] = 0.0
    narrowed = cg(A, b, x0=Ensemble(x0 * (1 + 1e-7)), **options)
    whole = cg(A, b, x0=Ensemble(x0 * (1 + 1e-7)), compact=False, **options)
    assert narrowed.converged.all()
    np.testing.assert_array_equal(narrowed.x.samples, whole.x.samples)
    np.testing.assert_array_equal(narrowed.iterations, whole.iterations)
    np.testing.assert_array_equal(narrowed.residual_norms, whole.residual_norms)


@pytest.mark.emulated
@pytest.mark.parametrize("solve", [bicgstab, gmres, lambda *args, **options: gmres(*args, restart=6, **options)])
def test_nonsymmetric_solvers_run_on_the_device_kernels(solve, request):
    A, b = nonsymmetric(60, 5, seed=50231), np.random.default_rng(80917).standard_normal((60, 5))
    b[:, 2], b[3, 4] = 0.0, np.nan
    expected = solve(A, Ensemble(b), rtol=1e-9)
    request.getfixturevalue("as_device")
    got = solve(A, Ensemble(b), rtol=1e-9)
    np.testing.assert_array_equal(got.status, expected.status)
    sound = got.converged
    np.testing.assert_allclose(got.x.samples[:, sound], expected.x.samples[:, sound], rtol=1e-6, atol=1e-8)
    for i in range(5):
        alone = solve(A.sample(i), Ensemble(b[:, i : i + 1].copy()), rtol=1e-9)
        assert got.iterations[i] == alone.iterations[0]
        np.testing.assert_array_equal(got.x.samples[:, i], alone.x.samples[:, 0])


@pytest.mark.parametrize("n_samples", [2, 8, 33])
def test_products_do_not_depend_on_the_number_of_samples(n_samples, as_device):
    A, b = problem(n_samples)
    last = n_samples - 1
    y, inner = A.apply_dot(b.samples)
    one, its_inner = A.sample(last).apply_dot(b.samples[:, last:].copy())
    np.testing.assert_array_equal(y[:, last], one[:, 0])
    np.testing.assert_array_equal(inner[last], its_inner[0])
    np.testing.assert_array_equal(A.apply(b.samples), y)


def test_a_solve_that_does_not_fit_says_what_would(monkeypatch):
    problem = RandomDiffusion(8)
    own, shared = solve_memory.bytes_needed(problem.discretization, 1, 8)
    monkeypatch.setattr(solve_memory, "free_bytes", lambda home: shared + 5 * own)
    problem.solve(Ensemble(np.zeros((5, 4))))
    with pytest.raises(MemoryError, match=r"y must fit .* GB; got 9 samples on 8 x 8 x 8 cells.* 5 samples at once"):
        problem.solve(Ensemble(np.zeros((5, 9))))
    monkeypatch.setattr(solve_memory, "free_bytes", lambda home: shared // 2)
    with pytest.raises(MemoryError, match="Not even one sample"):
        problem.solve(Ensemble(np.zeros((5, 2))))
    assert problem.solve(Ensemble(np.zeros((5, 4)))).converged.all()  # nothing was lost
