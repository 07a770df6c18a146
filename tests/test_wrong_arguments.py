"""Calls with an argument of a wrong kind: one line names the function and the argument."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import gallery, multigrid, ode, uq
from ensemble.apps import fem, gbees, kalman
from ensemble.krylov import bicgstab, cg, gmres, minres, newton

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


def test_a_file_of_another_kind_is_no_advice_to_unpickle_it(tmp_path):
    (tmp_path / "other.npz").write_text("no numbers")
    with pytest.raises(ValueError, match=r"other\.npz': no file of NumPy") as caught:
        en.load(tmp_path / "other.npz")
    assert "pickle" not in str(caught.value)


def test_an_empty_dict_is_said_to_be_empty():
    with pytest.raises(TypeError, match="got an empty dict"):
        uq.Program("true", {})
