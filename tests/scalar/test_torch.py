"""PyTorch's tensors and functions meet ensembles: right, or refused with a reason."""

import numpy as np
import pytest

from ensemble.scalar import DivergenceError, Ensemble, divide, dot, sample_mean, where

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(71993)
VALUES = RNG.uniform(0.5, 2.0, size=(4, 4, 3))
TENSOR = torch.as_tensor(RNG.uniform(0.5, 2.0, size=(4, 4)))

CALLS = {
    "left product": lambda x: TENSOR * x,
    "left sum": lambda x: TENSOR[0] + x,
    "left difference": lambda x: TENSOR - x,
    "left quotient": lambda x: TENSOR / x,
    "left power": lambda x: TENSOR**x,
    "left floor": lambda x: TENSOR // x,
    "left remainder": lambda x: TENSOR % x,
    "left matmul": lambda x: TENSOR @ x,
    "left comparison": lambda x: x > TENSOR,
    "left equality": lambda x: x == TENSOR,
    "left and": lambda x: (TENSOR > 1) & (x > 1),
    "0-d left": lambda x: torch.tensor(2.0, dtype=torch.float64) * x,
    "right": lambda x: x - TENSOR,
    "add": lambda x: torch.add(TENSOR, x, alpha=2),
    "sin": lambda x: torch.sin(x),
    "arccos": lambda x: torch.arccos(x / 4),
    "clamp": lambda x: torch.clamp(x, 0.7, 1.1),
    "where": lambda x: torch.where(x > 1, x, TENSOR),
    "sum": lambda x: torch.sum(x),
    "sum dim": lambda x: torch.sum(x, dim=-1, keepdim=True),
    "mean": lambda x: torch.mean(x, 0),
    "std": lambda x: torch.std(x, dim=0),
    "max": lambda x: torch.max(x),
    "amax": lambda x: torch.amax(x, dim=1),
    "cat": lambda x: torch.cat([x, TENSOR], dim=1),
    "stack": lambda x: torch.stack([x, x], dim=-1),
    "cumsum": lambda x: torch.cumsum(x, dim=1),
    "mm": lambda x: torch.mm(TENSOR, x),
    "mv": lambda x: torch.mv(x, TENSOR[0]),
    "solve": lambda x: torch.linalg.solve(x, TENSOR),
    "norm": lambda x: torch.linalg.norm(x),
    "fft": lambda x: torch.fft.fft(x, dim=0),
    "reshape": lambda x: torch.reshape(x, (2, 8)),
    "zeros_like": lambda x: torch.zeros_like(x),
    "method": lambda x: TENSOR.maximum(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_torch_functions_work_sample_by_sample(name):
    x = Ensemble(torch.as_tensor(VALUES))
    got = CALLS[name](x)
    assert isinstance(got, Ensemble)
    for s in range(3):
        expected = CALLS[name](x.sample(s))
        assert got.dtype == expected.dtype
        # 1e-12: a solve of condition below 1000
        np.testing.assert_allclose(got.sample(s).numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)


REFUSED = {
    "add_": (lambda t, x: t.add_(x), r"torch.add_: the tensor written to must be an Ensemble"),
    "assignment": (lambda t, x: t.__setitem__(slice(None), x), "the tensor written to must be an Ensemble"),
    "entry": (lambda t, x: t.__setitem__((0, 0), x[0, 0]), "the tensor written to|must be one number"),
    "copy_": (lambda t, x: t.copy_(x), "the tensor written to must be an Ensemble"),
    "out": (lambda t, x: torch.sin(x, out=t), "the tensor written to must be an Ensemble"),
    "not standard": (lambda t, x: torch.lgamma(x), "torch.lgamma: a function of an Ensemble must be lifted"),
    "two results": (lambda t, x: torch.max(x, dim=0), "unexpected keyword|takes"),
    "tensor": (lambda t, x: torch.tensor(x), "an exported array must be one array"),
    "as_tensor": (lambda t, x: torch.as_tensor(x), "an exported array must be one array"),
    "numpy's": (lambda t, x: t * Ensemble(np.ones((4, 4, 3))), "operands must come from one array library"),
    "numpy array": (lambda t, x: np.ones((4, 4)) * x, "np.multiply: .* the samples are a Tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_lifted_is_refused_with_a_reason(name):
    call, text = REFUSED[name]
    plain = torch.zeros((4, 4), dtype=torch.float64)
    with pytest.raises((TypeError, ValueError, RuntimeError, DivergenceError), match=text):
        call(plain, Ensemble(torch.as_tensor(VALUES)))
    assert not plain.any()


def test_a_sum_in_place_rebinds_the_name_and_leaves_the_tensor():
    plain = y = torch.zeros((4, 4), dtype=torch.float64)
    y += Ensemble(torch.as_tensor(VALUES))
    assert isinstance(y, Ensemble)
    assert not plain.any()


def test_negative_steps_read_and_write():
    x, y = Ensemble(torch.as_tensor(VALUES.copy())), Ensemble(VALUES.copy())
    for key in (slice(None, None, -1), (slice(3, 0, -2), 1), (..., slice(None, None, -3)), (0, slice(0, 0, -1))):
        np.testing.assert_array_equal(x[key].samples.numpy(), y[key].samples)
    x[::-1, 1:] = TENSOR[:, 1:]
    y[::-1, 1:] = TENSOR.numpy()[:, 1:]
    np.testing.assert_array_equal(x.samples.numpy(), y.samples)


def test_one_reverse_pass_gives_the_gradient_of_every_sample():
    a = torch.as_tensor(RNG.uniform(0.5, 2.0, size=(3, 5)), dtype=torch.float64).requires_grad_()

    def model(v):
        xp = v.__array_namespace__()
        y = xp.exp(v[0]) * v[1] + divide(v[2], v[0], where=v[0] > 1.0, fill=0.0)
        m = xp.asarray([[2.0, 1.0], [1.0, 3.0]], dtype=v.dtype)
        z = xp.linalg.solve(m, v[:2])
        return dot(z, z) + where(v[1] > 1.0, y, xp.sin(y))

    torch.sum(model(Ensemble(a)).samples).backward()
    for s in range(5):
        alone = a.detach()[:, s : s + 1].clone().requires_grad_()
        model(Ensemble(alone)).samples.sum().backward()
        np.testing.assert_allclose(a.grad[:, s], alone.grad[:, 0], rtol=1e-12)


def test_the_gradient_of_a_statistic_is_that_of_its_samples():
    a = torch.as_tensor(VALUES[0, 0], dtype=torch.float64).requires_grad_()
    sample_mean(Ensemble(a) ** 2).backward()
    np.testing.assert_allclose(a.grad, 2 * VALUES[0, 0] / 3, rtol=1e-15)


def test_a_conjugate_tensor_is_shown_and_compared():
    x = Ensemble(torch.as_tensor([1.0 + 1.0j, 1.0 + 1.0j]).conj())
    assert complex(x) == 1.0 - 1.0j
    assert "1-1j" in repr(x)


def test_equal_is_one_truth_value():
    x = Ensemble(torch.as_tensor(VALUES))
    assert torch.equal(x, x) is True
    assert torch.equal(x, x + 1.0) is False
    assert torch.equal(x, x[0]) is False


@pytest.mark.parametrize(
    "spread",
    [
        lambda x: torch.std(x),
        lambda x: torch.var(x, 0),
        lambda x: torch.std(x, unbiased=False),
        lambda x: torch.var(x, False),
        lambda x: torch.std(x, dim=1, correction=0),
        lambda x: x.std(),
        lambda x: x.var(0),
    ],
)
def test_a_spread_is_corrected_as_of_a_tensor(spread):
    got = spread(Ensemble(torch.as_tensor(VALUES)))
    for s in range(3):
        expected = spread(torch.as_tensor(VALUES[..., s].copy()))
        # 1e-14: sums of 16 terms in another order
        np.testing.assert_allclose(got.sample(s).numpy(), expected.numpy(), rtol=1e-14)


@pytest.mark.parametrize(
    "array, number", [("float32", "float64"), ("int32", "int64"), ("int64", "float32"), ("int8", "bool")]
)
@pytest.mark.parametrize("call", [lambda a, n: a * n, lambda a, n: n + a, lambda a, n: torch.where(a > 1, a, n)])
def test_a_value_without_axes_is_promoted_as_a_tensor_without_axes(array, number, call):
    a = torch.as_tensor(2.0 * VALUES).to(getattr(torch, array))
    n = torch.as_tensor(2.0 * VALUES[0, 0]).to(getattr(torch, number))
    expected = call(a[..., 0].clone(), n[0].clone())
    for value in (Ensemble(n), n[0].clone()):
        got = call(Ensemble(a), value)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got.sample(0).numpy(), expected.numpy())
