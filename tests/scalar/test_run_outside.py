"""What `f` finds outside its arguments in a run: ensembles, functions of `math`, questions for a type."""

import functools
import math
from math import sin

import numpy as np
import pytest

from ensemble.scalar import Ensemble, SampleSet, run, sample_mean, shared
from tests.scalar.programs import assert_like_scalar_runs, ensemble_of

VALUES = np.random.default_rng(60821).uniform(-2.0, 2.0, size=6)
RATE = Ensemble(10.0 * VALUES)
TABLE = {"rate": [RATE, 2.0]}


def with_a_global(x):
    return x * RATE if x > 0.0 else -x - RATE


def with_a_table(x):
    return x * TABLE["rate"][0] if x > 0.0 else -x - TABLE["rate"][0]


def with_a_default(x, rate=RATE):
    return x * rate if x > 0.0 else -x - rate


def helper(x):
    return x * RATE


def with_a_helper(x):
    return helper(x) if x > 0.0 else -x - helper(1.0)


def made():
    rate = 10.0 * Ensemble(VALUES)

    def inner(x):
        return x * rate if x > 0.0 else -x - rate

    return inner


FUNCTIONS = {
    "global": with_a_global,
    "nested in a global": with_a_table,
    "default": with_a_default,
    "closure": made(),
    "function that is called": with_a_helper,
    "lambda": lambda x: (lambda y: y * RATE)(x) if x > 0.0 else -x - RATE,
    "partial": functools.partial(lambda rate, x: x * rate if x > 0.0 else -x - rate, RATE),
}


@pytest.mark.parametrize("loop", [None, False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_ensemble_outside_has_the_samples_of_the_run(name, loop):
    result = run(FUNCTIONS[name], Ensemble(VALUES), loop=loop)
    np.testing.assert_array_equal(
        result.value.samples, np.where(VALUES > 0.0, VALUES * (10.0 * VALUES), -VALUES - 10.0 * VALUES)
    )


def test_shared_data_outside_is_a_plain_number_alone():
    factor = shared(2.0)
    result = run(lambda x: [x * factor, "a" if x > 0.0 else "b"], Ensemble(VALUES), loop=True)
    np.testing.assert_array_equal(result.value[0].samples, 2.0 * VALUES)


def test_an_ensemble_in_an_attribute_is_refused_where_samples_part():
    class Model:
        def __init__(self):
            self.rate = RATE

        def f(self, x):
            return x * self.rate if x > 0.0 else -x * self.rate

    text = "run: f must return values of the samples that it is called with; got an ensemble of 6 samples from sample"
    with pytest.raises(ValueError, match=text):
        run(Model().f, Ensemble(VALUES))


def test_an_ensemble_of_other_samples_is_refused_where_it_is_returned():
    other = Ensemble(np.arange(4.0))
    with pytest.raises(ValueError, match=r"got an ensemble of 4 samples from sample \d alone"):
        run(lambda x: x * other, Ensemble(VALUES))


def test_an_ensemble_of_other_samples_may_be_used_inside():
    noise = Ensemble(np.arange(4.0))
    result = run(lambda x: float(sample_mean(x + noise)), Ensemble(VALUES))
    np.testing.assert_array_equal(result.value.samples, [float(sample_mean(v + noise)) for v in VALUES])


def test_sample_sets_outside_and_inside_must_be_one():
    rate = Ensemble(VALUES, SampleSet(n_samples=6, seed=1))
    with pytest.raises(ValueError, match="sample set"):
        run(lambda x: x * rate if x > 0.0 else x, Ensemble(VALUES, SampleSet(n_samples=6, seed=2)))


# -- functions of math -------------------------------------------------------------------------------------------------


def through_a_helper(x):
    return sin(x) + helper_of_math(x)


def helper_of_math(x):
    return math.exp(x)


OF_MATH = {
    "sin": lambda x: math.sin(x),
    "imported by name": lambda x: sin(x),
    "in a function that is called": through_a_helper,
    "two arguments": lambda x: math.hypot(x, 2.0) + math.atan2(x, x + 1.0),
    "a list": lambda x: math.fsum([x, 0.1, x]) + math.dist([x, 0.0], [1.0, x]),
    "a pair": lambda x: math.modf(x),
    "a power": lambda x: math.cos(x) ** 2,
    "a quotient": lambda x: x / math.exp(x),
    "of an argument": lambda x, f=math.tanh: f(x),
    "a method of the float": lambda x: math.cos(x).is_integer(),
}


@pytest.mark.parametrize("name", OF_MATH)
def test_math_keeps_samples_together(name):
    x = Ensemble(np.random.default_rng(20377).normal(size=40))
    result = run(OF_MATH[name], x, loop=False)
    assert result.n_runs == 1
    assert_like_scalar_runs(result, OF_MATH[name], x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: math.sqrt(x),
        lambda x: math.log(x),
        lambda x: math.exp(400.0 * x),
        lambda x: 1.0 / math.sin(x),
        lambda x: math.cos(3.0 * x) ** 0.5,
        lambda x: 5.0 // math.ceil(x),
        lambda x: math.floor(x) * 10**18 * 100,
        lambda x: math.frexp(x),
        lambda x: (math.sin(x) > 0.5) + (math.cos(x) > 0.5),
        lambda x: round(math.sin(x), 2),
        lambda x: "nan" if math.isnan(x) else "inf" if math.isinf(x) else math.sin(x),
        lambda x: f"{math.sin(x):.3f}",
        lambda x: {0: "none", 1: "one"}.get(math.floor(x)),
        lambda x: math.sin(x) % 0.0,
        lambda x: divmod(math.sin(x), 0.25),
        lambda x: -abs(math.sin(x)) + 1 - 2 * math.sin(x),
        lambda x: np.float64(1.0) / math.sin(x),
        lambda x: x / math.sin(x),
        lambda x: math.isclose(x, 0.5) or math.sin(x),
        lambda x: math.comb(int(abs(x)) if x == x and abs(x) < 9.0 else 4, 2),
    ],
)
def test_math_that_raises_or_decides_does_so_in_each_sample(f):
    x = Ensemble(np.array([0.0, -0.0, 0.5, 1.0, -2.0, 3.0, 7.25, 1e30, math.nan, -math.inf, 0.5, 2.0, -1.0]))
    with np.errstate(all="ignore"):
        result = run(f, x, loop=False)
        assert_like_scalar_runs(result, f, x)


def test_math_of_ensembles_is_that_of_a_run_only():
    with pytest.raises(Exception, match="a Python float must be one number"):
        math.sin(Ensemble(VALUES))


counter = 0


def test_a_function_that_writes_globals_is_called_itself():
    def count(x):
        global counter
        counter += 1
        return math.floor(x) + counter * 0

    with pytest.warns(RuntimeWarning, match="another counter"):
        result = run(count, Ensemble(VALUES))
    np.testing.assert_array_equal(result.value.samples, np.floor(VALUES))


# -- questions for a type ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda x: 2.0 * x if isinstance(x, float) else -x,
        lambda x: 2.0 * x if isinstance(x, (int, np.floating)) else -x,
        lambda x: 2.0 * x if isinstance(x, int | float) else -x,
        lambda x: 2.0 * x if np.isscalar(x) else -x,
        lambda x: -x if hasattr(x, "__len__") else 2.0 * x,
        lambda x: -x if type(x) is float else 2.0 * x,
        lambda x: 2.0 * x if type(x) is np.float64 else -x,
        lambda x: 2.0 * x if isinstance(np.sin, np.ufunc) and type(TABLE) is dict and hasattr(np, "sin") else -x,
        lambda x: 2.0 * x if type(math.sin(x)) is float and isinstance(math.sin(x), float) else -x,
        lambda x: type(x).__name__,
        lambda x: type("Made", (), {}).__name__ + type.__name__,
    ],
)
@pytest.mark.parametrize("size", [3, 100])
def test_a_question_for_the_type_is_answered_as_alone(f, size):
    x = Ensemble(np.linspace(-1.0, 1.0, size))
    result = run(f, x, loop=False)
    assert result.n_runs == 1
    assert_like_scalar_runs(result, f, x)


@pytest.mark.parametrize(
    "f", [lambda v: isinstance(v, np.ndarray), lambda v: hasattr(v, "__len__"), lambda v: np.isscalar(v)]
)
def test_an_ensemble_with_axes_is_an_array(f):
    v = Ensemble(np.ones((3, 4)))
    assert_like_scalar_runs(run(f, v, loop=False), f, v)


def by_pattern(x):
    match x:
        case float():
            return 2.0 * x
        case _:
            return -x


def test_a_pattern_asks_for_the_type_of_a_sample():
    x = ensemble_of(1.0, 2.0, 3.0)
    assert_like_scalar_runs(run(by_pattern, x, check=3), by_pattern, x)
    assert_like_scalar_runs(run(by_pattern, x, loop=True, check=3), by_pattern, x)
