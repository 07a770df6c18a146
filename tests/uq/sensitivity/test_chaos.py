"""Polynomial chaos: known expansions, OpenTURNS, quadrature, dependent inputs, predictions, errors."""

import warnings

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import xp
from ensemble.uq.sensitivity import chaos_basis
from ensemble.uq.sensitivity.chaos_basis import Basis, multi_indices
from tests.uq.sensitivity.problems import ISHIGAMI_FIRST, ISHIGAMI_TOTAL, ISHIGAMI_VARIANCE, ishigami, ishigami_inputs

LAWS = {
    "normal": (stats.norm(1.0, 2.0), "Normal", (1.0, 2.0)),
    "uniform": (stats.uniform(-1.0, 3.0), "Uniform", (-1.0, 2.0)),
    "gamma": (stats.gamma(2.5, 1.0, 0.5), "Gamma", (2.5, 2.0, 1.0)),
    "exponential": (stats.expon(0.5, 2.0), "Exponential", (0.5, 0.5)),
    "beta": (stats.beta(2.0, 3.0, -1.0, 2.0), "Beta", (2.0, 3.0, -1.0, 1.0)),
    "triangular": (stats.triang(0.25, 0.0, 4.0), "Triangular", (0.0, 1.0, 4.0)),
}


def mixed_inputs():
    return en.Inputs(**{name: law for name, (law, _, _) in LAWS.items()})


def mixed_model(x):
    y = x.normal * x.uniform + 0.2 * x.gamma**2 + np.sin(x.beta) * x.triangular
    return {"y": y, "z": xp.stack([y, x.exponential * x.beta, x.gamma + 0.1 * x.exponential * x.normal * x.uniform])}


def expansion_of(model, inputs, n, degree, **options):
    x = inputs.samples(n, seed=40813)
    return en.uq.chaos(inputs, x, model(x), degree=degree, **options)


def openturns_indices(x, y, degree):
    """First and total indices of each column of `y` by OpenTURNS' least squares on the same samples."""
    ot = pytest.importorskip("openturns")
    laws = [getattr(ot, law)(*parameters) for _, law, parameters in LAWS.values()]
    numbering = ot.LinearEnumerateFunction(len(laws))
    basis = ot.OrthogonalProductPolynomialFactory(
        [ot.StandardDistributionPolynomialFactory(law) for law in laws], numbering
    )
    n_terms = numbering.getStrataCumulatedCardinal(degree)
    algorithm = ot.FunctionalChaosAlgorithm(
        ot.Sample(x),
        ot.Sample(y),
        ot.JointDistribution(laws),
        ot.FixedStrategy(basis, n_terms),
        ot.LeastSquaresStrategy(),
    )
    algorithm.run()
    indices = ot.FunctionalChaosSobolIndices(algorithm.getResult())
    dimension = range(len(laws))
    outputs = range(y.shape[1])
    first = [[indices.getSobolIndex(i, k) for k in outputs] for i in dimension]
    total = [[indices.getSobolTotalIndex(i, k) for k in outputs] for i in dimension]
    return n_terms, np.array(first), np.array(total)


def test_indices_are_those_of_openturns_on_the_same_samples():
    inputs = mixed_inputs()
    x = inputs.samples(256, seed=52711)
    outputs = mixed_model(x)
    expansion = en.uq.chaos(inputs, x, outputs, degree=3)
    points = np.stack([x[name].samples for name in inputs.names], axis=1)
    n_terms, first, total = openturns_indices(points, outputs["z"].samples.T, 3)
    assert expansion.n_terms == n_terms == 84
    np.testing.assert_allclose(expansion.first["z"], first, atol=1e-8)
    np.testing.assert_allclose(expansion.total["z"], total, atol=1e-8)


def test_a_polynomial_is_found_exactly():
    inputs = en.Inputs(a=stats.norm(), b=stats.uniform(-1.0, 2.0))
    expansion = expansion_of(lambda x: {"y": 3.0 + 2.0 * x.a + x.a * x.b}, inputs, 64, 2)
    assert float(expansion.mean("y")) == pytest.approx(3.0, abs=1e-13)
    assert float(expansion.var("y")) == pytest.approx(4.0 + 1.0 / 3.0, rel=1e-13)
    np.testing.assert_allclose(expansion.first["y"], [12.0 / 13.0, 0.0], atol=1e-13)
    np.testing.assert_allclose(expansion.total["y"], [1.0, 1.0 / 13.0], atol=1e-13)
    assert expansion.loo_error["y"] < 1e-25


def test_ishigami_indices_converge():
    expansion = expansion_of(ishigami, ishigami_inputs(), 1024, 10)
    np.testing.assert_allclose(expansion.first["y"], ISHIGAMI_FIRST, atol=2e-3)
    np.testing.assert_allclose(expansion.total["y"], ISHIGAMI_TOTAL, atol=2e-3)
    assert float(expansion.var("y")) == pytest.approx(ISHIGAMI_VARIANCE, rel=2e-3)
    assert expansion.loo_error["y"] < 1e-3


@pytest.mark.filterwarnings("ignore:chaos. output .* misses")  # the degree is too low, and the warning is right
def test_the_leave_one_out_error_is_that_of_fits_without_the_sample():
    inputs = en.Inputs(a=stats.norm(), b=stats.uniform(-1.0, 2.0))
    x = inputs.samples(32, seed=77)
    y = np.exp(0.3 * x.a.samples) + x.b.samples**3
    expansion = en.uq.chaos(inputs, x, y, degree=2)
    errors = []
    for i in range(32):
        rest = np.delete(np.arange(32), i)
        alone = en.uq.chaos(inputs, x.take(rest), y[rest], degree=2)
        errors.append(y[i] - alone.predict(x)["y"].samples[i])
    assert float(expansion.loo_error["y"]) == pytest.approx(np.mean(np.square(errors)) / y.var(), rel=1e-10)


@pytest.mark.parametrize("sampler", [en.uq.Gauss(4), en.uq.SparseGrid(5)])
def test_quadrature_gives_the_coefficients_of_a_polynomial(sampler):
    inputs = en.Inputs(a=stats.gamma(2.0), b=stats.beta(2.0, 2.0))
    study = en.propagate(lambda x: {"y": x.a**2 * x.b + x.b}, inputs, sampler=sampler, progress=False)
    by_quadrature = en.uq.chaos(inputs, study, degree=3)
    x = inputs.samples(64, seed=5)
    by_regression = en.uq.chaos(inputs, x, x.a**2 * x.b + x.b, degree=3)
    assert by_quadrature.method == "quadrature"
    np.testing.assert_allclose(by_quadrature.coefficients["y"], by_regression.coefficients["y"], atol=1e-9)
    with pytest.raises(ValueError, match="the rule must integrate products of the polynomials"):
        en.uq.chaos(inputs, study, degree=6)


def test_predictions_are_the_model_where_it_is_a_polynomial():
    inputs = en.Inputs(a=stats.norm(), b=[stats.uniform(), stats.expon()], c=2.0)
    expansion = expansion_of(lambda x: {"y": x.c * x.a * x.b[1] + x.b[0]}, inputs, 128, 2)
    x = inputs.samples(16, seed=5)
    np.testing.assert_allclose(expansion.predict(x)["y"].samples, (2.0 * x.a * x.b[1] + x.b[0]).samples, atol=1e-11)
    assert expansion(x)["y"].shape == () and expansion.inputs == ("a", "b")


def test_an_expansion_stands_for_its_model():
    inputs = ishigami_inputs()
    expansion = expansion_of(ishigami, inputs, 512, 8)
    indices = en.sobol_indices(expansion, inputs, 256, seed=3, progress=False, ensemble_size=256)
    exact = en.sobol_indices(ishigami, inputs, 256, seed=3, progress=False, ensemble_size=256)
    np.testing.assert_allclose(indices.first["y"], exact.first["y"], atol=0.02)


@pytest.mark.parametrize("basis", ["marginal", "hermite"])
def test_dependent_inputs_have_polynomials_of_their_germs(basis):
    inputs = en.Inputs(a=stats.norm(), b=stats.norm(), correlation={("a", "b"): 0.5})
    study = en.propagate(lambda x: {"y": x.a + x.b}, inputs, 64, seed=9, progress=False)
    expansion = en.uq.chaos(inputs, study, degree=1, basis=basis)
    assert float(expansion.var("y")) == pytest.approx(3.0, rel=1e-12)
    z = np.random.default_rng(61).normal(size=(5, 2))
    x = inputs.from_normal(z)
    np.testing.assert_allclose(expansion.predict(z)["y"].samples, (x.a + x.b).samples, atol=1e-12)
    with pytest.raises(
        ValueError, match=r"inputs must be independent for Sobol' indices; got 1 correlated pair\. .*shap"
    ):
        _ = expansion.first
    np.testing.assert_allclose(expansion.predict(x)["y"].samples, (x.a + x.b).samples, atol=1e-12)
    assert "var" not in repr(expansion) and "mean" in repr(expansion)


def test_an_expansion_of_dependent_inputs_and_fields_stands_for_its_model():
    inputs = en.Inputs(
        a=stats.uniform(1.0, 2.0), b=stats.beta(2.0, 3.0), length=2.0,
        kappa=en.fields.KarhunenLoeve.exponential([(0.0, 1.0)], 1.0, 2, mean=0.0, std=1.0),
        correlation={("a", "b"): 0.6},
    )  # fmt: skip
    model = lambda x: {"y": x.length * x.a**2 + x.b * x.a + x.kappa(np.array([[0.5]]))[0]}
    expansion = en.uq.chaos(inputs, en.propagate(model, inputs, 512, seed=9, progress=False), degree=5)
    z = np.random.default_rng(20731).normal(size=(16, inputs.n_germs))
    found, wanted = expansion(inputs.from_normal(z))["y"].samples, expansion.predict(z)["y"].samples
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    replaced = en.propagate(expansion, inputs, 1024, seed=4, progress=False)
    assert replaced.mean("y") == pytest.approx(float(expansion.mean("y")), rel=1e-3)
    effects = en.uq.shapley_effects(expansion, inputs, 512, seed=4, progress=False)
    assert effects.effects["y"].sum() == pytest.approx(1.0)


def test_an_expansion_in_germs_of_a_discrete_input_takes_germs():
    inputs = en.Inputs(a=stats.norm(), k=stats.poisson(3.0), correlation={("a", "k"): 0.5})
    expansion = en.uq.chaos(inputs, en.propagate(lambda x: x.a, inputs, 64, seed=9, progress=False), degree=1)
    with pytest.raises(ValueError, match=r"an array of normal germs .* discrete input; got values of k"):
        expansion.predict(inputs.samples(4, sampler="monte_carlo", seed=1))


def test_lognormal_inputs_have_polynomials_of_their_logarithm():
    inputs = en.Inputs(a=stats.lognorm(0.5, scale=2.0))
    expansion = expansion_of(lambda x: {"y": np.log(x.a)}, inputs, 32, 1)
    assert float(expansion.std("y")) == pytest.approx(0.5, rel=1e-12)
    assert float(expansion.mean("y")) == pytest.approx(np.log(2.0), rel=1e-12)


def test_discrete_inputs_have_as_many_polynomials_as_values():
    inputs = en.Inputs(a=en.Categorical({"steel": 0.25, "wood": 0.75}), b=stats.binom(2, 0.5))
    expansion = expansion_of(lambda x: {"y": 4.0 * x.a + x.b}, inputs, 64, 5)
    assert expansion.indices.max(axis=0).tolist() == [1, 2]
    np.testing.assert_allclose(expansion.first["y"], [3.0 / 3.5, 0.5 / 3.5], atol=1e-12)


def test_a_random_field_is_one_input():
    field = en.fields.KarhunenLoeve.exponential([(0.0, 1.0)], 1.0, 3, mean=0.0, std=1.0)
    inputs = en.Inputs(a=stats.norm(), kappa=field)
    study = en.propagate(lambda x: {"y": x.kappa(np.array([[0.5]]))[0] + x.a}, inputs, 64, seed=9, progress=False)
    expansion = en.uq.chaos(inputs, study, degree=1)
    variance = float(expansion.var("y"))
    np.testing.assert_allclose(expansion.first["y"], [1.0 / variance, 1.0 - 1.0 / variance], atol=1e-12)
    indices = en.sobol_indices(
        lambda x: {"y": x.kappa(np.array([[0.5]]))[0] + x.a}, inputs, 1024, seed=9, progress=False, ensemble_size=512
    )
    np.testing.assert_allclose(indices.total["y"], expansion.total["y"], atol=0.03)


@pytest.mark.filterwarnings("ignore:chaos. output .* misses")  # the degree is too low, and the warning is right
def test_outputs_fitted_together_agree_with_those_fitted_alone():
    inputs = mixed_inputs()
    x = inputs.samples(256, seed=3)
    z = mixed_model(x)["z"]
    together = en.uq.chaos(inputs, x, z, degree=2)
    for k in range(3):
        alone = en.uq.chaos(inputs, x, z[k], degree=2)
        # 28 terms from 256 samples: sums of that length
        size = 256 * np.finfo(float).eps * np.abs(z.samples[k]).max()
        np.testing.assert_allclose(together.coefficients["y"][:, k], alone.coefficients["y"], atol=size)


def test_failed_samples_are_left_out_and_told():
    inputs = ishigami_inputs()
    x = inputs.samples(512, seed=4)
    y = ishigami(x)["y"].samples.copy()
    y[[3, 77]] = np.nan
    expansion = en.uq.chaos(inputs, x, y, degree=6)
    assert expansion.n_samples == 510 and "2 of 512 samples are not finite" in repr(expansion)
    kept = np.delete(np.arange(512), [3, 77])
    np.testing.assert_array_equal(
        expansion.coefficients["y"], en.uq.chaos(inputs, x.take(kept), y[kept], degree=6).coefficients["y"]
    )


def test_constant_outputs_have_no_indices():
    expansion = expansion_of(lambda x: {"y": 0.0 * x.x1 + 0.1}, ishigami_inputs(), 64, 2)
    assert np.all(np.isnan(expansion.first["y"])) and np.isnan(expansion.loo_error["y"])


@pytest.mark.parametrize(
    ("degree", "norm", "n_terms"), [(4, 1.0, 210), (3, 1.0, 84), (0, 1.0, 1), (4, 0.5, 40), (3, 1e-9, 19)]
)
def test_truncations_have_the_terms_that_their_norm_allows(degree, norm, n_terms):
    found = multi_indices(np.full(6, degree), degree, norm)
    grid = np.stack(np.meshgrid(*[np.arange(degree + 1)] * 6, indexing="ij"), axis=-1).reshape(-1, 6)
    allowed = np.sum(np.where(grid > 0, grid, 0.0) ** norm * (grid > 0), axis=1) <= degree**norm * (1.0 + 1e-9)
    assert len(found) == n_terms == np.sum(allowed)
    assert len(np.unique(found, axis=0)) == n_terms and np.all(found[0] == 0)
    assert np.all(np.diff(found.sum(axis=1)) >= 0)


def test_the_basis_is_orthonormal():
    inputs = mixed_inputs()
    x = inputs.samples(2**15, seed=8)
    values = Basis(inputs, 2, 1.0, "marginal").evaluate(x, None)
    np.testing.assert_allclose(values @ values.T / 2**15, np.eye(28), atol=0.06)


def test_a_bad_condition_is_told():
    inputs = en.Inputs(a=stats.uniform(), b=stats.uniform())
    x = inputs.from_uniform(0.3 + 1e-4 * np.random.default_rng(15).random((30, 2)))
    with pytest.warns(UserWarning, match="condition number is .* for 6 terms and 30 samples"):
        en.uq.chaos(inputs, x, x.a, degree=2)


def plain():
    return en.Inputs(a=stats.norm(), b=stats.norm())


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"inputs": 3}, TypeError, "chaos: inputs must be Inputs"),
        ({"inputs": en.Inputs(c=2.0)}, ValueError, "have one that is not constant"),
        ({"inputs": en.Inputs(z=stats.norm())}, ValueError, "study must have samples of the inputs; got a, b"),
        ({"study": 3}, TypeError, "study must be a UqResult or InputSamples; got an int"),
        ({"outputs": None}, TypeError, "outputs must be given with InputSamples"),
        ({"outputs": np.ones(32) * 1j}, TypeError, "output 'y' must be real; got dtype complex128"),
        ({"degree": -1}, ValueError, "degree must be an integer of at least 0"),
        ({"degree": 8}, ValueError, "have at least 45 samples, one per term; got 32. Take a lower degree"),
        ({"norm": 1.5}, ValueError, "norm must be at most 1"),
        ({"basis": "spline"}, ValueError, "basis must be one of 'marginal', 'hermite'"),
        ({"basis": "hermite"}, ValueError, "tell its sampler for polynomials of germs"),
        ({"method": "lars"}, ValueError, "method must be one of"),
        ({"method": "quadrature"}, ValueError, "have the weights of a quadrature rule; got none"),
    ],
)
def test_bad_arguments_are_refused(options, error, match):
    x = plain().samples(32, seed=2)
    arguments = {"inputs": plain(), "study": x, "outputs": x.a, "degree": 1} | options
    with pytest.raises(error, match=match):
        en.uq.chaos(arguments.pop("inputs"), arguments.pop("study"), arguments.pop("outputs"), **arguments)


def test_samples_that_cannot_tell_the_terms_apart_are_refused():
    inputs = plain()
    x = inputs.from_normal(np.repeat([[1.0, 2.0], [0.0, 1.0], [2.0, 3.0]], 10, axis=0))
    with pytest.raises(ValueError, match="study must tell the terms from each other; got a condition number"):
        en.uq.chaos(inputs, x, x.a, degree=1)


def test_too_many_terms_are_refused(monkeypatch):
    monkeypatch.setattr(chaos_basis, "MOST_TERMS", 1000)
    inputs = en.Inputs(v=en.uq.Vector(stats.norm(), 20))
    x = inputs.samples(8, seed=1)
    with pytest.raises(ValueError, match="degree must give at most 1000 terms; got 3"):
        en.uq.chaos(inputs, x, x.v[0], degree=3)


def test_results_take_no_outputs_of_their_own():
    study = en.propagate(lambda x: x.a, plain(), 16, seed=9, progress=False)
    with pytest.raises(ValueError, match="outputs must be None for a UqResult"):
        en.uq.chaos(plain(), study, np.ones(16), degree=1)


def test_negative_weights_are_refused_in_least_squares():
    x = plain().samples(16, seed=1)
    x.weights = np.linspace(-1.0, 2.0, 16)
    with pytest.raises(ValueError, match="weights must be zero or above for least squares"):
        en.uq.chaos(plain(), x, x.a, degree=1)


@pytest.mark.parametrize("method", ["mean", "var", "std", "plot"])
def test_unknown_outputs_are_refused(method):
    expansion = expansion_of(lambda x: {"y": x.a}, plain(), 16, 1)
    with pytest.raises(KeyError, match=f"ChaosExpansion.{method}: name must be one of y"):
        getattr(expansion, method)("z")


def test_a_picture_has_first_and_total_indices():
    from matplotlib.figure import Figure

    expansion = expansion_of(lambda x: {"y": x.a + x.a * x.b, "z": x.b}, plain(), 16, 2)
    ax = expansion.plot("y", ax=Figure().add_subplot())
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [0.5, 0.0, 1.0, 0.5], atol=1e-12)
    with pytest.raises(ValueError, match=r"ChaosExpansion.plot: name must be one of 'y', 'z'; got None\."):
        expansion.plot()


def test_inputs_that_are_not_the_studys_are_refused(tmp_path):
    def inputs(width):
        return en.Inputs(a=stats.norm(0.0, width), b=stats.uniform())

    study = en.propagate(
        lambda x: {"y": x.a + x.b}, inputs(1.0), 64, seed=3, progress=False, store=tmp_path / "run.zarr"
    )
    first = en.uq.chaos(inputs(1.0), study, degree=2).first["y"]
    for known in (study, en.uq.open_study(tmp_path / "run.zarr")):
        with pytest.raises(ValueError, match="inputs must be those of the study; got other distributions of a"):
            en.uq.chaos(inputs(1.1), known, degree=2)
    stored = en.uq.chaos(inputs(1.0), en.uq.open_study(tmp_path / "run.zarr"), degree=2)
    assert np.array_equal(stored.first["y"], first)


@pytest.mark.parametrize("degree", [5, 7, 9])
def test_an_expansion_whose_variance_is_not_that_of_the_samples_is_told(degree):
    """A step in b: the variance is 0.25, and a takes no part."""
    inputs = en.Inputs(a=stats.norm(), b=stats.uniform())
    study = en.propagate(lambda x: xp.where(x.b > 0.5, 1.0, 0.0), inputs, 512, seed=1, progress=False)
    found, wrong = None, False
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = en.uq.chaos(inputs, study, degree=degree)
    wrong = not 0.75 < found.var("y") / study.var("y") < 1.25
    assert wrong == any("the variance of the expansion is" in str(one.message) for one in seen)
    assert wrong == any("'y': the variance of the expansion" in note for note in found.notes)
    assert all("sobol_indices" in note for note in found.notes) and found.notes
    assert degree < 9 or wrong


def test_dependent_components_of_one_vector_are_one_input():
    """Joint normals as a list with correlations: the indices of a joint distribution."""

    def model(x):
        return x.a + x.g[0] + 2.0 * x.g[1]

    listed = en.Inputs(a=stats.norm(), g=[stats.norm(), stats.norm()], correlation={(("g", 0), ("g", 1)): 0.5})
    exact = np.array([1.0, 1.0 + 4.0 + 2.0]) / 8.0
    study = en.propagate(model, listed, 256, seed=3, progress=False)
    found = en.uq.chaos(listed, study, degree=2)
    np.testing.assert_allclose(found.first["y"], exact, rtol=1e-10)
    indices = en.sobol_indices(model, listed, 4096, seed=1, progress=False)
    np.testing.assert_allclose(indices.first["y"], exact, atol=0.03)
    np.testing.assert_allclose(indices.total["y"], exact, atol=0.03)
    across = en.Inputs(a=stats.norm(), g=[stats.norm(), stats.norm()], correlation={("a", ("g", 1)): 0.5})
    with pytest.raises(ValueError, match="sobol_indices: inputs must be independent; got 1 correlated pair"):
        en.sobol_indices(model, across, 64, seed=1, progress=False)
