"""Solves of PyTorch's tensors: NumPy's bits, and derivatives of the solution by A, b and x0."""

import numpy as np
import pytest

from ensemble.krylov import Status, TracedResult, cg, direct, gmres, newton
from ensemble.linalg import (
    AffineMatrix,
    BcrsMatrix,
    CrsGraph,
    CrsMatrix,
    Diagonal,
    Factorization,
    IncompleteFactorization,
    SymmetricCrsMatrix,
    eigsh,
)
from ensemble.multigrid import approximate_ideal_restriction, smoothed_aggregation
from ensemble.scalar import Ensemble, SampleSet
from tests.krylov.derivative_problems import (
    BASE,
    GENERAL,
    GRAPH,
    MODES,
    SAMPLES,
    SOLVERS,
    SYMMETRIC,
    N,
    dense,
    gradients,
    matrix,
    parameters,
)

torch = pytest.importorskip("torch")
# PyTorch's own import of its forward mode warns.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
RNG = np.random.default_rng(33191)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def solution(name, modes=None, **options):
    """The function of parameters and right-hand sides whose derivatives are judged."""
    modes = torch.as_tensor(MODES[name] if modes is None else modes)

    def x(k, b):
        return SOLVERS[name](matrix(modes @ k), Ensemble(b), rtol=1e-12, **options).x.samples

    return x


@pytest.mark.parametrize("of_a, of_b", SAMPLES)
@pytest.mark.parametrize("name", SOLVERS)
def test_gradients_are_those_of_dense_solves(name, of_a, of_b):
    k, b = tensor(parameters(of_a)), tensor(RNG.normal(size=(N, of_b)))
    solution(name)(k, b).sum().backward()
    for got, expected in zip((k.grad, b.grad), gradients(MODES[name], k.detach().numpy(), b.detach().numpy())):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SOLVERS)
def test_gradcheck_in_both_modes_and_twice(name):
    k, b = tensor(parameters(2)), tensor(RNG.normal(size=(N, 1)))
    assert torch.autograd.gradcheck(solution(name), (k, b), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(solution(name), (k[:, :1].detach().requires_grad_(), b))


@pytest.mark.parametrize("name", SOLVERS)
def test_values_and_outcomes_have_the_bits_of_numpy(name):
    k, b = parameters(3), RNG.normal(size=(N, 3))
    own = SampleSet(weights=[1.0, 2.0, 3.0])
    expected = SOLVERS[name](matrix(MODES[name] @ k, own), Ensemble(b, own))
    got = SOLVERS[name](matrix(torch.as_tensor(MODES[name] @ k), own), Ensemble(torch.as_tensor(b), own))
    assert type(got) is type(expected)
    np.testing.assert_array_equal(got.x.samples.numpy(), expected.x.samples)
    assert got.x.sample_set is own
    np.testing.assert_array_equal(got.status, expected.status)
    np.testing.assert_array_equal(got.residual_norms, expected.residual_norms)


def test_values_are_read_where_they_lie():
    b = torch.ones(N, 2, dtype=torch.float64)
    seen = []

    class Seen:
        shape = (N, N)

        def apply(self, x, out):
            seen.append(x)
            return x.clone() if out is None else out.copy_(x)

    cg(Seen(), Ensemble(b), max_iterations=1)
    assert seen and all(isinstance(x, torch.Tensor) for x in seen)
    A = matrix(torch.as_tensor(np.array(BASE.values)))
    host = Factorization(A)._matrix
    assert np.shares_memory(host.values, A.values.numpy())


def test_a_plain_vector_gives_a_plain_solution_and_a_start_has_no_gradient():
    b, x0 = tensor(np.ones(N)), tensor(np.full(N, 0.3))
    x = cg(matrix(torch.as_tensor(np.array(BASE.values))), b, x0=x0).x
    assert isinstance(x, torch.Tensor) and x.shape == (N,)
    x.sum().backward()
    assert torch.all(x0.grad == 0.0)
    assert torch.all(b.grad > 0.0)


def stored(values):
    return matrix(values)


KINDS = {
    "CrsMatrix": stored,
    "transpose": lambda v: matrix(v).T,
    "SymmetricCrsMatrix": lambda v: SymmetricCrsMatrix.from_crs(matrix(v)),
    "AffineMatrix": lambda v: AffineMatrix(
        GRAPH, torch.as_tensor(np.column_stack([0.0 * SYMMETRIC[:, 0], SYMMETRIC[:, 0]])), Ensemble(v[:1] / 2.0)
    ),
    "BcrsMatrix": lambda v: BcrsMatrix(GRAPH, Ensemble(v[:, None, None])),
    "dense": lambda v: Ensemble(
        torch.zeros(N * N, v.shape[1], dtype=v.dtype)
        .index_put((torch.as_tensor(GRAPH.row_of_entry.astype(np.int64) * N + GRAPH.indices),), v)
        .reshape(N, N, -1)
    ),
}


@pytest.mark.parametrize("solver", [cg, gmres, direct])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_matrix_has_gradients(kind, solver):
    k = tensor([[1.0, 2.0]])
    b = torch.as_tensor(RNG.normal(size=(N, 2)))
    x = solver(KINDS[kind](torch.as_tensor(SYMMETRIC[:, :1]) @ k), Ensemble(b), rtol=1e-12).x.samples
    (got,) = torch.autograd.grad(x.sum(), k)
    np.testing.assert_allclose(got[0], -(x.sum(0) / k[0]).detach(), rtol=1e-9)  # x is proportional to 1 / k


PRECONDITIONERS = {
    "aggregation": lambda A: smoothed_aggregation(A, coarse_size=2),
    "reduction": approximate_ideal_restriction,
    "factors": Factorization,
    "incomplete": IncompleteFactorization,
    "diagonal": lambda A: Diagonal(Ensemble(torch.full((N, 2), 0.5, dtype=torch.float64))),
}


OF_SOLVERS = [
    (M, name)
    for M in PRECONDITIONERS
    for name in (("gmres", "bicgstab") if M == "reduction" else ("cg", "gmres", "bicgstab", "minres"))
]


@pytest.mark.parametrize("M, name", OF_SOLVERS)
def test_gradients_do_not_depend_on_the_preconditioner(M, name):
    k, b = tensor(parameters(2)), torch.as_tensor(RNG.normal(size=(N, 2)))
    A = matrix(torch.as_tensor(MODES[name]) @ k)
    x = SOLVERS[name](A, Ensemble(b), M=PRECONDITIONERS[M](A), rtol=1e-12).x.samples
    (got,) = torch.autograd.grad(x.sum(), k)
    np.testing.assert_allclose(got, gradients(MODES[name], k.detach().numpy(), b.numpy())[0], rtol=1e-8)


def test_a_sample_that_fails_has_nan_gradients_and_touches_no_other():
    v = tensor(SYMMETRIC[:, :1] * np.array([1.0, np.nan, 2.0]))
    result = cg(matrix(v), torch.ones(N, dtype=torch.float64))
    assert result.status.tolist() == [Status.converged, Status.breakdown, Status.converged]
    (got,) = torch.autograd.grad(result.x.samples.nansum(), v)
    alone = tensor(SYMMETRIC[:, :1] * 2.0)
    (expected,) = torch.autograd.grad(cg(matrix(alone), torch.ones(N, dtype=torch.float64)).x.sum(), alone)
    assert torch.all(got[:, 1].isnan())
    np.testing.assert_array_equal(got[:, 2], expected[:, 0])


def test_a_solve_for_derivatives_that_fails_says_so():
    b = torch.zeros(N, 2, dtype=torch.float64)
    b[:, 0] = torch.as_tensor(BASE.to_scipy() @ np.ones(N))
    v = tensor(np.array(BASE.values))
    x0 = torch.zeros(N, 2, dtype=torch.float64)
    x0[:, 0] = 1.0  # the solution: no iteration is needed
    result = gmres(matrix(v), Ensemble(b), x0=Ensemble(x0), max_iterations=1)
    assert result.converged.all()
    weights = torch.as_tensor(RNG.normal(size=N))
    with pytest.warns(RuntimeWarning, match="gmres: the solve for derivatives with the adjoint of A did not converge"):
        (got,) = torch.autograd.grad((weights @ result.x.samples).sum(), v)
    assert torch.all(got.isnan())


def test_function_transforms_give_derivatives_of_any_order():
    b = torch.ones(N, 1, dtype=torch.float64)
    values = torch.as_tensor(SYMMETRIC[:, :1])

    def total(k):
        result = direct(matrix(values * k), Ensemble(b))
        assert result.status.tolist() == 2 * [Status.converged]
        return result.x.samples.sum()

    k = torch.tensor([1.0, 2.0], dtype=torch.float64)
    whole = float(np.linalg.solve(BASE.to_scipy().toarray(), np.ones(N)).sum())
    first, second = -whole / k**2, torch.diag(2.0 * whole / k**3)
    for found in (torch.func.grad(total)(k), torch.func.jacfwd(total)(k)):
        np.testing.assert_allclose(found, first, rtol=1e-12)
    for found in (torch.func.hessian(total)(k), torch.func.jacrev(torch.func.grad(total))(k)):
        np.testing.assert_allclose(found, second, rtol=1e-12)


def test_a_mapped_solve_is_that_of_each_member():
    A = matrix(torch.as_tensor(np.array(BASE.values)))
    columns = torch.as_tensor(RNG.normal(size=(3, N)))
    result = torch.vmap(lambda b: cg(A, b).x)(columns)
    for got, b in zip(result, columns):
        np.testing.assert_array_equal(got, cg(A, b).x)

    def read(b):
        result = cg(A, b)
        assert isinstance(result, TracedResult)
        assert "not known" in repr(result)
        return result.status

    with pytest.raises(TypeError, match="cg: status and residual_norms must be known"):
        torch.vmap(read)(columns)


def test_complex_systems_have_gradients():
    values = torch.as_tensor(GENERAL @ parameters(1) + 0.1j * RNG.normal(size=(GRAPH.nnz, 1))).requires_grad_()
    b = torch.as_tensor(RNG.normal(size=(N, 1)) + 1j * RNG.normal(size=(N, 1))).requires_grad_()

    def x(v, b, solver=direct):
        return solver(matrix(v), Ensemble(b), rtol=1e-12).x.samples

    assert torch.autograd.gradcheck(x, (values, b), fast_mode=True)
    exact = torch.autograd.grad(x(values, b).abs().sum(), (values, b))
    for got, expected in zip(torch.autograd.grad(x(values, b, gmres).abs().sum(), (values, b)), exact):
        np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_other_types_of_numbers_are_promoted(dtype):
    b = torch.ones(N, dtype=dtype)
    x = cg(matrix(torch.as_tensor(np.array(BASE.values, np.float32))), b).x
    assert x.dtype == (torch.float64 if dtype == torch.int64 else torch.float32)
    np.testing.assert_allclose(BASE.to_scipy() @ x.numpy(), 1.0, rtol=1e-4)


class Hidden:
    """An operator that keeps its matrix to itself."""

    shape = (N, N)

    def __init__(self, A):
        self.A = A

    def __matmul__(self, x):
        return self.A @ x


def test_an_operator_without_entries_has_the_gradient_of_b_alone():
    A = matrix(torch.as_tensor(np.array(BASE.values)))
    b = tensor(np.ones((N, 1)))
    (got,) = torch.autograd.grad(cg(Hidden(A), Ensemble(b)).x.samples.sum(), b)
    np.testing.assert_allclose(got[:, 0], np.linalg.solve(BASE.to_scipy().toarray(), np.ones(N)), rtol=1e-10)
    with pytest.raises(TypeError, match="gmres: A must be a matrix, or have T, where b needs a gradient"):
        gmres(Hidden(A), Ensemble(b))
    with pytest.raises(TypeError, match="cg: A must be a matrix where a gradient with respect to it is needed"):
        cg(Hidden(matrix(tensor(np.array(BASE.values)))), Ensemble(b))


A_NUMPY = CrsMatrix(GRAPH, np.array(BASE.values))
REFUSED = {
    "numpy A": (lambda A, b: cg(A_NUMPY, b), "cg: b and A must come from one array library; got torch and numpy"),
    "numpy b": (lambda A, b: gmres(A, np.ones(N)), "gmres: b and A must come from one array library"),
    "product": (lambda A, b: A_NUMPY @ b, "CrsMatrix @: x and the matrix must come from one array library"),
    "factors": (lambda A, b: Factorization(A_NUMPY) @ b, "Factorization @: x and A must come from one array library"),
    "device": (lambda A, b: cg(A, b.to("meta")), "cg: A, b, x0 must be on the CPU; got a Tensor of torch"),
    "eigsh": (lambda A, b: eigsh(A, 1), "eigsh: A must hold NumPy arrays; got a Tensor of torch"),
    "newton": (lambda A, b: newton(lambda u: A @ u - b, lambda u: A, b), "newton: u0 must hold arrays of NumPy or"),
    "incomplete": (
        lambda A, b: IncompleteFactorization(A) @ b,
        "IncompleteFactorization @: A must need no gradient, for which there is no rule",
    ),
    "inverse": (lambda A, b: Factorization(A).inverse_diagonal(), "inverse_diagonal: A must need no gradient"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_served_is_refused(name):
    call, text = REFUSED[name]
    with pytest.raises(TypeError, match=text):
        call(matrix(tensor(np.array(BASE.values))), torch.ones(N, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["lu", "ldlt"])
def test_factors_have_derivatives(kind):
    modes = torch.as_tensor(GENERAL if kind == "lu" else SYMMETRIC)
    k, b = tensor(parameters(2)), tensor(RNG.normal(size=(N, 2)))

    def factors(k):
        return Factorization(matrix(modes @ k), kind=kind)

    assert torch.autograd.gradcheck(lambda k, b: (factors(k) @ Ensemble(b)).samples, (k, b), check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda k, b: (factors(k).T @ Ensemble(b)).samples, (k, b))
    assert torch.autograd.gradgradcheck(lambda k, b: (factors(k) @ Ensemble(b)).samples, (k, b))
    assert torch.autograd.gradcheck(lambda k: factors(k).logdet().samples, k)
    fixed = Factorization(BASE, kind=kind)
    assert torch.autograd.gradcheck(lambda k, b: fixed.solve(matrix(modes @ k), Ensemble(b)).samples, (k, b))
    F = factors(k)
    A, _ = dense(modes.numpy(), k.detach().numpy(), 1)
    columns = torch.as_tensor(RNG.normal(size=(N, 3)))
    np.testing.assert_allclose((F @ columns).sample(1).detach(), np.linalg.solve(A, columns), rtol=1e-11)
    np.testing.assert_allclose(F.logdet().samples[1].detach(), np.linalg.slogdet(A)[1], rtol=1e-12)
    assert F.sign().samples.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("transposed", [False, True])
def test_products_have_gradients(transposed):
    graph = CrsGraph([0, 2, 2, 5], [0, 3, 0, 1, 3], (3, 4))  # an empty row, and not square
    v, x = tensor(RNG.normal(size=(5, 2))), tensor(RNG.normal(size=(3 if transposed else 4, 1)))

    def product(v, x):
        A = CrsMatrix(graph, Ensemble(v))
        return ((A.T if transposed else A) @ Ensemble(x)).samples

    assert torch.autograd.gradcheck(product, (v, x))
    assert torch.autograd.gradgradcheck(product, (v, x))


@pytest.mark.parametrize("of_a, of_b", [(2, 2), (1, 2), (2, 1)])
def test_products_of_matrices_have_gradients(of_a, of_b):
    a, b = CrsGraph([0, 2, 2, 5], [0, 3, 0, 1, 3], (3, 4)), CrsGraph([0, 1, 3, 3, 5], [1, 0, 1, 0, 1], (4, 2))
    v, w = tensor(RNG.normal(size=(5, of_a))), tensor(RNG.normal(size=(5, of_b)))

    def product(v, w):
        return (CrsMatrix(a, Ensemble(v)) @ CrsMatrix(b, Ensemble(w))).values

    assert torch.autograd.gradcheck(product, (v, w), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(product, (v, w))
    np.testing.assert_allclose(product(v, w).detach(), product(v.detach(), w.detach()), rtol=1e-14)
