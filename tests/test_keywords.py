"""Calls with the names of other libraries: one line names the argument that is meant."""

import importlib
import inspect

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import distributed, linalg, multigrid, ode, quadrature, uq
from ensemble.apps import analyses, fem, kalman
from ensemble.krylov import WarmStart, bicgstab, cg, direct, gmres, minres, newton
from ensemble.linalg import Factorization, IncompleteFactorization, eigsh
from tests.public_api import packages
from tests.walked import every

A, b, x = en.gallery.poisson((3, 3)), np.ones(9), en.Ensemble(np.arange(4.0))
inputs = en.Inputs(a=stats.norm())
MODEL = kalman.LinearGaussianModel(F=np.eye(1), Q=np.eye(1), H=np.eye(1), R=np.eye(1), m0=np.zeros(1), P0=np.eye(1))


def decay(t, y, p, xp):
    return [-p[0] * y[0]]


def square(values):
    return {"y": values.a**2}


AXIS = "Statistics over samples have no axis; x.mean(axis) and x.std(axis) are over an axis of the array."
TYPES = "vectorize calls the model once per sample; types are those that it returns."
DRAWN = "Trajectories are drawn at random; n is their number."

WRONG = [
    # SciPy's and PyAMG's solvers
    (cg, (A, b), {"tol": 1e-8}, "Use rtol."),
    (cg, (A, b), {"maxiter": 5}, "Use max_iterations."),
    (cg, (A, b), {"preconditioner": None}, "Use M."),
    (cg, (A, b), {"rtoll": 1e-8}, "Use rtol."),
    (gmres, (A, b), {"restrt": 5}, "Use restart."),
    (gmres, (A, b), {"callback_type": "x"}, "callback(iteration, residual_norms) is called after each iteration."),
    (bicgstab, (A, b), {"tol": 1e-8}, "Use rtol."),
    (minres, (A, b), {"maxiter": 5}, "Use max_iterations."),
    (direct, (A, b), {"permc_spec": "COLAMD"}, "Use ordering."),
    (direct, (A, b), {"assume_a": "pos"}, "Use kind."),
    (newton, (None, None, b), {"tol": 1e-8}, "Use rtol."),
    (newton, (None, None, b), {"maxiter": 5}, "Use max_iterations."),
    (eigsh, (A,), {"tol": 1e-8}, "Use rtol."),
    (eigsh, (A,), {"maxiter": 5}, "Use max_iterations."),
    (eigsh, (A,), {"return_eigenvectors": False}, "The result has both values and vectors."),
    (multigrid.smoothed_aggregation, (A,), {"B": b}, "Use near_nullspace."),
    (multigrid.smoothed_aggregation, (A,), {"max_coarse": 10}, "Use coarse_size."),
    (multigrid.smoothed_aggregation, (A,), {"presmoother": "jacobi"}, "Use smoother."),
    # solve_ivp, odeint, Julia, diffrax
    (ode.solve, (decay, [1.0], (0, 1)), {"args": (1.0,)}, "Use p."),
    (ode.solve, (decay, [1.0], (0, 1)), {"params": (1.0,)}, "Use p."),
    (ode.solve, (), {"fun": decay, "t_span": (0, 1), "y0": [1.0]}, "Use f."),
    (ode.solve, (decay, [1.0]), {"t_span": (0, 1)}, "Use t."),
    (ode.solve, (decay, [1.0], (0, 1)), {"dense_output": True}, "Give t_eval the times of output."),
    (ode.solve, (decay, [1.0], (0, 1)), {"jac": None}, "Derivatives are found from f itself."),
    (ode.solve, (decay, [1.0], (0, 1)), {"vectorized": True}, "f is always called for all samples at once."),
    (ode.solve, (decay, [1.0], (0, 1)), {"hmax": 0.1}, "Use max_step."),
    (ode.solve, (decay, [1.0], (0, 1)), {"reltol": 0.1}, "Use rtol."),
    (ode.solve, (decay, [1.0], (0, 1)), {"saveat": [0.1]}, "Use t_eval."),
    (ode.solve, (decay, [1.0], (0, 1)), {"dt": 0.1}, "Use step."),
    (ode.gradient, (decay, [1.0], (0, 1), [1.0]), {"args": (1.0,)}, "Use p."),
    (ode.sensitivities, (decay, [1.0], (0, 1)), {"reltol": 0.1}, "Use rtol."),
    (ode.time_statistics, (decay, [1.0], (0, 1)), {"params": 0.1}, "Use p."),
    (quadrature.gauss, (np.sin, 1), {"deg": 4}, "Use n_nodes."),
    (quadrature.gauss, (np.sin, 1), {"ranges": [(0, 1)]}, "Use bounds."),
    (quadrature.gauss, (np.sin, 1), {"args": 1.0}, "Use p."),
    # statsmodels, pykalman
    (kalman.kalman_filter, (MODEL,), {"endog": b}, "Use y."),
    (kalman.rts_smoother, (MODEL,), {"observations": b}, "Use y."),
    (kalman.forecast, (MODEL, b), {"steps": 3}, "Use horizon."),
    (kalman.forecast, (MODEL, b, 3), {"alpha": 0.05}, "level is 1 - alpha."),
    (kalman.forecast, (MODEL, b, 3), {"exog": b}, "Use future."),
    (kalman.maximum_likelihood, (None, b), {"start_params": [1.0]}, "Use start."),
    (kalman.simulate, (MODEL,), {"nsimulations": 3}, "Use n_steps."),
    (kalman.simulate, (MODEL, 3), {"random_state": 3}, "Use seed."),
    (kalman.log_likelihood, (MODEL, b), {"loglikelihood_burn": 3}, "Use burn."),
    (kalman.sample_posterior, (MODEL, b), {"repetitions": 3}, "Use n_samples."),
    (kalman.LinearGaussianModel, (), {"transition_matrices": np.eye(1)}, "Use F."),
    (kalman.LinearGaussianModel, (), {"obs_cov": np.eye(1)}, "Use R."),
    (kalman.NonlinearGaussianModel, (), {"initial_state_mean": np.eye(1)}, "Use m0."),
    (Factorization, (A,), {"permc_spec": "COLAMD"}, "Use ordering."),
    (IncompleteFactorization, (A,), {"drop_tol": 0.1}, "Use drop_tolerance."),
    (uq.Program, ("true", {}), {"cwd": "."}, "Use folder."),
    # SALib, chaospy, emcee, NumPy
    (en.propagate, (square, inputs), {"n_samples": 8}, "Use n."),
    (en.propagate, (square, inputs, 8), {"n_jobs": 8}, "Use executor."),
    (en.propagate, (square, inputs, 8), {"batch_size": 8}, "Use ensemble_size."),
    (en.propagate, (square, inputs, 8), {"random_state": 8}, "Use seed."),
    (en.propagate, (), {"func": square, "inputs": inputs, "n": 8}, "Use model."),
    (en.propagate, (square,), {"problem": inputs, "n": 8}, "Use inputs."),
    (en.sobol_indices, (square, inputs), {"N": 8}, "Use n."),
    (en.sobol_indices, (square, inputs, 8), {"calc_second_order": True}, "Use pairs."),
    (en.sobol_indices, (square, inputs, 8), {"conf_level": 0.9}, "Use level."),
    (uq.morris, (square, inputs, 8), {"num_levels": 4}, "Use n_levels."),
    (uq.morris, (square, inputs, 8), {"optimal_trajectories": 4}, DRAWN),
    (uq.chaos, (inputs, None), {"order": 4}, "Use degree."),
    (uq.mcmc, (square, inputs, 8), {"nwalkers": 4}, "Use n_chains."),
    (uq.mcmc, (square, inputs), {"draws": 4}, "Use n_steps."),
    (uq.mcmc, (square, inputs, 4), {"tune": 4}, "Use burn_in."),
    (uq.mcmc, (), {"log_prob_fn": square}, "Use log_likelihood."),
    (uq.subset_simulation, (square, inputs), {"rng": 4}, "Use seed."),
    (en.plan, (inputs,), {"size": 4}, "Use n."),
    (en.vectorize, (square,), {"otypes": [float]}, TYPES),
    (en.sample_mean, (x,), {"axis": 0}, AXIS),
    (en.sample_std, (x,), {"axis": 0}, AXIS),
    (en.sample_var, (x,), {"correction": 1}, "Use ddof."),
    (en.sample_quantile, (x, 0.5), {"interpolation": "linear"}, "Use method."),
    (en.sample_confidence_interval, (x,), {"confidence_level": 0.9}, "Use level."),
    (en.while_loop, (), {"cond_fun": None}, "Use active."),
    (en.cond, (), {"pred": None}, "Use m."),
    (analyses.oscillator, (4,), {"rng": 1}, "Use seed."),
]  # fmt: skip


@pytest.mark.parametrize(
    "function, arguments, keywords, advice",
    [pytest.param(*case, id=f"{case[0].__name__}-{next(iter(case[2]))}") for case in WRONG],
)
def test_the_name_of_another_library_is_answered_by_the_name_here(function, arguments, keywords, advice):
    with pytest.raises(TypeError) as caught:
        function(*arguments, **keywords)
    text, wrong = str(caught.value), next(iter(keywords))
    assert text.endswith(f": a keyword must be one of its arguments; got {wrong}. {advice}")
    assert "\n" not in text and (caught.value.__context__ is None or caught.value.__suppress_context__)


@pytest.mark.parametrize(
    "call, meant",
    [
        (lambda: ode.solve(decay, [1.0], (0, 1), p=[1.0], method="RK45"), "tsit5"),
        (lambda: ode.solve(decay, [1.0], (0, 1), p=[1.0], method="DOP853"), "dop853"),
        (lambda: ode.solve(decay, [1.0], (0, 1), p=[1.0], method="LSODA"), "auto"),
        (lambda: ode.solve(decay, [1.0], (0, 1), p=[1.0], backend="cuda"), "cupy"),
        (lambda: en.propagate(square, inputs, 8, sampler="lhs", progress=False), "latin_hypercube"),
        (lambda: en.propagate(square, inputs, 8, sampler="Sobol", progress=False), "sobol"),
        (lambda: direct(A, b, kind="cholesky"), "ldlt"),
        (lambda: quadrature.gauss(np.sin, 1, rule="leggauss"), "legendre"),
        (lambda: eigsh(A, which="sa"), "SA"),
    ],
    ids=["RK45", "DOP853", "LSODA", "cuda", "lhs", "Sobol", "cholesky", "leggauss", "sa"],
)
def test_the_value_of_another_library_is_answered_by_the_value_here(call, meant):
    with pytest.raises(ValueError, match=rf" must be one of .* Use '{meant}'\.$"):
        call()


def test_arguments_without_names_are_told_which_have_none():
    with pytest.raises(
        TypeError, match=r"^cg: arguments must be A, b, others by keyword; got 3 arguments without names"
    ):
        cg(A, b, b)
    with pytest.raises(TypeError, match=r"^ode.solve: missing a required argument: 'y0'\.$"):
        ode.solve(decay)


def test_type_errors_of_a_model_are_its_own():
    def wrong(values):
        return square(values, tol=1)

    with pytest.raises(TypeError, match=r"square\(\) got an unexpected keyword argument 'tol'"):
        en.propagate(wrong, inputs, 8, progress=False)


EXPLAINED = {"krylov", "multigrid", "ode", "quadrature", "uq"}
"""Packages whose functions of several options all explain calls."""


def functions_of_options():
    for package in packages():
        module = importlib.import_module(package)
        for name in module.__all__ if package.removeprefix("ensemble.") in EXPLAINED else ():
            thing = getattr(module, name)
            if inspect.isfunction(thing):
                kinds = [p.kind for p in inspect.signature(thing).parameters.values()]
                free = inspect.Parameter.VAR_KEYWORD in kinds  # the function that options are passed to explains them
                if kinds.count(inspect.Parameter.KEYWORD_ONLY) > 2 and not free:
                    yield pytest.param(thing, id=f"{package}.{name}")


@pytest.mark.parametrize("function", list(functions_of_options()))
def test_functions_of_several_options_explain_calls(function):
    with pytest.raises(TypeError, match=r": a keyword must be one of its arguments; got no_such_keyword\. Arguments: "):
        function(no_such_keyword=1)


MADE_BY_USERS = (
    en.Categorical, en.fuse, fem.RandomDiffusion, fem.KarhunenLoeve, fem.Multigrid, fem.HexMesh, fem.TetMesh,
    fem.bilinear_form, fem.linear_form, fem.from_skfem, kalman.OnlineFilter, kalman.filter_split_series,
    kalman.smooth_split_series, kalman.split_series, distributed.Partition, distributed.DistributedCrsMatrix,
    distributed.DistributedSymmetricCrsMatrix, distributed.groups, distributed.farm, WarmStart, linalg.CrsMatrix,
    linalg.SymmetricCrsMatrix, linalg.BcrsMatrix, linalg.AffineMatrix, linalg.block, linalg.kron, multigrid.Chebyshev,
    multigrid.Jacobi, multigrid.GaussSeidel, multigrid.EvolutionStrength, multigrid.SymmetricStrength,
    multigrid.rigid_body_modes, uq.FromFile, uq.Gauss, uq.Halton, uq.Sobol, uq.LatinHypercube, uq.SparseGrid, uq.Kde,
    uq.Mixture, uq.Truncated, uq.Vector, uq.EmpiricalCopula, uq.Points, uq.open_study, uq.empirical,
    en.gallery.poisson, en.gallery.anisotropic, en.gallery.convection_diffusion, en.gallery.random_spd,
)  # fmt: skip


@every("made", MADE_BY_USERS)
def test_what_users_make_explains_its_construction(made):
    wanted = rf"^{made.__name__}: a keyword must be one of its arguments; got no_such_keyword\. Arguments: "
    with pytest.raises(TypeError, match=wanted):
        made(no_such_keyword=1)


def test_a_misspelt_option_of_run_is_no_argument_of_f():
    wanted = r"^run: a keyword must be an argument of f or an option; got max_group\. Use max_groups\.$"
    with pytest.raises(TypeError, match=wanted):
        en.run(lambda v: v, x, max_group=3)
    assert en.run(lambda v, *, k: v + k, x, k=1.0).value.samples.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert en.run(lambda v, **k: v + k["k"], x, k=1.0).value.samples.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_public_name_of_a_package_within_is_answered_by_its_place():
    names = [("CrsMatrix", "linalg"), ("cg", "krylov"), ("mcmc", "uq"), ("kalman_filter", "apps.kalman")]
    for name, place in names:
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'\. Use ensemble\.{place}\.{name}\.$"):
            getattr(en, name)
    with pytest.raises(AttributeError, match=r"^module 'ensemble' has no attribute 'Ensembl'$") as caught:
        _ = en.Ensembl
    assert caught.value.name == "Ensembl" and caught.value.obj is en  # Python adds a name that is spelt alike


def test_what_must_be_called_or_listed_is_named():
    wrong = [
        (lambda: en.cond(x > 0, 1.0, 2.0), "cond: f must be callable; got a float"),
        (lambda: en.cond(x >= 0, np.sin, 2.0), "cond: g must be callable; got a float"),
        (lambda: en.while_loop(1, 2, x), "while_loop: active must be callable; got an int"),
        (lambda: uq.multilevel(square, inputs, atol=1.0), "multilevel: models must be a list of models"),
        (lambda: en.propagate(square, inputs, 8, progress=False).plot("y"), "UqResult.plot: the picture must be named"),
    ]
    for call, text in wrong:
        with pytest.raises(TypeError, match=text):
            call()


def test_an_unused_entry_of_p_warns():
    with pytest.warns(
        ode.OdeWarning, match=r"entries of p must be used by f or an event; got 3 of which p\[1\], p\[2\]"
    ):
        ode.solve(decay, [1.0], (0.0, 1.0), p=[1.0, 2.0, 3.0])


def test_entries_of_p_that_events_functionals_or_changes_read_are_used():
    def event(t, y, p, xp):
        return y[0] - p[1]

    def jump(t, y, p, xp):
        return [y[0] + p[1]]

    ode.solve(decay, [1.0], (0.0, 1.0), p=[1.0, 0.5], events=event)
    ode.solve(decay, [1.0], (0.0, 1.0), p=[1.0, 0.5], stops=[0.5], at_stops=jump)
    ode.time_statistics(decay, [1.0], (0.0, 1.0), p=[1.0, 0.5], of=lambda t, y, p, xp: [p[1] * y[0]])
