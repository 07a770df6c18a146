"""Kalman filter and smoothers by JAX's `associative_scan`, the peer of `benchmarks.bench_kalman_device --jax`.

Särkkä and García-Fernández's elements and operations, all steps at once, in two forms: "library" multiplies and solves
by `jnp.matmul` and `jnp.linalg.solve`, as JAX libraries are written; "fused" sums broadcast products and inverts by
cofactors, so that XLA makes one kernel of an operation, at the price of accuracy.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["milliseconds", "programs"]

FORMS = ("fused", "library")

METHODS = ("PKF", "PRTS", "PTFS")

CALLS = 10


def _fused_product(A: Any, B: Any) -> Any:
    return (A[..., None] * B[..., None, :, :]).sum(-2)


def _cofactors(jnp: Any, A: Any) -> Any:
    """The inverse of matrices of two or four rows, by minors of the upper and of the lower pair of rows."""
    n = A.shape[-1]
    at = lambda i, j: A[..., i, j]
    if n == 2:
        rows = [[at(1, 1), -at(0, 1)], [-at(1, 0), at(0, 0)]]
        determinant = at(0, 0) * at(1, 1) - at(0, 1) * at(1, 0)
    else:
        pairs = list(itertools.combinations(range(4), 2))
        minor = {(k, p): at(k, p[0]) * at(k + 1, p[1]) - at(k, p[1]) * at(k + 1, p[0]) for k in (0, 2) for p in pairs}
        rows = [[None] * 4 for _ in range(4)]
        for r, c in itertools.product(range(4), repeat=2):
            a, b, e = (k for k in range(4) if k != c)
            row, other = r ^ 1, 2 if r < 2 else 0  # the row beside r, and the pair of rows without r
            three = at(row, a) * minor[other, (b, e)] - at(row, b) * minor[other, (a, e)]
            three = three + at(row, e) * minor[other, (a, b)]
            rows[c][r] = three if (r + c) % 2 == 0 else -three
        determinant = sum(at(0, k) * rows[k][0] for k in range(4))
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2) / determinant[..., None, None]


class _Form:
    """Products and solutions in one form, and what follows from them."""

    def __init__(self, jnp: Any, form: str) -> None:
        self.jnp = jnp
        if form == "library":
            self.product, self.solve = jnp.matmul, jnp.linalg.solve
        else:
            self.product = _fused_product
            self.solve = lambda A, B: _fused_product(_cofactors(jnp, A), B)

    def __call__(self, *factors: Any) -> Any:
        """The product of matrices, or of matrices and a vector at the end."""
        *matrices, last = factors
        vector = last.ndim < matrices[-1].ndim
        out = last[..., None] if vector else last
        for A in reversed(matrices):
            out = self.product(A, out)
        return out[..., 0] if vector else out

    def symmetric(self, P: Any) -> Any:
        return 0.5 * (P + P.mT)

    def elements(self, F: Any, Q: Any, H: Any, R: Any, u: Any, d: Any, y: Any, m0: Any, P0: Any) -> tuple[Any, ...]:
        """A, b, C, eta, J of every step; the first one holds the prior."""
        jnp = self.jnp
        u, Q = u.at[0].add(self(F[0], m0)), Q.at[0].add(self(F[0], P0, F[0].mT))
        F = F.at[0].set(0.0)
        S = self(H, Q, H.mT) + R
        K = self.solve(S, self(H, Q)).mT
        W = self.solve(S, self(H, F)).mT
        r = y - d - self(H, u)
        rest = jnp.eye(F.shape[-1], dtype=F.dtype) - self(K, H)
        return self(rest, F), u + self(K, r), self.symmetric(self(rest, Q)), self(W, r), self.symmetric(self(W, H, F))

    def combine(self, i: tuple[Any, ...], j: tuple[Any, ...]) -> tuple[Any, ...]:
        """Stretch j behind interval i."""
        (Ai, bi, Ci, ei, Ji), (Aj, bj, Cj, ej, Jj) = i, j
        eye = self.jnp.broadcast_to(self.jnp.eye(Ci.shape[-1], dtype=Ci.dtype), Ci.shape)
        D = self.solve(eye + self(Ci, Jj), eye)
        AD, DA = self(Aj, D), self(Ai.mT, D.mT)
        return (
            self(AD, Ai),
            self(AD, bi + self(Ci, ej)) + bj,
            self.symmetric(self(AD, Ci, Aj.mT) + Cj),
            self(DA, ej - self(Jj, bi)) + ei,
            self.symmetric(self(DA, Jj, Ai) + Ji),
        )

    def link(self, later: tuple[Any, ...], earlier: tuple[Any, ...]) -> tuple[Any, ...]:
        (Ej, gj, Lj), (Ei, gi, Li) = later, earlier
        return self(Ei, Ej), self(Ei, gj) + gi, self.symmetric(self(Ei, Lj, Ei.mT) + Li)


def _method(jax: Any, name: str, form: str) -> Callable[..., Any]:
    jnp, scan, o = jax.numpy, jax.lax.associative_scan, _Form(jax.numpy, form)

    def pkf(*model: Any) -> Any:
        return scan(o.combine, o.elements(*model))[1:3]

    def prts(*model: Any) -> Any:
        m, P = pkf(*model)
        F, Q, u = model[0][1:], model[1][1:], model[4][1:]
        ahead = o(F, P[:-1])
        E = o.solve(o.symmetric(o(ahead, F.mT) + Q), ahead).mT
        g = m[:-1] - o(E, o(F, m[:-1]) + u)
        L = o.symmetric(P[:-1] - o(E, ahead))
        links = ((E, 0 * P[-1]), (g, m[-1]), (L, P[-1]))
        return scan(o.link, tuple(jnp.concatenate([a, z[None]]) for a, z in links), reverse=True)[1:]

    def ptfs(*model: Any) -> Any:
        elements = o.elements(*model)
        m, P = scan(o.combine, elements)[1:3]
        behind = tuple(jnp.concatenate([a[1:], jnp.zeros_like(a[:1])]) for a in elements)
        eta, J = scan(lambda later, earlier: o.combine(earlier, later), behind, reverse=True)[3:]
        eye = jnp.broadcast_to(jnp.eye(P.shape[-1], dtype=P.dtype), P.shape)
        D = o.solve(eye + o(P, J), eye)
        return o(D, m + o(P, eta)), o.symmetric(o(D, P))

    return jax.jit({"PKF": pkf, "PRTS": prts, "PTFS": ptfs}[name])


def programs(models: dict[int, tuple[np.ndarray, ...]]) -> Iterator[tuple[int, str, str, Callable[[], Any]]]:
    """Length, method, form and a call of the compiled program, for every length of `models`, one after another.

    A model is F, Q, H, R, u, d, y, m0, P0, time first. Programs are not compiled side by side: XLA chooses kernels by
    timing them, which fails when others run on the device.
    """
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
    for T, form, name in itertools.product(models, FORMS, METHODS):
        model = tuple(jax.numpy.asarray(a, jax.numpy.float32) for a in models[T])
        program = _method(jax, name, form).lower(*model).compile()
        yield T, name, form, lambda run=program, on=model: jax.block_until_ready(run(*on))


def milliseconds(run: Callable[[], Any]) -> float:
    """Median time of a call by the host's clock, which waits for the device."""
    times = []
    for _ in range(CALLS + 2):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[2:])
