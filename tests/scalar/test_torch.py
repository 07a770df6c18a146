"""PyTorch's tensors and functions meet ensembles: right, or refused with a reason."""

import re

import numpy as np
import pytest

from ensemble.scalar import (
    DivergenceError,
    Ensemble,
    cond,
    divide,
    dot,
    per_sample,
    run,
    sample_mean,
    where,
    while_loop,
)

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
    "argmax": lambda x: torch.argmax(x, dim=1),
    "argsort": lambda x: torch.argsort(x, dim=-2),
    "tensordot": lambda x: torch.tensordot(x, x, dims=([0, 1], [1, 0])),
    "tensordot of a tensor": lambda x: torch.tensordot(TENSOR, x, dims=1),
    "flip": lambda x: torch.flip(x, (0, -1)),
    "roll": lambda x: torch.roll(x, 1, -1),
    "roll of all": lambda x: torch.roll(x, 3),
    "ones_like": lambda x: torch.ones_like(x),
    "ones_like float32": lambda x: torch.ones_like(x, dtype=torch.float32),
    "full_like": lambda x: torch.full_like(x, 2.5),
    "method sum": lambda x: x.sum(dim=0),
    "method mean": lambda x: x.mean(dim=(0, 1), keepdim=True),
    "method std": lambda x: x.std(dim=1),
    "method any": lambda x: (x > 1.9).any(dim=0),
    "method cumsum": lambda x: x.cumsum(dim=1),
    "diff": lambda x: torch.diff(x, dim=0),
    "softmax": lambda x: torch.softmax(x, dim=-1),
    "logsumexp": lambda x: torch.logsumexp(x, dim=(0, 1)),
    "unsqueeze": lambda x: torch.unsqueeze(x, -1),
    "squeeze": lambda x: torch.squeeze(x[:1]),
    "permute": lambda x: torch.permute(x, (1, 0)),
    "transpose": lambda x: torch.transpose(x, 0, 1),
    "movedim": lambda x: torch.movedim(x, 0, -1),
    "outer": lambda x: torch.outer(x[0], TENSOR[1]),
    "trace": lambda x: torch.trace(x),
    "tril": lambda x: torch.tril(x, -1),
    "tile": lambda x: torch.tile(x, (2, 1)),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, 2, dim=1),
    "count_nonzero": lambda x: torch.count_nonzero(x > 1, dim=0),
    "flatten": lambda x: torch.flatten(x),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, ord=1, dim=0),
    "norm along an axis": lambda x: torch.linalg.norm(x, dim=1, keepdim=True),
    "norm of matrices": lambda x: torch.linalg.norm(x, ord="fro"),
    "isin": lambda x: torch.isin(torch.round(x), torch.ones(1, dtype=torch.float64)),
    "index_select": lambda x: torch.index_select(x, 0, torch.tensor([2, 0])),
    "take_along_dim": lambda x: torch.take_along_dim(x, torch.tensor([[0, 1, 2, 0]]), dim=0),
    "median": lambda x: torch.median(x),
    "maximum of two": lambda x: torch.max(x, 2.0 - x),
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


SEVERAL = {
    "max": lambda x: torch.max(x, dim=0),
    "max by position": lambda x: torch.max(x, 1, True),
    "min": lambda x: torch.min(x, dim=-1, keepdim=True),
    "method": lambda x: x.max(dim=0),
    "sort": lambda x: torch.sort(x, dim=0, descending=True),
    "sort by default": lambda x: torch.sort(x),
    "topk": lambda x: torch.topk(x, 2, dim=0),
    "median": lambda x: torch.median(x, dim=1),
    "kthvalue": lambda x: torch.kthvalue(x, 2, dim=0),
    "cummax": lambda x: torch.cummax(x, dim=0),
    "unbind": lambda x: torch.unbind(x, dim=1),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_results_come_as_pytorch_gives_them(name):
    x = Ensemble(torch.as_tensor(VALUES))
    got = SEVERAL[name](x)
    for s in range(3):
        expected = SEVERAL[name](x.sample(s))
        assert type(got) is type(expected)
        for part, right in zip(got, expected, strict=True):
            assert part.dtype == right.dtype
            np.testing.assert_array_equal(part.sample(s).numpy(), right.numpy())
    if name != "unbind":
        np.testing.assert_array_equal(got.indices.samples, got[1].samples)


def test_an_axis_beyond_the_visible_ones_is_refused():
    with pytest.raises(IndexError, match=r"torch\.sort: dim must be from -2 to 1; got 2"):
        torch.sort(Ensemble(torch.as_tensor(VALUES)), dim=2)
    with pytest.raises(
        TypeError, match=r"Ensemble\.sum: arguments must be axis and keepdims; got .'dim'. for samples of numpy"
    ):
        Ensemble(VALUES).sum(dim=0)


REFUSED = {
    "add_": (lambda t, x: t.add_(x), r"torch.add_: the tensor written to must be an Ensemble"),
    "assignment": (lambda t, x: t.__setitem__(slice(None), x), "the tensor written to must be an Ensemble"),
    "entry": (lambda t, x: t.__setitem__((0, 0), x[0, 0]), "the tensor written to|must be one number"),
    "copy_": (lambda t, x: t.copy_(x), "the tensor written to must be an Ensemble"),
    "out": (lambda t, x: torch.sin(x, out=t), "the tensor written to must be an Ensemble"),
    "not standard": (lambda t, x: torch.lgamma(x), "torch.lgamma: a function of an Ensemble must be lifted"),
    "tensor": (lambda t, x: torch.tensor(x), "an exported array must be one array"),
    "as_tensor": (lambda t, x: torch.as_tensor(x), "an exported array must be one array"),
    "numpy's": (lambda t, x: t * Ensemble(np.ones((4, 4, 3))), "operands must come from one array library"),
    "numpy array": (
        lambda t, x: np.ones((4, 4)) * x,
        r"np.multiply: .* one array library; got numpy and torch",
    ),
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


SHOWN = {
    "bfloat16": (torch.full((2, 3), 1.5, dtype=torch.bfloat16), r"bfloat16\) \[1.5 ± 0, 1.5 ± 0\]"),
    "float16": (torch.full((2, 3), 1.5, dtype=torch.float16), r"float16\) \[1.5 ± 0, 1.5 ± 0\]"),
    "float8": (torch.full((3,), 1.5, dtype=torch.float32).to(torch.float8_e4m3fn), r"\) 1.5 ± 0"),
    "meta": (torch.ones(2, 3, device="meta"), r"n_samples=3, float32\) <values not known: Tensor>"),
    "with gradient": (torch.full((3,), 1.5, requires_grad=True), r"1.5 ± 0"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_every_ensemble_has_a_text(name):
    samples, text = SHOWN[name]
    x = Ensemble(samples)
    assert re.search(text, repr(x))
    assert re.search(text, f"{x}")
    assert f"{x:.1f}"
    assert x._repr_html_().startswith("<div")


def test_an_ensemble_inside_a_transformed_function_has_a_text():
    texts = []

    def seen(v):
        texts.append(repr(Ensemble(v)))
        return v.sum()

    torch.vmap(seen)(torch.ones(2, 3))
    torch.func.grad(seen)(torch.full((3,), 1.5))
    assert texts == [
        "Ensemble(shape=(), n_samples=3, float32) <values not known: Tensor>",
        "Ensemble(shape=(), n_samples=3, float32) 1.5 ± 0",
    ]


DECISIONS = {
    "cond": lambda x: cond(x > 1.0, lambda v: v**3, lambda v: -v, x),
    "while_loop": lambda x: while_loop(lambda v: v < 3.0, lambda v: v * 1.5, x).state,
    "run": lambda x: run(lambda v: v**3 if v > 1.0 else -v, x).value,
    "per_sample": lambda x: per_sample(lambda v: v**2 if v > 1.0 else -v)(x),
    "divide": lambda x: divide(1.0, x, where=x > 0.6, fill=0.0),
    "where": lambda x: where(x > 1.0, x**2, -x),
    "linspace": lambda x: x.__array_namespace__().linspace(0.0, x, 3, dtype=torch.float64)[1],
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # of PyTorch's own import
@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_have_derivatives_in_both_modes(name):
    f, at = (lambda v: DECISIONS[name](Ensemble(v)).samples), torch.tensor([0.5, 0.8, 1.1], dtype=torch.float64)
    assert torch.autograd.gradcheck(f, at.clone().requires_grad_(), check_forward_ad=True)
    forward = torch.func.jacfwd(f)(at)
    np.testing.assert_allclose(forward, torch.func.jacrev(f)(at), rtol=1e-14)
    assert torch.all(torch.diagonal(forward).abs() + (at < 0.6) > 0.0)


@pytest.mark.parametrize("name", ["cond", "while_loop", "run"])
def test_a_decision_on_mapped_values_is_refused(name):
    with pytest.raises(TypeError, match="values must be known where a decision needs them"):
        torch.vmap(lambda v: DECISIONS[name](Ensemble(v)).samples)(torch.ones(2, 3))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.repeat(2, 1),
        lambda x: x.repeat((2, 1, 3)),
        lambda x: x.transpose(0, 1),
        lambda x: x.max(0)[0],
        lambda x: x.min(1, True)[1],
        lambda x: x.sort(0)[1],
        lambda x: x.std(False),
        lambda x: x.sum(0, True),
        lambda x: x.mean(1, True),
        lambda x: (x > 0.0).all(0, True),
        lambda x: x.argmax(0, True),
        lambda x: x.argsort(0, True),
    ],
)
def test_methods_with_arguments_by_position_are_those_of_tensors(call):
    x = Ensemble(torch.tensor(np.random.default_rng(5).normal(size=(2, 3, 4))))
    before, got = x.samples.clone(), call(x)
    for s in range(4):
        torch.testing.assert_close(got.sample(s), call(x.sample(s)))
    assert torch.equal(before, x.samples)
