"""JAX: arrays defer to ensembles, transformations take them, and writing makes a new array."""

import subprocess
import sys

import numpy as np
import pytest

from ensemble.scalar import (
    Ensemble,
    SampleSet,
    cond,
    divide,
    dot,
    from_samples,
    namespace,
    per_sample,
    run,
    sample_mean,
    where,
    while_loop,
)

jax = pytest.importorskip("jax")
jnp = jax.numpy
jax.config.update("jax_enable_x64", True)

VALUES = np.random.default_rng(24337).uniform(0.5, 2.0, size=(3, 5))
PLAIN = jnp.asarray([1.0, 2.0, 3.0])

CALLS = {
    "product": lambda x: PLAIN * x,
    "sum": lambda x: PLAIN + x,
    "difference": lambda x: PLAIN - x,
    "quotient": lambda x: PLAIN / x,
    "power": lambda x: PLAIN**x,
    "comparison": lambda x: x > PLAIN,
    "matmul": lambda x: jnp.ones((2, 3)) @ x,
    "0-d": lambda x: PLAIN[1] * x,
    "right": lambda x: x / PLAIN,
    "numpy scalar": lambda x: np.float64(2.0) * x,
}


@pytest.mark.parametrize("name", CALLS)
def test_jax_arrays_defer(name):
    x = Ensemble(jnp.asarray(VALUES))
    got = CALLS[name](x)
    assert isinstance(got, Ensemble)
    for s in range(5):
        np.testing.assert_allclose(got.sample(s), CALLS[name](x.sample(s)), rtol=1e-15)


def test_jax_functions_refuse():
    with pytest.raises(TypeError):
        jnp.sin(Ensemble(jnp.asarray(VALUES)))
    with pytest.raises(TypeError):
        jnp.zeros(3).at[:].set(Ensemble(jnp.asarray(VALUES)))


def test_assignment_makes_a_new_array():
    x = Ensemble(jnp.asarray(VALUES))
    before = x.samples
    x[0] = 7.0
    x[x > 1.9] = 0.0
    x[Ensemble(jnp.asarray([1, 2, 1, 2, 1]))] = 5.0
    assert before[0, 0] == VALUES[0, 0]
    np.testing.assert_array_equal(x.samples[0], 0.0)
    np.testing.assert_array_equal(x.samples[1:].max(axis=0), 5.0)
    x += 1.0
    assert float(x[0]) == 1.0


def model(v):
    xp = v.__array_namespace__()
    y = xp.exp(v[0]) * v[1] + divide(v[2], v[0], where=v[0] > 1.0, fill=0.0)
    z = xp.linalg.solve(xp.asarray([[2.0, 1.0], [1.0, 3.0]]), v[:2])
    return xp.sum(z * z) + where(v[1] > 1.0, y, xp.sin(y))


def test_jit_takes_and_gives_ensembles():
    samples = SampleSet(n_samples=5, method="sobol", seed=3)
    x = Ensemble(jnp.asarray(VALUES), samples)
    got = jax.jit(model)(x)
    assert isinstance(got, Ensemble)
    assert got.sample_set == samples
    np.testing.assert_allclose(got.samples, model(x).samples, rtol=1e-13)


def test_indices_and_masks_under_jit():
    def clipped(v, place):
        w = v + 0.0
        w[w > 1.5] = 1.5
        w[place] = 0.0
        return w, v[place], v[0]

    x, place = Ensemble(jnp.asarray(VALUES)), Ensemble(jnp.asarray([0, 1, 2, 1, 0]))
    for got, expected in zip(jax.jit(clipped)(x, place), clipped(x, place)):
        np.testing.assert_array_equal(got.samples, expected.samples)


def test_one_reverse_pass_gives_the_gradient_of_every_sample():
    x = Ensemble(jnp.asarray(VALUES))
    gradient = jax.jit(jax.grad(lambda v: jnp.sum(model(v).samples)))(x)
    assert isinstance(gradient, Ensemble)
    for s in range(5):
        alone = jax.grad(lambda v: jnp.sum(model(v).samples))(Ensemble(x.samples[:, s : s + 1]))
        np.testing.assert_allclose(gradient.sample(s), alone.sample(0), rtol=1e-12)


def test_lines_and_special_functions_have_gradients():
    def area(v):
        xp = v.__array_namespace__()
        return jnp.sum(xp.sum(xp.special.erf(xp.linspace(0.0, v[0], 5)) ** 2).samples)

    x = Ensemble(jnp.asarray(VALUES))
    got = jax.jit(jax.grad(area))(x).samples
    for s in range(5):
        step = Ensemble(x.samples[:, s : s + 1])
        np.testing.assert_allclose(got[:, s], jax.grad(area)(step).samples[:, 0], rtol=1e-12)
    assert np.all(got[0] != 0.0)


def test_the_gradient_of_a_statistic():
    gradient = jax.grad(lambda v: sample_mean(v * v)[0])(Ensemble(jnp.asarray(VALUES)))
    np.testing.assert_allclose(gradient.samples[0], 2 * VALUES[0] / 5, rtol=1e-15)
    np.testing.assert_array_equal(gradient.samples[1:], 0.0)


def test_an_ensemble_is_a_tree_with_one_leaf():
    x = Ensemble(jnp.asarray(VALUES))
    leaves, build = jax.tree_util.tree_flatten(x)
    assert [leaf.shape for leaf in leaves] == [(3, 5)]
    assert isinstance(jax.tree_util.tree_unflatten(build, leaves), Ensemble)
    assert "samples" in str(jax.tree_util.tree_leaves_with_path({"a": x})[0][0])
    doubled = jax.tree.map(lambda leaf: 2 * leaf, {"a": x})
    np.testing.assert_array_equal(doubled["a"].samples, 2 * VALUES)


def test_numpy_ensembles_enter_a_transformation():
    got = jax.jit(lambda v: v + 1.0)(Ensemble(VALUES))
    np.testing.assert_array_equal(got.samples, VALUES + 1.0)


def test_inner_products_and_samples_from_jax_arrays():
    x = from_samples([PLAIN, 2.0 * PLAIN])
    np.testing.assert_array_equal(dot(x, x).samples, [14.0, 56.0])
    assert namespace(jnp, 2).zeros(3).n_samples == 2


DECISIONS = {
    "cond": lambda x: cond(x > 1.0, lambda v: v**3, lambda v: -v, x),
    "while_loop": lambda x: while_loop(lambda s: s["x"] < 3.0, lambda s: {"x": s["x"] * 1.5}, {"x": x}).state["x"],
    "run": lambda x: run(lambda v: v**3 if v > 1.0 else -v, x).value,
    "per_sample": lambda x: per_sample(lambda v: v**3 if v > 1.0 else -v)(x),
}
AT = jnp.asarray([0.5, 0.8, 1.1])


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_have_derivatives_where_nothing_is_compiled(name):
    f = lambda v: DECISIONS[name](Ensemble(v)).samples
    first = [7.59375, 5.0625, 3.375] if name == "while_loop" else [-1.0, -1.0, 3 * 1.1**2]
    second = 0.0 if name == "while_loop" else 6 * 1.1
    np.testing.assert_allclose(jax.grad(lambda v: f(v).sum())(AT), first, rtol=1e-14)
    for jacobian in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jacobian(f)(AT), np.diag(first), rtol=1e-14)
    np.testing.assert_allclose(jax.hessian(lambda v: f(v).sum())(AT), np.diag([0.0, 0.0, second]), rtol=1e-14)


@pytest.mark.parametrize("name", DECISIONS)
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap], ids=["jit", "vmap"])
def test_a_decision_on_values_that_are_not_known_is_an_error(name, transform):
    at = AT if transform is jax.jit else jnp.stack([AT, AT])
    with pytest.raises(TypeError if name == "run" else jax.errors.JAXTypeError) as error:
        transform(lambda v: DECISIONS[name](Ensemble(v)).samples)(at)
    if name == "run":
        assert "run: x must hold values by which samples can be grouped" in str(error.value)


def test_an_ensemble_in_a_transformed_function_has_a_text():
    texts = []

    def seen(x):
        texts.append((repr(x), f"{x:.1f}", x._repr_html_()[:4]))
        return jnp.sum(x.samples)

    x = Ensemble(jnp.full(3, 1.5))
    for transformed in (jax.jit(seen), jax.grad(seen)):
        transformed(x)
    jax.vmap(seen)(Ensemble(jnp.ones((2, 3))))
    known = "Ensemble(shape=(), n_samples=3, float64)"
    unknown = [f"{known} <values not known: {kind}>" for kind in ("DynamicJaxprTracer", "BatchTracer")]
    assert texts == [
        (unknown[0], unknown[0], "<div"),
        (f"{known} 1.5 ± 0", "1.5 ± 0.0", "<div"),
        (unknown[1], unknown[1], "<div"),
    ]
    assert "not known" in repr(jax.eval_shape(lambda q: 2.0 * q, x))
    assert repr(jax.tree.map(lambda leaf: None, x)) == "Ensemble(None)"
    assert repr(Ensemble(jnp.full((1, 2), 1.5, jnp.bfloat16))).endswith("bfloat16) [1.5 ± 0]")
    x.samples.delete()
    assert "not known" in repr(x)


def test_importing_the_library_does_not_import_jax_or_torch():
    code = "import sys, ensemble; print([m for m in ('jax', 'torch', 'xarray', 'pandas') if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert seen.strip() == "[]"


# -- run under a trace -------------------------------------------------------------------------------------------------


def branching(v):
    return v**0.5 if v > 1.0 else -v


def branching_and_catching(v):
    try:
        return v**0.5 if v > 1.0 else -v
    except BaseException:
        return v


@pytest.mark.parametrize("f", [branching, branching_and_catching, float, lambda v: [1.0, 2.0, 3.0][v]])
@pytest.mark.parametrize("trace", [jax.jit, jax.vmap])
def test_run_under_a_trace_refuses_what_needs_a_value(trace, f):
    def total(samples):
        value = run(f, Ensemble(samples)).value
        return value.samples.sum()

    samples = jnp.ones((2, 3)) if trace is jax.vmap else jnp.asarray([0.5, 0.8, 1.1])
    with pytest.raises(TypeError, match="run: x must hold values by which samples can be grouped; got values that are"):
        trace(total)(samples)


def test_run_under_a_trace_serves_code_without_branches():
    samples = jnp.asarray([0.5, 0.8, 1.1])
    call = jax.jit(lambda samples: run(lambda v: v * v, Ensemble(samples)).value.samples)
    np.testing.assert_array_equal(call(samples), samples * samples)
    slope = jax.grad(lambda samples: run(lambda v: v * v, Ensemble(samples)).value.samples.sum())(samples)
    np.testing.assert_array_equal(slope, 2.0 * samples)


def test_run_under_a_trace_raises_what_the_function_raises():
    def failing(v):
        raise KeyError("a")

    with pytest.raises(KeyError, match="a"):
        jax.jit(lambda samples: run(failing, Ensemble(samples)).value)(jnp.ones(3))
