"""Sample sets under JAX's transformations: traced once for all sets of a form, and never the set of another call."""

import numpy as np
import pytest

from ensemble import Ensemble, SampleSet, sample_mean

jax = pytest.importorskip("jax")
jnp = jax.numpy


def drawn(seed, n=8):
    return SampleSet.monte_carlo(n, 2, seed=seed)


def ensemble(sample_set, value=1.0):
    return Ensemble(jnp.full((3, sample_set.n_samples), value), sample_set)


class Counted:
    """A function under `jit`, and how often it was traced."""

    def __init__(self, f):
        self.traces = 0

        def counted(*arguments):
            self.traces += 1
            return f(*arguments)

        self.call = jax.jit(counted)

    def __call__(self, *arguments):
        return self.call(*arguments)


def test_sets_of_one_form_share_a_trace_and_results_have_the_set_of_the_call():
    f = Counted(lambda x: x * 2.0)
    for seed in [0, 1, 2, 1, 0]:
        given = drawn(seed)
        assert f(ensemble(given)).sample_set is given
    assert f.traces == 1
    f(ensemble(drawn(3, n=9)))
    assert f.traces == 2  # another form


def test_two_ensembles_of_one_set_share_a_trace():
    f = Counted(lambda x, y: (x * y, y + 1.0))
    for seed in range(4):
        given = drawn(seed)
        a, b = f(ensemble(given), ensemble(given, 2.0))
        assert a.sample_set is given and b.sample_set is given
    assert f.traces == 1


def test_different_sets_raise_though_equal_ones_were_traced():
    f = Counted(lambda x, y: x * y)
    f(ensemble(drawn(1)), ensemble(drawn(1)))
    for first, second in [(1, 2), (2, 1), (3, 4)]:
        with pytest.raises(ValueError, match="operands must share one sample set"):
            f(ensemble(drawn(first)), ensemble(drawn(second)))
    assert f(ensemble(drawn(5)), ensemble(drawn(5))).sample_set == drawn(5)


def test_each_result_has_the_set_of_its_own_argument():
    f = Counted(lambda x, y: (y + 1.0, x + 1.0))
    for seed in range(4):
        a, b = f(ensemble(drawn(seed)), ensemble(drawn(seed + 100)))
        assert a.sample_set == drawn(seed + 100) and b.sample_set == drawn(seed)
    assert f.traces == 1


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "in another function"])
def test_a_trace_that_reads_weights_serves_equal_weights_alone(wrapped):
    centred = jax.jit(lambda x: x - sample_mean(x))
    functions = [jax.jit(lambda x: centred(x) * 2.0), jax.jit(lambda x: centred(x) * 2.0)] if wrapped else [centred]
    values = np.array([1.0, 2.0, 4.0])
    for f in functions:
        for weights in [[1.0, 2.0, 3.0], [1.0, 1.0, 5.0], [1.0, 2.0, 3.0], [3.0, 3.0, 1.0]]:
            got = f(Ensemble(jnp.asarray(values), SampleSet(weights=weights)))
            expected = (values - np.average(values, weights=weights)) * (2.0 if wrapped else 1.0)
            np.testing.assert_allclose(got.samples, expected, rtol=1e-6)
            assert got.sample_set.weights.tolist() == weights


READ = {
    "points": lambda s: s.points[0], "ids": lambda s: s.ids * 1.0, "seed": lambda s: np.full(8, float(s.seed)),
    "equality": lambda s: np.full(8, float(s == SampleSet.monte_carlo(8, 2, seed=1))),
    "hash": lambda s: np.full(8, float(s in {SampleSet.monte_carlo(8, 2, seed=1)})),
    "take": lambda s: s.take(range(8)).points[1],
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_a_trace_reads_of_a_set_is_that_of_the_call(name):
    f = Counted(lambda x: x + Ensemble(jnp.asarray(READ[name](x.sample_set))))
    for seed in [0, 1, 2, 1]:
        got = f(ensemble(drawn(seed)))
        np.testing.assert_allclose(got.samples[0], 1.0 + READ[name](drawn(seed)), rtol=1e-6)
        assert got.sample_set == drawn(seed)


def test_closures_keep_their_own_set():
    own = ensemble(drawn(77))
    for order in (1, -1):
        f = Counted(lambda x, order=order: (x * 2.0, own * 3.0)[::order])
        for seed in range(3):
            a, b = f(ensemble(drawn(seed)))[::order]
            assert a.sample_set == drawn(seed) and b.sample_set is own.sample_set
        assert f.traces == 1
    combined = jax.jit(lambda x: x + own)
    assert combined(ensemble(drawn(77))).sample_set == drawn(77)
    with pytest.raises(ValueError, match="operands must share one sample set"):
        combined(ensemble(drawn(1)))


def test_transformations_and_loops_keep_the_set():
    def body(c, _):
        return c * 2.0, None

    def halve(c):
        return c * 0.5

    for seed in range(3):
        x = ensemble(drawn(seed))
        results = {
            "grad": jax.grad(lambda v: jnp.sum(v.samples**2))(x),
            "scan": jax.lax.scan(body, x, None, length=3)[0],
            "while": jax.lax.while_loop(lambda c: c.samples[0, 0] > 0.1, halve, x),
            "cond": jax.lax.cond(True, halve, lambda c: c, x),
            "jvp": jax.jvp(halve, (x,), (x,))[1],
            "map": jax.tree.map(lambda a, b: a + b, x, ensemble(drawn(seed))),
            "nested": jax.jit(jax.grad(lambda v: jnp.sum(jax.jit(halve)(v).samples ** 2)))(x),
            "host": jax.device_get(x),
        }
        assert [name for name, one in results.items() if one.sample_set not in (None, drawn(seed))] == []
        assert [name for name, one in results.items() if one.sample_set is None] == []


def weighted(seed):
    weights = np.random.default_rng(seed).random(4)
    given = SampleSet(n_samples=4, seed=seed, weights=weights / weights.sum())
    return Ensemble(jnp.arange(8.0).reshape(2, 4), given)


SWAPPED = jax.jit(lambda x, y: (y * 2.0, x - 1.0))
LOOP = jax.jit(lambda x: jax.lax.scan(lambda c, _: (c * 0.5, None), x, None, length=2)[0])


def both(x, y):
    of_y, of_x = SWAPPED(LOOP(x), y)
    return of_x, of_y


CALLERS = {
    "direct": both,
    "jit": jax.jit(both),
    "jit of jit": jax.jit(lambda x, y: CALLERS["jit"](x, y)),
    "jit of parts": jax.jit(lambda x, y: (LOOP(x), SWAPPED(x, y)[0] + 0.0 * LOOP(y))),
    "vmap": lambda x, y: jax.vmap(lambda c: both(x * c, y * c))(jnp.ones(1)),
    "scan": lambda x, y: jax.lax.scan(lambda c, _: (both(*c), None), (x, y), None, length=1)[0],
}

CALLERS["cond"] = lambda x, y: jax.lax.cond(True, both, lambda x, y: (x, y), x, y)
CALLERS["jit of cond"] = jax.jit(lambda x, y: CALLERS["cond"](x, y))


def assert_sets_of_calls(*names):
    """The inner functions were traced with other sets; results had these, or their weights in means."""
    for seed, name in enumerate((*names, *names)):
        x, y = weighted(2 * seed), weighted(2 * seed + 1)
        for result, given in zip(CALLERS[name](x, y), (x, y), strict=True):
            assert result.sample_set in (None, given.sample_set), (seed, name)
            assert result.sample_set is not None or name in ("direct", "vmap"), (seed, name)


@pytest.mark.parametrize("name", CALLERS)
def test_functions_traced_before_give_the_sets_of_each_caller(name):
    assert_sets_of_calls("direct", name)


@pytest.mark.slow
@pytest.mark.parametrize("first", CALLERS)
def test_64_pairs_of_callers_of_one_traced_function_have_their_own_sets(first):
    for second in CALLERS:
        assert_sets_of_calls(first, second)


def test_functions_traced_before_have_the_weights_of_the_call_under_a_gradient():
    square = jax.jit(lambda x: x * x)
    for seed in range(3):
        x = weighted(seed)
        square(weighted(seed + 50))
        found, slope = jax.value_and_grad(lambda v: jnp.sum(sample_mean(square(v))))(x)
        weights, values = x.sample_set.weights, np.asarray(x.samples)
        np.testing.assert_allclose(found, (weights * values**2).sum(), rtol=1e-6)
        np.testing.assert_allclose(slope.samples, 2.0 * weights * values, rtol=1e-6)
        means = jax.vmap(lambda c, v=x: sample_mean(square(v * c)))(jnp.ones(1))
        np.testing.assert_allclose(means[0], (weights * values**2).sum(axis=-1), rtol=1e-6)


def test_trees_of_results_keep_their_sets():
    f = jax.jit(lambda x: x * 2.0)
    first = f(ensemble(drawn(1)))
    leaves, structure = jax.tree.flatten(first)
    again = jax.tree.unflatten(structure, leaves)
    assert again.sample_set == drawn(1)
    second = f(ensemble(drawn(2)))
    late = jax.tree.unflatten(structure, leaves)  # whose set cannot be known for sure
    assert late.sample_set in (None, drawn(1)) and second.sample_set == drawn(2)


def test_trees_of_different_sets_do_not_mix():
    with pytest.raises(ValueError, match="seed=2"):
        jax.tree.map(lambda a, b: a + b, ensemble(drawn(1)), ensemble(drawn(2)))


def test_threads_do_not_exchange_sets():
    """Calls take turns: JAX compares keys inside its caches, which other threads must not change meanwhile."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Lock

    f, turn = jax.jit(lambda x, y: (x * 2.0, x + y)), Lock()

    def called(x, y):
        with turn:
            return f(x, y)

    def one(seed):
        given = drawn(seed)
        # None where two threads trace at the same time: which call a result is of is not known then.
        return all(r.sample_set in (None, given) for _ in range(3) for r in called(ensemble(given), ensemble(given)))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(60)))
