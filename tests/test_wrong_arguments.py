"""Calls with an argument of a wrong kind: one line names the function and the argument."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import gallery, linalg, multigrid, ode, quadrature, uq
from ensemble.apps import fem, gbees, kalman
from ensemble.krylov import bicgstab, cg, direct, gmres, minres, newton

A, b, x = gallery.poisson((3, 3)), np.ones(9), en.Ensemble(np.arange(4.0))
x5, inputs = en.Ensemble(np.ones((3, 5))), en.Inputs(a=stats.norm())
MODEL = kalman.LinearGaussianModel(F=np.eye(1), Q=np.eye(1), H=np.eye(1), R=np.eye(1), m0=np.zeros(1), P0=np.eye(1))
study = en.propagate(lambda v: {"y": v.a**2}, inputs, 64, seed=1, progress=False)


def decay(t, y, p, xp):
    return [-p[0] * y[0]]


WRONG = {
    # a text or None as a mask has a truth value for NumPy
    "where: m": [lambda: en.where("a", x5, 1.0), lambda: en.where(None, x5, 1.0), lambda: en.where(["a"], 2.0, 1.0)],
    "divide: where": [lambda: en.divide(x5, x5, where="a"), lambda: en.divide(x5, x5, where=None)],
    # seeds
    "SampleSet.sobol: seed": [lambda: en.SampleSet.sobol(8, 2, seed="a"), lambda: en.SampleSet.sobol(8, 2, seed=-1)],
    "SampleSet.monte_carlo: seed": [lambda: en.SampleSet.monte_carlo(8, 2, seed=1.5)],
    "Inputs.samples: seed": [lambda: inputs.samples(8, seed="a"), lambda: inputs.samples(8, seed=-1)],
    "propagate: seed": [lambda: en.propagate(lambda v: v.a, inputs, 8, seed="a")],
    "chaos: seed": [lambda: uq.chaos(inputs, study, degree=2, n_resamples=3, seed="a")],
    "poisson: seed": [lambda: gallery.poisson((3,), 2, seed="a")],
    "anisotropic: seed": [lambda: gallery.anisotropic((3, 3), 2, seed="a")],
    "random_spd: seed": [lambda: gallery.random_spd(5, seed=-1)],
    "TetMesh.box: seed": [lambda: fem.TetMesh.box((2, 2, 2), jitter=0.1, seed="a")],
    "TetMesh.renumbered: seed": [lambda: fem.TetMesh.box((2, 2, 2)).renumbered("shuffled", seed="a")],
    "draw: seed": [lambda: gbees.draw([1.0], [[1.0]], 3, seed="a")],
    "simulate: seed": [lambda: kalman.simulate(MODEL, 3, seed="a")],
    "sample_posterior: seed": [lambda: kalman.sample_posterior(MODEL, np.ones((5, 1)), 3, seed="a")],
    # files
    "load: path": [lambda: en.load(3), lambda: en.load(None)],
    "save: path": [lambda: en.save(3, x), lambda: en.save(None, x)],
    # functions
    "per_sample: f": [lambda: en.per_sample(3)],
    "cg: callback": [lambda: cg(A, b, callback=3)],
    "bicgstab: callback": [lambda: bicgstab(A, b, callback="print")],
    "gmres: callback": [lambda: gmres(A, b, callback=[])],
    "minres: callback": [lambda: minres(A, b, callback=3)],
    "newton: callback": [lambda: newton(lambda u: u, lambda u: np.eye(1), np.ones(1), callback=3)],
    # arguments that are passed on to another function, under another name there
    "smoothed_aggregation: strength": [
        lambda: multigrid.smoothed_aggregation(A, strength=-1),
        lambda: multigrid.smoothed_aggregation(A, strength=2.0),
    ],
    "plot_ribbon: levels": [lambda: en.plot_ribbon(x5, levels=(5, 95)), lambda: en.plot_ribbon(x5, levels=0.9)],
    # numbers of samples
    "ode.solve: p[0] and p[1]": [
        lambda: ode.solve(decay, [1.0], (0, 1), p=[en.Ensemble(np.ones(3)), en.Ensemble(np.ones(4))])
    ],
    "ode.solve: y0 and p and rtol": [
        lambda: ode.solve(decay, en.Ensemble(np.ones((1, 3))), (0, 1), p=[x], rtol=en.Ensemble(np.full(3, 1e-4)))
    ],
    "where: a": [lambda: en.where(x5 > 1.0, "a", 2.0), lambda: en.where(x5 > 1.0, None, x5)],
    "where: b": [lambda: en.where(x5 > 1.0, x5, "a")],
    "Ensemble: operands": [
        lambda: np.add(x5, np.ones(2)),
        lambda: x5 - [1.0, 2.0],
        lambda: en.where(x5 > 1.0, np.ones(2), x5),
        lambda: x5.__array_namespace__().clip(x5, np.ones(2), 3.0),
    ],
    "sample_confidence_interval: level": [lambda: en.sample_confidence_interval(x5, level="0.9")],
    "vectorize: x": [lambda: en.vectorize(abs)(x), lambda: en.vectorize(max)(x, x)],
    "Ensemble.to_device: device": [lambda: x5.to_device("cuda")],
    "Program: outputs": [lambda: uq.Program("true", {})],
}


@pytest.mark.parametrize("beginning", WRONG)
def test_one_line_names_the_argument(beginning):
    for call in WRONG[beginning]:
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        text = str(caught.value)
        assert text.startswith(f"{beginning} must ") and "; got " in text and "\n" not in text


def test_a_file_that_is_not_there_or_is_a_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^load: path must be a file to read; got .*none\.npz \(No such file"):
        en.load(tmp_path / "none.npz")
    with pytest.raises(IsADirectoryError, match=r"^load: path must be a file to read; got "):
        en.load(tmp_path)


def walk(theta):
    return MODEL.replace(Q=theta[0] * np.eye(1))


y, two = np.ones((6, 1)), lambda v: {"y": v.a}


def of(function, *arguments, **options):
    return pytest.param(function, arguments, options, id=function.__name__)


NUMBERS = [
    of(cg, A, b, rtol=1e-08, atol=0.0, max_iterations=5),
    of(bicgstab, A, b, rtol=1e-08, atol=0.0, max_iterations=5),
    of(gmres, A, b, rtol=1e-08, atol=0.0, max_iterations=5, restart=3),
    of(minres, A, b, rtol=1e-08, atol=0.0, max_iterations=5),
    of(direct, A, b, rtol=1e-08),
    of(newton, lambda u: u, lambda u: np.eye(1), np.ones(1), rtol=1e-08, atol=0.0, max_iterations=5),
    of(linalg.eigsh, A, k=2, rtol=1e-08, sigma=0.1, max_iterations=5),
    of(multigrid.smoothed_aggregation, A, strength=0.1, max_levels=3, coarse_size=4, block_size=1),
    of(multigrid.approximate_ideal_restriction, A, theta=0.1, drop_restriction=0.1, max_levels=3, degree=1),
    of(linalg.IncompleteFactorization, A, drop_tolerance=0.1, fill_level=1),
    of(linalg.apply_dirichlet, A, b, [1], values=1.0),
    of(
        ode.solve,
        decay,
        [1.0],
        (0.0, 1.0),
        p=[1.0],
        rtol=1e-06,
        atol=1e-08,
        max_steps=9,
        first_step=0.1,
        max_step=0.5,
        t_eval=[0.5],
        stops=[0.5],
    ),
    of(en.propagate, two, inputs, n=8, ensemble_size=4, max_seconds=5.0, sample_seconds=5.0, seed=1),
    of(en.sobol_indices, two, inputs, n=64, ensemble_size=4, sample_seconds=5.0),
    of(uq.shapley_effects, two, inputs, 64, level=0.9),
    of(uq.chaos, inputs, study, degree=1, norm=0.75, level=0.9, n_resamples=3),
    of(uq.mcmc, lambda v: -(v.a**2), inputs, n_steps=4, n_chains=8, stretch=2.0, burn_in=2, max_seconds=5.0),
    of(uq.multilevel, [two, two], inputs, atol=0.5, rtol=0.5, costs=[1.0, 2.0], n_pilot=8, max_cost=1000000.0),
    of(uq.subset_simulation, lambda v: v.a, inputs, threshold=1.0, fraction=0.1, rtol=0.5, n_per_level=100),
    of(en.sample_confidence_interval, x5, level=0.9),
    of(en.sample_quantile, x5, q=0.5),
    of(kalman.maximum_likelihood, walk, y, start=[1.0], bounds=[(0.0, 9.0)], burn=1, max_iterations=5, tol=0.001),
    of(kalman.forecast, MODEL, y, horizon=2, level=0.9),
    of(kalman.log_likelihood, MODEL, y, burn=1),
    of(kalman.simulate, MODEL, n_steps=3, n_samples=2),
    of(fem.TetMesh.box, (2, 2, 2), jitter=0.1, lengths=(1.0, 1.0, 1.0)),
    of(uq.Truncated, stats.norm(), low=0.0, high=1.0),
    of(quadrature.gauss, lambda u, p: u[0], dim=1, n_nodes=3),
]
"""Functions of every package, arguments, and options that are numbers."""
NEEDED = {"n", "n_steps", "atol", "threshold", "start", "horizon", "degree", "dim", "n_nodes", "low", "high", "values"}


def as_text(value):
    return type(value)(map(as_text, value)) if isinstance(value, list | tuple) else str(value)


@pytest.mark.parametrize(("function", "arguments", "options"), NUMBERS)
def test_a_text_is_no_number(function, arguments, options):
    for name, value in options.items():
        others = {key: options[key] for key in options.keys() & NEEDED - {name}}
        with pytest.raises((TypeError, ValueError)) as caught:
            function(*arguments, **others, **{name: as_text(value)})
        text = str(caught.value)
        assert " must " in text and name in text and "; got " in text and "\n" not in text, f"{name}: {text}"


def test_a_file_of_another_kind_is_no_advice_to_unpickle_it(tmp_path):
    (tmp_path / "other.npz").write_text("no numbers")
    with pytest.raises(ValueError, match=r"other\.npz': no file of NumPy") as caught:
        en.load(tmp_path / "other.npz")
    assert "pickle" not in str(caught.value)


def test_an_empty_dict_is_said_to_be_empty():
    with pytest.raises(TypeError, match="got an empty dict"):
        uq.Program("true", {})
