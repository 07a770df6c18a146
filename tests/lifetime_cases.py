"""Calls of every part, on inputs that are made anew each time: each returns what a user would keep."""

import pickle
import warnings

import numpy as np
from scipy import stats

import ensemble as en
from ensemble import quadrature
from ensemble.apps import analyses, fem, gbees, kalman
from ensemble.gallery import convection_diffusion, poisson
from ensemble.krylov import (
    SolveError,
    WarmStart,
    bicgstab,
    cg,
    direct,
    gmres,
    group_samples,
    minres,
    newton,
)
from ensemble.linalg import (
    AffineMatrix,
    BcrsMatrix,
    CrsMatrix,
    Diagonal,
    ElementAssembly,
    Factorization,
    GalerkinProduct,
    IncompleteFactorization,
    SymmetricCrsMatrix,
    apply_dirichlet,
    block,
    eigsh,
    kron,
)
from ensemble.multigrid import approximate_ideal_restriction, scaled_aggregation, smoothed_aggregation

S, SIDE = 4, 24
rng = np.random.default_rng(20731)


def matrix():
    A = poisson((SIDE, SIDE))
    graph = type(A.graph)(A.graph.indptr, A.graph.indices, A.shape)
    scales = np.exp(0.3 * rng.normal(size=(SIDE * SIDE, S)))
    rows = np.repeat(np.arange(SIDE * SIDE), np.diff(graph.indptr))
    return CrsMatrix(graph, A.values * np.sqrt(scales[rows] * scales[graph.indices]))


def scattered():
    A = matrix()
    order = rng.permutation(SIDE * SIDE)
    return CrsMatrix.from_scipy([A.to_scipy(i)[order][:, order] for i in range(S)])


def b():
    return en.Ensemble(rng.random((SIDE * SIDE, S)))


def affine():
    mean = poisson((SIDE, SIDE))
    terms = np.concatenate([mean.values, 0.5 * mean.values], axis=1)
    return AffineMatrix(mean.graph, terms, en.Ensemble(rng.random((1, S))))


def with_hierarchy(method, make=smoothed_aggregation, A=matrix, **options):
    def call():
        K = A()
        M = make(K, **options)
        return K, M, method(K, b(), M=M)

    return call


def newton_step(solver=None):
    A = matrix()

    def jacobian(u):
        values = A.values.copy()
        values[A.graph.diagonal_entries] += 3.0 * u.samples**2
        return CrsMatrix(A.graph, values)

    return newton(lambda u: A @ u + u**3 - 1.0, jacobian, np.zeros(A.shape[0]), solver=solver)


def refused(error, call):
    """The message of what `call` raises."""
    try:
        call()
    except error as raised:
        return str(raised)
    raise AssertionError(f"no {error.__name__}")


def stopped_by_callback():
    def callback(step, norms):
        raise KeyError("callback")

    return refused(KeyError, lambda: cg(matrix(), b(), callback=callback))


def failing_model(x):
    return {"y": x.fail(x.a.samples > 1.0, "too large") or x.a}


def divides(v):
    return 1 // int(v)


def branch(v):
    return v**0.5 if v > 0.5 else -v


def recursive(v, depth=3):
    return v * 2.0 if depth == 0 else recursive(v + 1.0, depth - 1)


captured = en.Ensemble(np.arange(300.0))


def reads_captured(v):
    return branch(v) + recursive(captured)


def run_with_errors():
    made = en.run(divides, en.Ensemble(rng.random(300)))
    failed = next(iter(made.errors))
    return made, refused(ZeroDivisionError, lambda: made.sample(failed)), refused(ExceptionGroup, made.raise_if_failed)


def run_on_arrays():
    def f(v):
        if v[0] > 0.5:
            raise ValueError("too large")
        return v * 3.0

    return en.run(f, en.Ensemble(rng.random((3000, S))))


KRYLOV = {
    "cg": lambda: cg(matrix(), b()),
    "cg, stopped by a callback": stopped_by_callback,
    "cg, iterations too few": lambda: refused(
        SolveError, lambda: cg(matrix(), b(), max_iterations=2).raise_if_failed()
    ),
    "cg, coupled": lambda: cg(matrix(), b(), coupling="ensemble"),
    "cg, Jacobi, flexible": lambda: cg((A := matrix()), b(), M=Diagonal(1.0 / A.diagonal()), flexible=True),
    "cg, other units": lambda: cg(matrix() * 1e-200, b() * 1e-250),
    "cg, aggregation": with_hierarchy(cg),
    "cg, aggregation in float32": with_hierarchy(cg, dtype=np.float32),
    "cg, aggregation of scattered rows": with_hierarchy(cg, A=scattered),
    "cg, affine": with_hierarchy(cg, scaled_aggregation, affine),
    "cg, complex": lambda: gmres(matrix(), b() * (1.0 + 2.0j), max_iterations=3),
    "gmres": with_hierarchy(gmres),
    "gmres, scattered rows": with_hierarchy(gmres, A=scattered),
    "gmres, reduction": with_hierarchy(
        gmres, approximate_ideal_restriction, lambda: convection_diffusion((SIDE, SIDE), [[0.1], [0.2]])
    ),
    "bicgstab": with_hierarchy(bicgstab),
    "minres": with_hierarchy(minres),
    "direct": lambda: direct(matrix(), b()),
    "newton": newton_step,
    "newton, direct": lambda: newton_step(direct),
    "groups": lambda: group_samples(rng.random(40), 4),
    "warm start": lambda: (
        (start := WarmStart()).add(en.Ensemble(rng.random((1, 5))), en.Ensemble(rng.random((900, 5))))
        or (start, start.guess(np.array([0.5])))
    ),
}


def updated():
    A = matrix()
    F, M, G = Factorization(A), smoothed_aggregation(A), GalerkinProduct(A.graph, A.graph)
    other = CrsMatrix(A.graph, A.values * 1.5)
    return F.update(other) @ b(), M.update(other), G(A, other)


def of_elements():
    assembly = ElementAssembly(np.arange(300)[:, None] + np.arange(2), 301)
    return (
        assembly,
        CrsMatrix.from_elements(assembly, rng.random((300, 2, 2, S))),
        assembly.vector(rng.random((300, 2))),
    )


def of_blocks():
    A, B = CrsMatrix.from_scipy(matrix().to_scipy(0)[:60, :60]), CrsMatrix.from_scipy(matrix().to_scipy(0)[:60, :60])
    return block([[A, B], [B, A]]), block([[B, A], [A, B]]), kron(A, A), kron(A, B), kron(B, A), kron(A, 2)


LINALG = {
    "products and sums": lambda: (lambda A: (A @ A, A.T, A.T @ b(), A + A, A @ b(), 2.0 * A, A.T.to_matrix()))(
        matrix()
    ),
    "selections": lambda: matrix().submatrix(np.arange(99), np.arange(99)),
    "blocks": of_blocks,
    "matrices of blocks": lambda: (lambda A: (A, A @ b(), A.to_crs()))(
        BcrsMatrix((A := poisson((12, 24))).graph, rng.random((A.nnz, 2, 2, S)))
    ),
    "symmetric": lambda: (lambda A: (A, A @ b(), cg(A, b())))(SymmetricCrsMatrix.from_crs(matrix())),
    "fixed values": lambda: apply_dirichlet(matrix(), b(), np.arange(9), 3.0),
    "factorisation": lambda: (lambda F: (F, F @ b(), F.T @ b(), F.logdet))(Factorization(matrix())),
    "incomplete factorisation": with_hierarchy(cg, IncompleteFactorization),
    "updates": updated,
    "elements": of_elements,
    "eigenvalues": lambda: eigsh(matrix(), 2, which="SA"),
    "of SciPy": lambda: CrsMatrix.from_scipy([matrix().to_scipy(0)] * 2),
    "copies": lambda: pickle.loads(pickle.dumps(smoothed_aggregation(matrix()))),
    "small": lambda: en.linalg.small.solve(en.Ensemble(rng.random((3, 3, 3000))), np.ones(3)),
    "no solution": lambda: np.linalg.inv(en.Ensemble(rng.random((3, 3, S)))),
    "singular": lambda: refused(np.linalg.LinAlgError, lambda: np.linalg.inv(en.Ensemble(np.zeros((3, 3, S))))),
}


@fem.bilinear_form
def stiffness(u, v, w):
    return w.kappa * fem.dot(fem.grad(u), fem.grad(v))


def nonlinear():
    mesh = fem.TetMesh.box((5, 5, 5))
    form = fem.bilinear_form(lambda u, v, w: (1.0 + fem.dot(fem.grad(w.u), fem.grad(w.u))) * u * v)
    load = fem.linear_form(lambda v, w: w.u * w.x[0] * v)
    fields = {"u": en.Ensemble(rng.random((mesh.n_nodes, S)))}
    return mesh, form, fem.assemble(mesh, form, load, **fields), fem.assemble(mesh, load, form, **fields)


def on_boundary():
    space = fem.BoundarySpace(fem.TetMesh.box((4, 4, 4)), lambda x, y, z: z == 1.0, gradients=True)
    form = fem.bilinear_form(lambda u, v, w: w.alpha * fem.dot(fem.grad(u), w.n) * v)
    return space, form.assemble(space, alpha=en.Ensemble(rng.random(S)))


def elements_of_users():
    import skfem

    space = fem.from_skfem(skfem.Basis(skfem.MeshTri().refined(3), skfem.ElementTriP2()))
    return space, stiffness.assemble(space, kappa=en.Ensemble(rng.random(S)))


FEM = {
    "assembly": lambda: stiffness.assemble(fem.TetMesh.box((6, 6, 6)), kappa=en.Ensemble(rng.random(S))),
    "assembly into a matrix": lambda: stiffness.assemble(
        (m := fem.TetMesh.box((6, 6, 6))), kappa=2.0, out=stiffness.assemble(m, kappa=1.0)
    ),
    "space": lambda: stiffness.assemble(fem.LinearSpace(fem.TetMesh.box((6, 6, 6))), kappa=2.0),
    "nonlinear forms": nonlinear,
    "boundary": on_boundary,
    "matrices": lambda: (fem.mass_matrix(m := fem.TetMesh.box((4, 4, 4))), fem.stiffness_matrix(m), m.edges),
    "scikit-fem": elements_of_users,
    "random diffusion": lambda: (lambda p: (p, p.solve(en.Ensemble(rng.normal(size=(5, S))))))(fem.RandomDiffusion(6)),
    "not a form": lambda: refused(
        TypeError, lambda: fem.bilinear_form(lambda u, v, w: u).assemble(fem.TetMesh.box((4, 4, 4)))
    ),
}


def model():
    eye = np.eye(3)
    return kalman.LinearGaussianModel(F=0.9 * eye, Q=eye, H=eye[:1], R=eye[:1, :1], m0=np.zeros(3), P0=eye)


def observed():
    return rng.normal(size=(3000, 1))


def online():
    filtering = kalman.OnlineFilter(model())
    for y in observed()[:20]:
        filtering.step(y)
    return filtering, filtering.mean


def walk(theta):
    one = np.eye(1)
    return kalman.LinearGaussianModel(one, theta[0] * one, one, theta[1] * one, np.zeros(1), one)


KALMAN = {
    "filter": lambda: kalman.kalman_filter(model(), observed()),
    "smoother": lambda: kalman.rts_smoother(model(), observed()),
    "online": online,
    "forecast": lambda: kalman.forecast(model(), observed(), 20),
    "posterior": lambda: kalman.sample_posterior(model(), observed()[:100], 50, seed=3),
    "simulation": lambda: kalman.simulate(model(), 300, n_samples=S, seed=3),
    "likelihood": lambda: kalman.maximum_likelihood(
        walk, rng.normal(size=(200, 1)).cumsum(axis=0), [2.0, 2.0], bounds=[(0.0, None)] * 2
    ),
}


def pendulum(x, t, xp):
    return x[1], -xp.sin(x[0])


def grid(**options):
    run = gbees.Gbees(pendulum, [1.0, 0.0], [0.04, 0.04], threshold=1e-4, **options)
    run.advance(0.1)
    run.update(lambda x, xp: x[0], y=0.9, R=0.01)
    return run, run.mean(), run.marginal(0)


GBEES = {
    "grid": grid,
    "grid of arrays": lambda: grid(backend="array"),
    "Monte Carlo": lambda: gbees.propagate(pendulum, en.Ensemble(rng.random((2, 500))), 0.3),
}


def decay(t, y, p, xp):
    return [-p[0] * y[0]]


def branching(t, y, p, xp):
    return [-p[0] * y[0] if y[0] > 0.7 else 0.0 * y[0]]


def raising(t, y, p, xp):
    if float(y[0]) < 0.7:
        raise ValueError("too small")
    return [-p[0] * y[0]]


def decays(f=decay, **options):
    return en.ode.solve(f, [1.0], (0.0, 1.0), p=[en.Ensemble(rng.random(200) + 0.5)], **options)


ODE = {
    "solve": lambda: decays(t_eval=np.linspace(0.0, 1.0, 300)),
    "rodas4": lambda: decays(method="rodas4"),
    "bdf": lambda: decays(method="bdf"),
    "branches": lambda: decays(branching, rtol=1e-3),
    "refused": lambda: refused(ValueError, lambda: decays(raising)),
    "gradient": lambda: en.ode.gradient(decay, [2.0], (0.0, 1.0), [1.0], p=[en.Ensemble(rng.random(300))]),
    "sensitivities": lambda: en.ode.sensitivities(decay, [2.0], (0.0, 1.0), p=[en.Ensemble(rng.random(300))]),
}


def uncertain():
    return en.Inputs(a=stats.norm(1.0, 0.2), s=stats.lognorm(0.1, scale=3.0))


def ratio(x):
    return {"y": x.a / x.s}


def profile(x):
    return {"f": x.a * np.linspace(0.0, 1.0, 500)}


def study(model=ratio, n=256, **options):
    return en.propagate(model, uncertain(), n, progress=False, seed=3, **options)


def raises(x):
    raise ZeroDivisionError("always")


def in_store(tmp_path, **options):
    made = study(profile, store=tmp_path / "study", **options)
    return made, en.uq.open_study(tmp_path / "study")


def several_levels():
    def level(k):
        return lambda z: en.Ensemble(np.exp(z.samples[0]) + 2.0**-k * np.sin(z.samples[0] + 1.0))

    return en.uq.multilevel([level(k) for k in range(5)], 1, atol=0.1, costs=[4**k for k in range(5)], seed=3)


def random_field():
    field = en.uq.fields.KarhunenLoeve.exponential([(0.0, 1.0)] * 2, 0.3, 20)
    return field, en.Inputs(k=field).samples(50, seed=3)


UQ = {
    "study": study,
    "study of fields": lambda: study(profile),
    "failures": lambda: study(failing_model, on_failure="mask"),
    "branches": lambda: study(lambda x: en.run(lambda a: {"y": branch(a)}, x.a)),
    "retried": lambda: study(en.vectorize(lambda x: {"y": 1.0 / max(x.a - 1.0, 0.0)}), 32, on_failure="retry"),
    "model that raises": lambda: refused(ZeroDivisionError, lambda: study(raises)),
    "threads": lambda: study(executor=threads),
    "threads, model that raises": lambda: refused(ZeroDivisionError, lambda: study(raises, executor=threads)),
    "Sobol'": lambda: en.sobol_indices(ratio, uncertain(), 64, progress=False, seed=3),
    "Shapley": lambda: en.uq.shapley_effects(ratio, uncertain(), 64, progress=False, seed=3),
    "chaos": lambda: en.uq.chaos((i := uncertain()), en.propagate(ratio, i, 64, seed=3, progress=False), degree=2),
    "multilevel": several_levels,
    "rare events": lambda: en.uq.subset_simulation(
        lambda z: en.Ensemble(z.samples.sum(axis=0)), 100, 35.0, event="above", seed=20731
    ),
    "inversion": lambda: en.uq.kalman_inversion(lambda x: x, [1.0], 1.0, 1, n_samples=500, seed=3),
    "chains": lambda: en.uq.mcmc(lambda x: -0.5 * (x[0] - 1.0) ** 2, 1, 500, seed=3),
    "random field": random_field,
    "correlated": lambda: en.Inputs(
        a=stats.norm(), s=stats.lognorm(0.1), correlation={("a", "s"): 0.5}, correlation_kind="pearson"
    ).samples(64, seed=3),
}


def threads():
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(2)


def fused():
    f = en.fuse(lambda u, xp: xp.sin(u) * 3.0 + 1.0)
    return f, f(en.Ensemble(rng.random((3000, S))))


def loop():
    start = {"x": en.Ensemble(rng.random(3000))}
    return en.while_loop(lambda s: s["x"] < 3, lambda s: {"x": s["x"] * 1.5 + 0.1}, start)


def integral():
    return quadrature.gauss(lambda q, p, xp: xp.exp(-p[0] * q[0]), 1, 9, p=[en.Ensemble(rng.random(300))])


ARRAYS = {
    "run, a loop": lambda: en.run(branch, en.Ensemble(rng.random(300))),
    "run, groups": lambda: en.run(branch, en.Ensemble(rng.random(300)), loop=False, check=3),
    "run, errors": run_with_errors,
    "run, errors of arrays": run_on_arrays,
    "run, one call": lambda: en.run(divides, en.Ensemble(np.zeros(300)), on_divergence="first"),
    "run, captured": lambda: en.run(reads_captured, en.Ensemble(rng.random(300))),
    "samples that disagree": lambda: refused(en.DivergenceError, lambda: bool(en.Ensemble(rng.random(3000)) > 0.5)),
    "shapes that do not fit": lambda: refused(
        ValueError, lambda: en.Ensemble(rng.random((30, S))) + en.Ensemble(rng.random((31, S)))
    ),
    "fuse": fused,
    "loops": loop,
    "branches": lambda: en.cond((x := en.Ensemble(rng.random(3000))) > 0.5, lambda v: v * 2.0, lambda v: v * 3.0, x),
    "per sample": lambda: en.per_sample(lambda v: v.sum())(en.Ensemble(rng.random((3000, S)))),
    "statistics": lambda: (en.sample_mean(x := en.Ensemble(rng.random((300, S)))), en.sample_quantile(x, 0.3)),
    "quadrature": integral,
    "analyses": lambda: (analyses.oscillator(50, seed=1), analyses.static_beam(32, [3.0, 6.0])),
}

PARTS = {
    "krylov": KRYLOV, "linalg": LINALG, "fem": FEM, "kalman": KALMAN,
    "gbees": GBEES, "ode": ODE, "uq": UQ, "arrays": ARRAYS,
}  # fmt: skip


def quiet(call):
    """`call()` without its warnings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return call()
