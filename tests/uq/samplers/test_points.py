"""The user's own points: values come back as they are, weights may be negative."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import uq

INPUTS = en.Inputs(
    a=stats.norm(1.0, 2.0), b=stats.gamma(2.0), k=stats.poisson(3.0), m=en.Categorical({"x": 0.2, "y": 0.8}),
    v=[stats.lognorm(0.5), stats.uniform()], j=stats.multivariate_normal([0.0, 1.0], [[1.0, 0.3], [0.3, 2.0]]),
    f=en.fields.KarhunenLoeve.exponential([(0, 1)], 0.5, 2), r=uq.Mixture([0.0, stats.expon()], [0.5, 0.5]),
    o=stats.Normal(mu=1.0, sigma=0.5), c=7.0, correlation={("a", "b"): 0.5, (("v", 0), "a"): -0.3},
)  # fmt: skip


def test_values_come_back():
    x = INPUTS.samples(64, sampler="monte_carlo", seed=51101)
    values = {name: x[name].samples for name in INPUTS.names if name not in ("c", "f")}
    values["f"] = x.f.coefficients.samples
    again = INPUTS.samples(sampler=uq.Points(values=values))
    for name, value in values.items():
        found = again[name].coefficients if name == "f" else again[name]
        np.testing.assert_allclose(found.samples, value, rtol=1e-12, atol=1e-13, err_msg=name)


def test_labels_stand_for_categories():
    inputs = en.Inputs(m=en.Categorical({"x": 0.2, "y": 0.8}))
    x = inputs.samples(sampler=uq.Points(values={"m": ["y", "x", "y"]}))
    assert x.m.samples.tolist() == [1, 0, 1]


@pytest.mark.parametrize("space", ["uniform", "normal"])
def test_points_are_taken_as_they_are(space):
    inputs = en.Inputs(a=stats.norm(), b=stats.expon())
    points = np.random.default_rng(51102).random((5, 2))
    x = inputs.samples(5, sampler=uq.Points(points, weights=[0.5, -0.25, 0.25, 0.25, 0.25], space=space))
    expected = (inputs.from_normal if space == "normal" else inputs.from_uniform)(points)
    assert np.array_equal(x.b.samples, expected.b.samples) and x.weights.tolist() == [0.5, -0.25, 0.25, 0.25, 0.25]
    assert x.take([1]).weights.tolist() == [-0.25]


def test_descriptions_tell_points_apart():
    texts = [str(p.description()) for p in (uq.Points([[0.5]]), uq.Points([[0.6]]), uq.Points([[0.5]], weights=[2.0]))]
    assert len(set(texts)) == 3


TWO = en.Inputs(a=stats.expon(), k=stats.poisson(2.0))


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: uq.Points(), "points, values must be given one without the other; got none"),
        (lambda: uq.Points([[0.5]], values={}), "got both"),
        (lambda: uq.Points([0.5]), "points must have one row per sample"),
        (lambda: uq.Points([[0.5]], space="cube"), "space must be one of 'uniform', 'normal'"),
        (lambda: uq.Points([[0.5]], weights=[np.nan]), "weights must be finite and not add up to zero"),
        (lambda: uq.Points([[0.5]], weights=[0.0]), "weights must be finite and not add up to zero"),
        (lambda: TWO.samples(sampler=uq.Points([[0.5]])), "points must have 2 columns"),
        (lambda: TWO.samples(sampler=uq.Points([[0.5, 0.5]], weights=[1.0, 1.0])), "weights must be 1, one for each"),
        (lambda: TWO.samples(sampler=uq.Points([[0.5, 1.5]])), "u must lie between 0 and 1"),
        (lambda: TWO.to_normal({"a": [1.0]}), "values must have the names a, k; got a"),
        (lambda: TWO.to_normal({"a": [1.0], "k": [1.0, 2.0]}), r"a must have shape \('n',\), n for all"),
        (lambda: TWO.to_normal({"a": [[1.0]], "k": [1.0]}), r"a must have shape \('n',\)"),
        (lambda: TWO.to_normal({"a": [-1.0], "k": [1.0]}), "a must have values of its distribution"),
        (lambda: TWO.to_normal({"a": [1.0], "k": [1.5]}), "k must have values of its distribution"),
        (lambda: en.Inputs(m=en.Categorical("ab")).to_normal({"m": ["c"]}), "m must have values of its distribution"),
    ],
)
def test_points_that_do_not_fit_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_points_of_values_need_their_inputs():
    with pytest.raises(ValueError, match="inputs must be given to for_inputs first"):
        uq.Points(values={"a": [1.0]}).points([0], 1, 0)
