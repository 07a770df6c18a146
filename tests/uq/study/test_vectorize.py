"""Models of plain numbers."""

import functools
import pickle

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble._sample_numbers import sample_numbers
from ensemble.uq.study.outputs import OutputError
from tests.uq.study.models import INPUTS, beam, plain_beam, same_bits


@en.vectorize
def decorated(x):
    return x.load


def test_it_gives_the_bits_of_the_model_of_ensembles():
    a = en.propagate(en.vectorize(lambda x: {"tip": x.load / x.stiffness}), INPUTS, 64, seed=3, progress=False)
    b = en.propagate(lambda x: {"tip": x.load / x.stiffness}, INPUTS, 64, seed=3, progress=False)
    assert same_bits(a, b)


@pytest.mark.parametrize("ensemble_size", [1, 32])
def test_a_sample_that_raises_fails_alone(ensemble_size):
    result = en.propagate(en.vectorize(plain_beam), INPUTS, 256, seed=3, ensemble_size=ensemble_size, progress=False)
    loads = INPUTS.samples(256, seed=3).load.samples
    np.testing.assert_array_equal(result.failed, loads > 1.3)
    assert 0 < result.n_failed < 40 and set(result.reasons.values()) == {"ValueError: too much load"}
    whole = en.propagate(beam, INPUTS, 256, seed=3, progress=False)
    np.testing.assert_array_equal(result.values("tip")[~result.failed], whole.values("tip")[~result.failed])


def test_keywords_are_the_names_of_the_inputs():
    x = INPUTS.samples(8, seed=1)
    found = en.vectorize(lambda load, stiffness: load - stiffness, keywords=True)(x)["y"]
    np.testing.assert_array_equal(found.samples, (x.load - x.stiffness).samples)


@pytest.mark.parametrize(
    "value, dtype", [(1, float), (True, bool), (1j, complex), (np.int32(3), np.int32), ([1.0, 2.0], float)], ids=str
)
def test_pythons_integers_become_floats(value, dtype):
    assert en.vectorize(lambda x: value)(INPUTS.samples(8, seed=1))["y"].dtype == dtype


@pytest.mark.parametrize(
    "model, text",
    [
        (lambda x: np.zeros(2 + (x.load > 1.0)), r"vectorize: output 'y' must have shape .* in sample \d"),
        (
            lambda x: {"a" if x.load > 1.0 else "b": 1.0},
            r"vectorize: outputs must be '.' as in sample 0; got '.' in sam",
        ),
        (lambda x: None, r"vectorize: output 'y' must be a number or an array of numbers; got None in sample 0"),
        (lambda x: "text", r"output 'y' must be a number or an array of numbers; got 'text' in sample 0"),
    ],
    ids=["shape", "name", "none", "text"],
)
def test_samples_have_one_form(model, text):
    with pytest.raises(OutputError, match=text):
        en.vectorize(model)(INPUTS.samples(8, seed=1))


def test_errors_of_the_program_are_raised():
    with pytest.raises(NameError, match="missing"):
        en.vectorize(lambda x: missing)(INPUTS.samples(8, seed=1))  # noqa: F821


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="vectorize: model must be callable; got an int"):
        en.vectorize(3)


def test_it_pickles_as_a_decorator_and_around_a_function():
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    again = pickle.loads(pickle.dumps(en.vectorize(plain_beam)))
    assert again.model is plain_beam and repr(again) == "vectorize(plain_beam)"


def test_labels_of_categories_reach_the_model():
    inputs = en.Inputs(material=en.Categorical({"steel": 0.5, "wood": 0.5}), load=stats.norm())
    found = en.vectorize(lambda x: x.material == "wood")(inputs.samples(64, seed=2))["y"]
    assert 0 < np.count_nonzero(found.samples) < 64


def test_a_model_that_takes_other_arguments_is_an_error_of_the_program():
    def model(load, length):
        return load * length

    with pytest.raises(TypeError, match=r"vectorize: model must take load, stiffness; got .* argument 'stiffness'"):
        en.propagate(en.vectorize(model, keywords=True), INPUTS, 8, seed=7, progress=False, on_failure="mask")
    with pytest.raises(TypeError, match=r"take one argument, the sample; got .* keywords=True gives it"):
        en.propagate(en.vectorize(model), INPUTS, 8, seed=7, progress=False)


def test_a_type_error_inside_the_model_fails_its_sample():
    def model(x):
        return x.load + (None if x.load > 1.0 else 0.0)

    result = en.propagate(en.vectorize(model), INPUTS, 64, seed=7, progress=False)
    assert 0 < result.n_failed < 64


def test_a_model_may_return_one_array_again_and_again():
    field, number, views, outputs = np.zeros(3), np.zeros(()), np.zeros((2, 2)), {}

    def model(x):
        field[:] = number[...] = views[:, 1] = x.load
        outputs.update(field=field, number=number, view=views.T[1:], of_list=[x.load])
        return outputs

    x = INPUTS.samples(8, seed=1)
    for name, found in en.vectorize(model)(x).items():
        np.testing.assert_array_equal(found.samples, np.broadcast_to(x.load.samples, found.samples.shape), name)
    alone = en.vectorize(lambda x: model(x)["field"])(x)["y"]
    np.testing.assert_array_equal(alone.samples, np.broadcast_to(x.load.samples, (3, 8)))


def square_of(stiffness, load, scale=2.0, *, shift=0.0):
    if load > 1.2:
        raise StopIteration("too much load")
    return scale * load - stiffness + shift


@pytest.mark.parametrize(
    "model",
    [
        square_of,
        lambda load, stiffness: square_of(load=load, stiffness=stiffness),
        lambda **given: square_of(**given),
        lambda *, load, stiffness: square_of(stiffness, load),
        lambda stiffness, /, load: 0.0,
        functools.wraps(square_of)(lambda *a, **given: square_of(*a, **given)),
        functools.partial(square_of, scale=2.0),
        lambda load, stiffness, missing: 0.0,
        lambda load: 0.0,
    ],
)
def test_every_way_to_name_arguments_is_that_of_a_call_by_name(model):
    x, rows = INPUTS.samples(64, seed=5), []
    for load, stiffness in zip(x.load.samples.tolist(), x.stiffness.samples.tolist()):
        try:
            rows.append(model(load=load, stiffness=stiffness))
        except StopIteration:
            rows.append(np.nan)
        except TypeError as error:
            with pytest.raises(TypeError, match="vectorize: model must take load, stiffness") as raised:
                en.vectorize(model, keywords=True)(x)
            assert str(error) in str(raised.value)
            return
    found = en.vectorize(model, keywords=True)(x)["y"]
    np.testing.assert_array_equal(found.samples, rows)
    assert 0 < np.isnan(rows).sum() < 64


@pytest.mark.parametrize("limit", [None, 60.0])
@pytest.mark.parametrize("keywords", [True, False])
def test_floats_failures_and_other_values_in_any_order_stay_at_their_samples(keywords, limit):
    """What the model sees as its number is that of its sample, whatever became of those before it."""
    seen = []

    def value(load):
        seen.append(int(sample_numbers()[0]))
        k = len(seen) % 4
        if k == 3:
            raise ValueError("every fourth")
        return load if k else (np.float64(load), 2)[len(seen) % 8 == 0]

    model = (lambda load, stiffness: value(load)) if keywords else (lambda x: value(x.load))
    result = en.propagate(en.vectorize(model, keywords=keywords), INPUTS, 32, seed=2, ensemble_size=8,
                          on_failure="mask", sample_seconds=limit, progress=False)  # fmt: skip
    assert seen == [*range(32)]
    loads = INPUTS.samples(32, seed=2).load.samples
    places = np.arange(1, 33)
    expected = np.where(places % 8 == 0, 2.0, loads)
    expected[places % 4 == 3] = np.nan
    np.testing.assert_array_equal(result.values("y"), expected)
    np.testing.assert_array_equal(result.failed, places % 4 == 3)


@pytest.mark.parametrize("limit", [None, 60.0])
def test_lists_and_dicts_of_any_kind_give_what_numpy_makes_of_each(limit):
    """Lists of floats are gathered at once, others one by one: floats, integers, numbers of NumPy, nested, empty."""
    kept, out = [0.0, 0.0], {}

    def model(x):
        if x.load > 1.2:
            raise ArithmeticError("too much load")
        k = x._id % 4
        kept[:] = [x.load, np.float64(2.0) if k == 1 else 2.0]
        out.update(
            a=kept if k != 2 else tuple(kept),
            b=([1.5, 2.5], [1, 2], [1.0, 2], np.array([3, 4]))[k],
            c=[[x.load], [1.0]],
            d=[],
            e=np.array([k, 2], np.float32),
            f=(x.load, k, True, np.float32(k))[k],
        )
        return dict(reversed(out.items())) if k == 3 else out

    result = en.propagate(en.vectorize(model), INPUTS, 64, seed=5, ensemble_size=16, sample_seconds=limit,
                          on_failure="mask", progress=False)  # fmt: skip
    load = INPUTS.samples(64, seed=5).load.samples
    good = np.flatnonzero(load <= 1.2)
    assert 0 < good.size < 64 and np.array_equal(result.ids, good)
    k, ones = good % 4, np.ones(good.size)
    lists = np.array([[1.5, 2.5], [1.0, 2.0], [1.0, 2.0], [3.0, 4.0]])
    expected = {
        "a": np.stack([load[good], 2.0 * ones]),
        "b": lists[k].T,
        "c": np.stack([load[good], ones])[:, None],
        "d": np.zeros((0, good.size)),
        "e": np.stack([k, 2 * ones]),
        "f": np.choose(k, [load[good], k, ones, k]),
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(result.values(name)[..., good], values, name)
    assert result.values("e").dtype == np.float32


def test_a_list_of_another_length_is_named_with_its_sample():
    with pytest.raises(OutputError, match=r"output 'y' must have shape \(2,\) as in sample 0; got shape \(3,\) in sam"):
        en.vectorize(lambda x: [1.0, 2.0, 3.0][: 2 + (x._id == 5)])(INPUTS.samples(8, seed=1))


def test_a_sample_is_pickled_with_its_number():
    sample = INPUTS.samples(8, seed=1).sample(2)
    again = pickle.loads(pickle.dumps(sample))
    assert again == sample and again["load"] == sample.load and vars(again)["_id"] == 2
