"""Long calls of every part, on inputs made from a seed, that can be interrupted and gone on with.

A case makes a `Job`: ``go`` works from where it stands to the end and may be called again after KeyboardInterrupt,
``bits`` gives all that it found, ``given`` are the arrays that it was given.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import ensemble as en
from ensemble import ode, uq
from ensemble.apps import analyses, fem, gbees, kalman
from ensemble.gallery import convection_diffusion, poisson
from ensemble.krylov import WarmStart, bicgstab, cg, direct, gmres, minres, newton
from ensemble.linalg import CrsMatrix, Diagonal, Factorization, IncompleteFactorization, eigsh
from ensemble.multigrid import approximate_ideal_restriction, smoothed_aggregation
from tests.uq.store.trees import tree


class Job(NamedTuple):
    go: Callable[[], None]
    bits: Callable[[], Any]
    given: tuple[Any, ...]


CASES: dict[str, Callable[[Path, int], Job]] = {}
"""Makers by name; they are given an empty folder and how much work there should be."""


def job(name):
    """Enter a maker."""

    def entered(make):
        CASES[name] = make
        return make

    return entered


def call(name):
    """Enter a maker of one call, which gives the same whenever it is made: ``make(size)`` gives it and its arrays."""

    def entered(make):
        def made(folder, size):
            function, *given = make(size)
            found = []

            def go():
                found[:] = [function()]

            return Job(go, lambda: found[0], tuple(given))

        CASES[name] = made
        return make

    return entered


def rng():
    return np.random.default_rng(20731)


# --- Kalman
def linear(nx=3, S=None, **options):
    eye = np.eye(nx)
    F = 0.9 * eye + 0.01 * rng().normal(size=(nx, nx))
    if S is not None:
        F = en.Ensemble(F[..., None] * np.linspace(0.9, 1.0, S))
    H = np.ones((1, nx))
    options = {"m0": np.zeros(nx), "P0": eye} | options
    return kalman.LinearGaussianModel(F=F, Q=0.1 * eye, H=H, R=eye[:1, :1], **options)


def observed(T):
    return rng().normal(size=(T, 1))


def curved():
    return kalman.NonlinearGaussianModel(
        f=lambda x, k, xp: (x[0] + 0.1 * x[1], x[1] - 0.1 * xp.sin(x[0])),
        Q=0.01 * np.eye(2), h=lambda x, k, xp: (xp.sin(x[0]),), R=0.1 * np.eye(1), m0=np.zeros(2), P0=np.eye(2),
    )  # fmt: skip


def walk(theta):
    one = np.eye(1)
    return kalman.LinearGaussianModel(one, theta[0] * one, one, theta[1] * one, np.zeros(1), one)


def of_kalman(name, function, model, T, **options):
    @call(name)
    def make(size):
        m, y = model(size), observed(T * size)
        return (lambda: vars(function(m, y, **options))), y, *vars(m).values()


of_kalman("kalman_filter, one series", kalman.kalman_filter, lambda size: linear(), 60_000)
of_kalman("kalman_filter, ensemble", kalman.kalman_filter, lambda size: linear(S=500 * size), 100)
of_kalman("kalman_filter, 12 states", kalman.kalman_filter, lambda size: linear(12, 20 * size), 100)
of_kalman("kalman_filter, square roots", kalman.kalman_filter, lambda size: linear(S=40), 100, form="square_root")
of_kalman(
    "kalman_filter, diffuse", kalman.kalman_filter,
    lambda size: linear(2, P0=np.zeros((2, 2)), diffuse=np.eye(2)), 2000,
)  # fmt: skip
of_kalman("rts_smoother", kalman.rts_smoother, lambda size: linear(S=300 * size), 100)
of_kalman("rts_smoother, 12 states", kalman.rts_smoother, lambda size: linear(12, 20 * size), 60)
of_kalman("rts_smoother, square roots", kalman.rts_smoother, lambda size: linear(S=40), 60, form="square_root")
of_kalman("two_filter_smoother", kalman.two_filter_smoother, lambda size: linear(S=20), 100)
of_kalman("extended_kalman_filter", kalman.extended_kalman_filter, lambda size: curved(), 400)
of_kalman("unscented_kalman_filter", kalman.unscented_kalman_filter, lambda size: curved(), 200)
of_kalman("extended_kalman_smoother", kalman.extended_kalman_smoother, lambda size: curved(), 300)
of_kalman("unscented_kalman_smoother", kalman.unscented_kalman_smoother, lambda size: curved(), 200)
of_kalman("iterated_smoother", kalman.iterated_smoother, lambda size: curved(), 60)


@call("sample_posterior")
def _(size):
    m, y = linear(), observed(200 * size)
    return (lambda: kalman.sample_posterior(m, y, 50, seed=3)), y


@call("maximum_likelihood")
def _(size):
    y = observed(400 * size).cumsum(axis=0)
    return (lambda: kalman.maximum_likelihood(walk, y, [2.0, 2.0], bounds=[(0.0, None)] * 2).estimate), y


def online(name, model):
    @job(name)
    def make(folder, size):
        filtering, y = kalman.OnlineFilter(model()), observed(2000 * size)

        def go():
            while filtering.k < len(y) - 1:
                filtering.step(y[filtering.k + 1])

        return Job(go, lambda: (filtering.k, filtering.mean, filtering.covariance, filtering.log_likelihood), (y,))


online("OnlineFilter, one series", linear)
online("OnlineFilter, ensemble", lambda: linear(S=10))
online("OnlineFilter, 12 states", lambda: linear(12))
online("OnlineFilter, diffuse", lambda: linear(2, P0=np.zeros((2, 2)), diffuse=np.eye(2)))


@job("OnlineFilter, predict and update")
def _(folder, size):
    filtering, y, done = kalman.OnlineFilter(linear()), observed(300 * size), [0]

    def go():
        while done[0] < 2 * len(y):
            if done[0] % 2:
                done[0:1] = [filtering.update(y[done[0] // 2]) or done[0] + 1]
            else:
                done[0:1] = [filtering.predict(7) or done[0] + 1]

    return Job(go, lambda: (filtering.k, filtering.mean, filtering.covariance, filtering.log_likelihood), (y,))


# --- ODEs
def lorenz(t, y, p, xp):
    return 10.0 * (y[1] - y[0]), y[0] * (p[0] - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]


def swing(t, y, p, xp):
    return y[1], -p[0] * y[0]


def by_value(t, y, p, xp):
    return [y[1], -y[0] if float(np.max(np.asarray(y[0]))) < 1e9 else y[0]]


def of_ode(name, function, f, y0, end, S, **options):
    @call(name)
    def make(size):
        p = en.Ensemble(np.linspace(20.0, 28.0, S * size)[None, :])
        extra = options | ({"t_eval": np.linspace(0.0, end, 30)} if function is not ode.gradient else {})
        return (lambda: function(f, y0, (0.0, end), p=p, **extra)), p


for method, n in (("tsit5", 300), ("dop853", 300), ("bdf", 100), ("rodas4", 200), ("taylor", 100)):
    of_ode(f"ode.solve, {method}", ode.solve, lorenz, [1.0] * 3, 2.0, n, method=method)
of_ode("ode.solve, rk4", ode.solve, lorenz, [1.0] * 3, 2.0, 500, method="rk4", step=1e-3)
of_ode("ode.solve, untraced", ode.solve, by_value, [1.0, 0.0], 2.0, 50)
of_ode("ode.gradient", ode.gradient, swing, [1.0, 0.0], 2.0, 300, cotangent=[1.0, 0.0], method="rk4", step=1e-3)
of_ode("ode.sensitivities", ode.sensitivities, swing, [1.0, 0.0], 2.0, 300)
of_ode("ode.time_statistics", ode.time_statistics, lorenz, [1.0] * 3, 2.0, 300)
of_ode("ode.sample_statistics", ode.sample_statistics, lorenz, [1.0] * 3, 2.0, 300)


# --- linear algebra
def matrix(side, S, dim=2):
    A = poisson((side,) * dim)
    graph = type(A.graph)(A.graph.indptr, A.graph.indices, A.shape)  # nothing is kept for it yet
    return CrsMatrix(graph, A.values * np.linspace(1.0, 2.0, S) + 0.0)


def right(A):
    return rng().normal(size=A.shape[0])


def of_matrix(name, function, side, S, dim=2):
    @call(name)
    def make(size):
        A = matrix(side, S * size, dim)
        b = right(A)
        return (lambda: function(A, b)), A.values, b


def solved(solver, **options):
    return lambda A, b: solver(A, b, **options).x


of_matrix("cg", solved(cg), 60, 8)
of_matrix("cg, Jacobi", lambda A, b: cg(A, b, M=Diagonal(1.0 / A.diagonal())).x, 60, 8)
of_matrix("cg, multigrid", lambda A, b: cg(A, b, M=smoothed_aggregation(A)).x, 120, 4)
of_matrix("gmres", solved(gmres, max_iterations=60), 60, 4)
of_matrix("minres", solved(minres), 60, 4)
of_matrix("bicgstab", solved(bicgstab), 60, 4)
of_matrix("direct", solved(direct), 60, 4)
of_matrix(
    "smoothed_aggregation",
    lambda A, b: smoothed_aggregation(A).apply(np.repeat(b[:, None], A.values.shape[1], axis=1)),
    200,
    2,
)
of_matrix("Factorization, new", lambda A, b: Factorization(A) @ b, 60, 4)
of_matrix("Factorization, 3D", lambda A, b: Factorization(A) @ b, 14, 1, 3)
of_matrix("inverse_diagonal", lambda A, b: Factorization(A).inverse_diagonal(), 50, 4)
of_matrix("IncompleteFactorization", lambda A, b: cg(A, b, M=IncompleteFactorization(A)).x, 60, 4)
of_matrix("eigsh, SA", lambda A, b: eigsh(A, 3, which="SA").values, 30, 2)
of_matrix("eigsh, sigma", lambda A, b: eigsh(A, 3, sigma=0.0).values, 40, 2)
of_matrix("products of matrices", lambda A, b: (A @ A).values, 150, 4)


@call("gmres, reduction")
def _(size):
    A = convection_diffusion((60, 60), [[0.1], [0.2]])
    A = CrsMatrix(type(A.graph)(A.graph.indptr, A.graph.indices, A.shape), A.values)
    b = right(A)
    return (lambda: gmres(A, b, M=approximate_ideal_restriction(A)).x), A.values, b


@call("newton")
def _(size):
    A = matrix(30, 4 * size)

    def jacobian(u):
        values = A.values.copy()
        values[A.graph.diagonal_entries] += 3.0 * u.samples**2
        return CrsMatrix(A.graph, values)

    return (lambda: newton(lambda u: A @ u + u**3 - 1.0, jacobian, np.zeros(A.shape[0])).u), A.values


@job("Factorization, update and solve")
def _(folder, size):
    A = matrix(60, 4 * size)
    F, b, found = Factorization(A), right(A), {}
    others = [CrsMatrix(A.graph, A.values * scale) for scale in (1.5, 2.0, 3.0)]
    before = np.array(F.values)

    def go():
        for i, other in enumerate(others):
            if i not in found:
                found[i] = (F.update(other) @ b, F.solve(other, b), F @ b)

    return Job(go, lambda: [*(found[i] for i in range(3)), F.values, before], (A.values, b, F.values))


@job("WarmStart")
def _(folder, size):
    start, x, y = WarmStart(capacity=20), rng().random((2, 300 * size)), rng().random((500, 300 * size))
    done = [0]

    def go():
        while done[0] < x.shape[1] - 2:
            at = slice(done[0], done[0] + 3)
            done[0:1] = [start.add(en.Ensemble(x[:, at].copy()), en.Ensemble(y[:, at].copy())) or done[0] + 3]

    return Job(go, lambda: (start.points, start.guess(en.Ensemble(np.ones((2, 5)) * np.linspace(0, 1, 5)))), (x, y))


# --- finite elements, quadrature, analyses
@call("assembly")
def _(size):
    mesh, kappa = fem.TetMesh.box((8, 8, 8)), en.Ensemble(rng().random(8 * size) + 0.5)
    return (lambda: fem.stiffness_matrix(mesh, kappa).values), kappa


@call("RandomDiffusion")
def _(size):
    y = en.Ensemble(rng().normal(size=(5, 4 * size)))
    return (lambda: fem.RandomDiffusion(8).solve(y).u), y


@call("quadrature.gauss")
def _(size):
    return (lambda: en.quadrature.gauss(lambda x, xp: xp.exp(-x[0] * x[1]) * xp.cos(x[2]) + x[3], 4, 24),)


@call("oscillator")
def _(size):
    return (lambda: analyses.oscillator(2000 * size, n_steps=500),)


# --- GBEES
def drift(x, t, xp):
    return 10.0 * (x[1] - x[0]), x[0] * (28.0 - x[2]) - x[1], x[0] * x[1] - 8.0 / 3.0 * x[2]


def begun(**options):
    return gbees.Gbees(drift, [-11.5, -10.0, 9.5], [1.0] * 3, threshold=1e-5, factor=1.5, **options)


def of_gbees(name, y, likelihood="auto", **options):
    @job(name)
    def make(folder, size):
        run, found = begun(**options), []

        def go():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                while len(found) < 3:
                    until = 0.03 * (len(found) + 1) * size
                    if np.max(run.time) < until or run.time < until:
                        run.advance(until)
                    found.append(run.update(lambda x, xp: x[2] + 0.1 * x[0] * x[1], y, 4.0, likelihood=likelihood))
                run.advance(0.12 * size)

        return Job(go, lambda: (found, [(k, v) for k, v in sorted(run.state().items())]), ())


of_gbees("Gbees", 20.0)
of_gbees("Gbees, likelihood in cells", 20.0, "cell")
of_gbees("Gbees, arrays", 20.0, backend="array")
of_gbees("Gbees, ensemble", en.Ensemble(np.array([20.0, 19.0, 21.0])))


def configured():
    seen = gbees.Measurement(lambda x, xp: (x[2],), (20.0,), 4.0 * np.eye(1), 0.06)
    return gbees.Configuration(
        "hunt",
        drift,
        np.array([-11.5, -10.0, 9.5]),
        np.eye(3),
        0.12,
        (seen,),
        records=3,
        options={"threshold": 1e-5, "factor": 1.5},
    )


@job("RecordedRun, resumed")
def _(folder, size):
    path, held = folder / "run.npz", []

    def go():
        problem = configured()
        if not held:
            held.append(gbees.RecordedRun(problem, checkpoint=path))
        elif path.exists():  # what another process would do
            held[0] = gbees.RecordedRun.resume(problem, path)
        held[0].run()

    return Job(go, lambda: sorted(held[0].saved_run.arrays().items()), ())


@call("Monte Carlo of a drift")
def _(size):
    x = en.Ensemble(rng().normal(size=(3, 2000 * size)))
    return (lambda: gbees.propagate(drift, x, 0.5)), x


# --- studies
def uncertain():
    return en.Inputs(a=stats.norm(1.0, 0.2), s=stats.lognorm(0.1, scale=3.0))


def profile(x):
    return {"f": x.a * np.linspace(0.0, 1.0, 200), "y": x.a / x.s}


def of_study(name, function, n):
    @call(name)
    def make(size):
        return (lambda: function(n * size),)


of_study(
    "propagate",
    lambda n: statistics(en.propagate(profile, uncertain(), n, progress=False, seed=3, ensemble_size=16)),
    512,
)
of_study("sobol_indices", lambda n: en.sobol_indices(profile, uncertain(), n, progress=False, seed=3).first, 64)
of_study("mcmc", lambda n: uq.mcmc(lambda x: -0.5 * (x[0] - 1.0) ** 2, 1, n, seed=3).chain, 400)
of_study(
    "kalman_inversion", lambda n: uq.kalman_inversion(lambda x: x, [1.0], 1.0, 1, n_samples=n, seed=3).samples, 500
)


def above(n):
    total = lambda z: en.Ensemble(z.samples.sum(axis=0))
    return uq.subset_simulation(total, 20, 15.0, event="above", seed=7, n_per_level=n).probability


of_study("subset_simulation", above, 500)


def statistics(result):
    return [result.mean("y"), result.std("y"), result.mean("f"), result.std("f")]


@call("chaos")
def _(size):
    inputs = uncertain()
    return (lambda: uq.chaos(inputs, en.propagate(profile, inputs, 256, seed=3, progress=False), degree=4).var("y"),)


@job("propagate, resumed from its store")
def _(folder, size):
    found = []

    def go():
        store = folder / "study"
        found[:] = [
            en.propagate(profile, uncertain(), 512, seed=3, progress=False, store=store, ensemble_size=16,
                         resume=uq.Store.exists(store))
        ]  # fmt: skip

    def files():
        return tree(folder)

    return Job(go, lambda: (statistics(found[0]), files()), ())


# --- code of users
@call("run")
def _(size):
    v = en.Ensemble(rng().random(400 * size))

    def f(v):
        total = 0.0
        while v > 0.01:
            v = v * 0.7 if v > 0.5 else v * 0.9
            total = total + v
        return total

    return (lambda: en.run(f, v).value), v


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def leaves(found: Any) -> list[Any]:
    """The numbers in what a case found, in order."""
    if isinstance(found, en.Ensemble):
        return [np.asarray(found.samples)]
    if isinstance(found, np.ndarray | float | int | str | bytes | bool | np.generic):
        return [np.asarray(found)]
    if isinstance(found, dict):
        return [leaf for name in sorted(found, key=str) for leaf in leaves(found[name])]
    if isinstance(found, list | tuple):
        return [leaf for each in found for leaf in leaves(each)]
    inside = getattr(found, "__dict__", None)
    return (
        []
        if inside is None
        else [leaf for name in sorted(inside) if not name.startswith("_") for leaf in leaves(inside[name])]
    )


def same(a: Any, b: Any) -> bool:
    """Whether two results have the same bits."""
    one, other = leaves(a), leaves(b)
    return len(one) == len(other) > 0 and all(
        x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()
        for x, y in zip(one, other, strict=True)
    )
