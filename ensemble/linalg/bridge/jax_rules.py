"""JAX's rules of derivatives for a solve on NumPy's arrays: under jit, vmap, grad and forward mode, of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ensemble.linalg.bridge.system import HostSystem

__all__ = ["logdet", "outcome"]


def _call(f: Callable[..., Any], shapes: Any, *arguments: Any) -> Any:
    """`f` of NumPy's arrays, called when the numbers are there; a batch goes member by member."""

    def on_host(*arrays: Any) -> Any:
        made = f(*(None if a is None else np.ascontiguousarray(np.asarray(a)) for a in arrays))
        return jax.tree.map(lambda part, like: np.asarray(part, like.dtype), made, shapes)

    return jax.pure_callback(on_host, shapes, *arguments, vmap_method="sequential")


def _shape(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))


def _product(system: HostSystem, values: Any, x: Any) -> Any:
    """The product of A with x, shape (n, n_samples)."""
    assert system.rows is not None and system.columns is not None
    terms = values * x[system.columns]
    return jnp.zeros((system.n, terms.shape[1]), terms.dtype).at[system.rows].add(terms)


def _linear(system: HostSystem, values: Any, r: Any) -> Any:
    """The product of the inverse of A with r, by a solve that JAX differentiates and transposes."""
    shape = _shape(r.shape, r.dtype)

    def solve(_: Any, right: Any) -> Any:
        return _call(lambda v, g: system.derivative(v, g, False), shape, values, right)

    def solve_transposed(_: Any, right: Any) -> Any:
        y = _call(lambda v, g: system.derivative(v, g, True), shape, values, jnp.conj(right))
        return jnp.conj(y)

    return jax.lax.custom_linear_solve(lambda x: _product(system, values, x), r, solve, solve_transposed)


def outcome(system: HostSystem, values: Any, b: Any, x0: Any) -> tuple[Any, ...]:
    """x, converged, iterations, norms and targets of a solve, x with its derivatives."""
    n_samples, real = system.n_samples, jnp.finfo(b.dtype).dtype
    per_sample = [_shape((n_samples,), dtype) for dtype in (bool, np.int64, real, real)]
    shapes = (_shape((system.n, n_samples), b.dtype), *per_sample)

    @jax.custom_jvp
    def solved(values: Any, b: Any, x0: Any) -> Any:
        return _call(lambda v, right, start: system.outcome(v, right, start, True), shapes, values, b, x0)

    @solved.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (values, b, x0), (d_values, d_b, _) = primals, tangents
        made = solved(values, b, x0)
        right = jnp.broadcast_to(d_b, made[0].shape) - _product(system, d_values, made[0])
        dx = _linear(system, values, right) * jnp.where(made[1], 1.0, jnp.nan).astype(real)
        zeros = [np.zeros(part.shape, jax.dtypes.float0) for part in made[1:3]]
        return made, (dx, *zeros, jnp.zeros_like(made[3]), jnp.zeros_like(made[4]))

    result: tuple[Any, ...] = solved(values, b, x0)
    return result


def logdet(compute: Callable[..., Any], differentiate: Callable[..., Any], values: Any) -> Any:
    """``compute(values)``, shape (n_samples,), with the gradient ``differentiate(values)``, shape of `values`."""

    @jax.custom_jvp
    def computed(values: Any) -> Any:
        return _call(compute, _shape(values.shape[-1:], values.dtype), values)

    @computed.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        entries = _call(differentiate, _shape(primals[0].shape, primals[0].dtype), *primals)
        return computed(*primals), jnp.sum(entries * tangents[0], axis=0)

    return computed(values)
