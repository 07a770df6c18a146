"""PyTorch's rules of derivatives for a solve on NumPy's arrays: reverse, forward, of any order, and mapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ensemble.linalg.bridge.host import host_view
from ensemble.linalg.bridge.system import HostSystem

__all__ = ["logdet", "outcome"]


def _host(system: HostSystem, *tensors: Any) -> list[Any]:
    """NumPy's views of tensors."""
    return [None if t is None else np.ascontiguousarray(host_view(t, system.name, "A, b, x0")) for t in tensors]


def _index(places: Any) -> torch.Tensor:
    return torch.from_numpy(places)


def _product(system: HostSystem, adjoint: bool, values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The product of A, or of its adjoint, with x."""
    rows, columns = _index(system.rows), _index(system.columns)
    if adjoint:
        rows, columns, values = columns, rows, values.conj()
    terms = values * x[columns]
    return torch.zeros((system.n, terms.shape[1]), dtype=terms.dtype).index_add(0, rows, terms)


def _gradient(system: HostSystem, adjoint: bool, y: torch.Tensor, x: torch.Tensor, n_samples: int) -> torch.Tensor:
    """The gradient with respect to the values of A of the solution x whose adjoint is y."""
    rows, columns = _index(system.rows), _index(system.columns)
    terms = -(x[rows] * y[columns].conj()) if adjoint else -(y[rows] * x[columns].conj())
    return _summed(terms, n_samples)


def _summed(terms: torch.Tensor, n_samples: int) -> torch.Tensor:
    """The sum over samples where the argument is shared by all."""
    return terms.sum(dim=-1, keepdim=True) if n_samples == 1 < terms.shape[-1] else terms


def _by_loop(function: Callable[..., Any], size: int, dims: Any, arguments: tuple[Any, ...]) -> list[Any]:
    """The results for each member of a batch."""
    return [
        function(*(a if d is None else a.select(d, k) for a, d in zip(arguments, dims, strict=True)))
        for k in range(size)
    ]


def _tangent(ctx: Any, adjoint: bool, x: torch.Tensor, values: Any, d_values: Any, d_r: Any) -> torch.Tensor:
    right = torch.zeros_like(x) if d_r is None else d_r.expand(x.shape)
    if d_values is not None and values is not None:
        right = right - _product(ctx.system, adjoint, d_values, x)
    return _Linear.apply(ctx.system, adjoint, values, right)


class _Linear(torch.autograd.Function):
    """The product of the inverse of A, or of its adjoint, with r."""

    @staticmethod
    def forward(system: HostSystem, adjoint: bool, values: Any, r: torch.Tensor) -> torch.Tensor:
        own, right = _host(system, values, r)
        return torch.from_numpy(system.derivative(own, right, adjoint))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.system, ctx.adjoint, values, r = inputs
        ctx.n_samples = None if values is None else values.shape[-1], r.shape[-1]
        ctx.save_for_backward(values, output)
        ctx.save_for_forward(values, output)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        values, x = ctx.saved_tensors
        y = _Linear.apply(ctx.system, not ctx.adjoint, values, g)
        d_values = None
        if values is not None and ctx.needs_input_grad[2]:
            d_values = _gradient(ctx.system, ctx.adjoint, y, x, ctx.n_samples[0])
        return None, None, d_values, _summed(y, ctx.n_samples[1])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        values, x = ctx.saved_tensors
        return _tangent(ctx, ctx.adjoint, x, values, *tangents[2:])

    @staticmethod
    def vmap(info: Any, in_dims: Any, system: HostSystem, adjoint: bool, values: Any, r: Any) -> Any:
        made = _by_loop(lambda *a: _Linear.apply(system, adjoint, *a), info.batch_size, in_dims[2:], (values, r))
        return torch.stack(made), 0


class _Outcome(torch.autograd.Function):
    """The call of a solver: x, and what cannot be differentiated."""

    @staticmethod
    def forward(system: HostSystem, values: Any, b: torch.Tensor, x0: Any) -> Any:
        made = system.outcome(*_host(system, values, b, x0))
        return tuple(torch.from_numpy(np.array(part)) for part in made)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.system, values, b, x0 = inputs
        x, converged, *others = output
        ctx.n_samples = None if values is None else values.shape[-1], b.shape[-1]
        ctx.mark_non_differentiable(converged, *others)
        ctx.save_for_backward(values, x, converged, x0)
        ctx.save_for_forward(values, x, converged, x0)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, *_: Any) -> Any:
        values, x, converged, x0 = ctx.saved_tensors
        y = _Linear.apply(ctx.system, True, values, torch.where(converged, g, torch.nan))
        d_values = None
        if values is not None and ctx.needs_input_grad[1]:
            d_values = _gradient(ctx.system, False, y, x, ctx.n_samples[0])
        return None, d_values, _summed(y, ctx.n_samples[1]), None if x0 is None else torch.zeros_like(x0)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        values, x, converged, _ = ctx.saved_tensors
        dx = _tangent(ctx, False, x, values, *tangents[1:3])
        return torch.where(converged, dx, torch.nan), None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, system: HostSystem, *arguments: Any) -> Any:
        made = _by_loop(lambda *a: _Outcome.apply(system, *a), info.batch_size, in_dims[1:], arguments)
        return tuple(torch.stack(parts) for parts in zip(*made, strict=True)), (0,) * 5


def outcome(system: HostSystem, values: Any, b: Any, x0: Any) -> tuple[Any, ...]:
    """x, converged, iterations, norms and targets of a solve, x with its derivatives."""
    made: tuple[Any, ...] = _Outcome.apply(system, values, b, x0)
    return made


class _Logdet(torch.autograd.Function):
    """The logarithm of the determinant's magnitude, whose gradient is the conjugate transpose of the inverse."""

    @staticmethod
    def forward(ctx: Any, compute: Any, differentiate: Any, values: torch.Tensor) -> torch.Tensor:
        ctx.differentiate = differentiate
        ctx.save_for_backward(values)
        return torch.from_numpy(np.array(compute(host_view(values, "logdet", "A"))))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        (values,) = ctx.saved_tensors
        return None, None, g * torch.from_numpy(np.array(ctx.differentiate(host_view(values, "logdet", "A"))))


def logdet(compute: Callable[..., Any], differentiate: Callable[..., Any], values: Any) -> Any:
    """``compute(values)``, shape (n_samples,), with the gradient ``differentiate(values)``, shape of `values`."""
    return _Logdet.apply(compute, differentiate, values)
