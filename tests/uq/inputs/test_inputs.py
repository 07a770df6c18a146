"""Inputs: the values of samples, whatever their number, order and grouping."""

import json
import pickle

import numpy as np
import pytest
from scipy import stats

import ensemble as en

LAWS = {
    "norm": stats.norm(1.5, 0.25), "lognorm": stats.lognorm(0.1, scale=2e11), "uniform": stats.uniform(0.25, 0.1),
    "gamma": stats.gamma(2.5, scale=3.0), "beta": stats.beta(0.5, 2.0), "t": stats.t(3.0),
    "poisson": stats.poisson(4.0), "binom": stats.binom(10, 0.3), "triang": stats.triang(0.3),
    "expon": stats.expon(1.0),
}  # fmt: skip


def study():
    return en.Inputs(
        **LAWS,
        pair=[stats.norm(), stats.gumbel_r()],
        joint=stats.multivariate_normal([0, 1], [[1, 0.5], [0.5, 2]]),
        c=3.0,
    )


@pytest.mark.parametrize("name", LAWS)
def test_values_are_those_of_the_inverse_of_scipy(name):
    u = np.random.default_rng(50417).random((200, 1))
    x = en.Inputs(a=LAWS[name]).from_uniform(u)
    assert np.array_equal(x.a.samples, LAWS[name].ppf(u[:, 0]))


@pytest.mark.parametrize("name", ["poisson", "binom"])
def test_at_a_jump_of_the_distribution_function_the_smaller_value_is_taken(name):
    values = np.arange(9.0)
    x = en.Inputs(a=LAWS[name]).from_uniform(LAWS[name].cdf(values)[:, None])
    assert np.array_equal(x.a.samples, values)


@pytest.mark.parametrize("name", LAWS)
def test_points_of_normal_space_and_of_the_cube_give_the_same_values(name):
    z = np.random.default_rng(50418).normal(size=(200, 1))
    inputs = en.Inputs(a=LAWS[name])
    np.testing.assert_allclose(
        inputs.from_normal(z).a.samples, inputs.from_uniform(stats.norm.cdf(z)).a.samples, rtol=1e-10
    )


@pytest.mark.parametrize("name", ["gamma", "expon", "t"])
def test_the_upper_tail_is_exact_in_normal_space(name):
    x = en.Inputs(a=LAWS[name]).from_normal([[9.0]])
    np.testing.assert_allclose(x.a.samples, LAWS[name].isf(stats.norm.sf(9.0)), rtol=1e-13)


@pytest.mark.parametrize("name", LAWS)
def test_the_faces_of_the_cube_give_finite_values(name):
    x = en.Inputs(a=LAWS[name]).from_uniform([[0.0], [1.0]])
    assert np.all(np.isfinite(x.a.samples))


def test_constants_are_shared_and_vectors_have_the_sample_axis_last():
    x = study().samples(8, seed=30817)
    assert x.c.is_shared and float(x.c) == 3.0
    assert x.pair.shape == (2,) and x.pair.n_samples == 8 and x.norm.shape == ()


def test_one_sample_keeps_the_sample_axis():
    x = en.Inputs(a=stats.norm(), v=[stats.norm(), stats.norm()]).samples(1, sampler="monte_carlo", seed=30818)
    assert x.a.samples.shape == (1,) and x.v.samples.shape == (2, 1)


def test_take_and_sample_give_the_same_numbers():
    x = study().samples(16, seed=30819)
    part = x.take([11, 3])
    assert part.ids.tolist() == [11, 3] and part.n_samples == 2 and part.c.is_shared
    plain = part.sample(1)
    assert plain.norm == x.norm.samples[3] and isinstance(plain.norm, float) and plain.c == 3.0
    assert np.array_equal(plain["pair"], x.pair.samples[:, 3])


def test_what_a_model_writes_into_its_inputs_stays_there():
    inputs = en.Inputs(a=stats.norm(), c=np.arange(3.0), n=2.0)
    x = inputs.samples(8, seed=30823)
    first = x.take([0, 1])
    for name in inputs.names:
        first[name][...] = -7.0
    second = x.take([0, 1])
    assert np.array_equal(second.a.samples, x.a.samples[:2]) and np.all(second.a.samples != -7.0)
    assert np.array_equal(second.c.sample(0), np.arange(3.0)) and float(second.n) == 2.0
    assert np.array_equal(inputs["c"], np.arange(3.0))


def test_samples_go_through_pickle():
    x = study().samples(8, seed=30820)
    again = pickle.loads(pickle.dumps(x))
    assert np.array_equal(again.gamma.samples, x.gamma.samples) and again.seed == x.seed


def test_failures_are_kept_by_place():
    x = en.Inputs(a=stats.norm()).samples(8, seed=30821)
    x.fail(x.a > np.inf)
    x.fail(np.arange(8) == 5, "no convergence")
    assert x.failures == {5: "no convergence"}
    with pytest.raises(ValueError, match="mask must be one bool for each sample"):
        x.fail([True, False])


def test_the_seed_of_a_draw_is_told_and_repeats_it():
    inputs = en.Inputs(a=stats.norm())
    first, second = inputs.samples(8), inputs.samples(8)
    assert not np.array_equal(first.a.samples, second.a.samples)
    assert np.array_equal(inputs.samples(8, seed=first.seed).a.samples, first.a.samples)


def test_descriptions_are_json_and_tell_inputs_apart():
    text = json.dumps(study().description())
    assert text == json.dumps(study().description())
    laws = {"a": stats.norm(), "b": stats.expon()}
    orders = [en.Inputs(**{name: laws[name] for name in names}).description() for names in ("ab", "ba")]
    assert json.dumps(orders[0], sort_keys=True) != json.dumps(orders[1], sort_keys=True)
    same = en.Inputs(a=stats.norm(1.0, 2.0)).description()
    assert same == en.Inputs(a=stats.norm(loc=1.0, scale=2.0)).description()
    assert same != en.Inputs(a=stats.norm(1.0, 2.0 + 1e-12)).description()


def test_an_object_with_an_inverse_is_an_input():
    class Ramp:
        def ppf(self, u):
            return np.sqrt(u)

    x = en.Inputs(a=Ramp(), b=stats.Normal(mu=1.0, sigma=2.0)).from_uniform([[0.25, 0.5]])
    assert float(x.a) == 0.5 and float(x.b) == 1.0


@pytest.mark.parametrize(
    "value, error, match",
    [
        ("steel", TypeError, "a must be a distribution, .* got a str"),
        (stats.norm(0.0, -1.0), ValueError, "a must have finite values between its tails"),
        (stats.norm(np.nan, 1.0), ValueError, "a must have finite values between its tails"),
        (stats.gamma, ValueError, r"frozen distribution; got stats.gamma. Freeze it with its parameters \(a, loc"),
        (stats.norm([0.0, 1.0]), ValueError, "a must have one number for loc; got shape"),
        (np.nan, ValueError, "a must be finite; got nan"),
        (np.array(["x"]), TypeError, "a must hold numbers or bools"),
        ([], ValueError, "a must hold one number or more"),
        ([stats.norm(), "x"], TypeError, r"a\[1\] must be a distribution"),
        (en.Ensemble(np.zeros(3)), TypeError, "a must be a distribution, .* got an Ensemble"),
        (stats.zipf(1.5), ValueError, "have an inverse that can be computed; got .* RuntimeError"),
        (type("Falling", (), {"ppf": lambda self, u: -u})(), ValueError, "have an inverse that never falls"),
        (type("Scalar", (), {"ppf": lambda self, u: 1.0})(), TypeError, "the distribution of one real number"),
    ],
)
def test_what_is_no_input_is_refused_at_once(value, error, match):
    with pytest.raises(error, match=match):
        en.Inputs(a=value)


@pytest.mark.parametrize("name", ["ids", "take", "_a", "two words"])
def test_names_that_samples_use_themselves_are_refused(name):
    with pytest.raises(ValueError, match="names must be Python names that InputSamples does not use"):
        en.Inputs(**{name: 1.0})


def test_inputs_need_a_name():
    with pytest.raises(ValueError, match="inputs must name one input or more"):
        en.Inputs()


@pytest.mark.parametrize(
    "points, match",
    [
        ([[0.5, 0.5]], "u must have one row per sample and 1 columns"),
        ([[1.5]], "u must lie between 0 and 1"),
        ([[np.nan]], "u must lie between 0 and 1"),
    ],
)
def test_points_outside_the_cube_are_refused(points, match):
    with pytest.raises(ValueError, match=match):
        en.Inputs(a=stats.norm()).from_uniform(points)


def test_normal_points_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="z must be finite"):
        en.Inputs(a=stats.norm()).from_normal([[np.inf]])


def test_ids_are_one_for_each_sample():
    with pytest.raises(ValueError, match="ids must be 1 integers"):
        en.Inputs(a=stats.norm()).from_uniform([[0.5]], ids=[1, 2])


def test_unknown_names_are_told():
    inputs = en.Inputs(a=stats.norm())
    with pytest.raises(KeyError, match="name must be one of a; got 'b'"):
        inputs["b"]
    x = inputs.samples(8, seed=11411)
    with pytest.raises(KeyError, match="name must be one of a; got 'b'"):
        x["b"]
    with pytest.raises(AttributeError, match="no input 'b'"):
        x.b  # noqa: B018


@pytest.mark.parametrize(
    "arguments, error, match",
    [
        ({"n": 0}, ValueError, "n must be an integer of at least 1"),
        ({}, ValueError, "n must be an integer; got None"),
        ({"n": 8, "sampler": "lattice"}, ValueError, "sampler must be one of 'monte_carlo'"),
        ({"n": 8, "sampler": 3}, TypeError, "sampler must be a Sampler"),
        ({"n": 8, "seed": -1}, ValueError, "seed must be an integer of at least 0"),
        ({"n": 8, "ids": [-1]}, ValueError, "ids must be from 0 to 7"),
        ({"n": 8, "ids": [0.5]}, ValueError, "ids must be a vector of integers"),
    ],
)
def test_wrong_draws_are_refused(arguments, error, match):
    with pytest.raises(error, match=match):
        en.Inputs(a=stats.norm()).samples(**arguments)
