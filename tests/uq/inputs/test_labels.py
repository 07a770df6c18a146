"""A category compares with a text as the label of each sample does."""

import copy
import operator
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ensemble as en
from ensemble.uq.study.backend import BackendSamples
from tests.conftest import examples

INPUTS = en.Inputs(c=en.Categorical({"red": 0.3, "blue": 0.5, "": 0.2}), d=en.Categorical(["blue", "green", "red"]))
N = 64
X = INPUTS.samples(N, seed=40711)
TEXTS = ["red", "blue", "", "green", "Red", np.str_("red")]


def each(f, x=X):
    """What `f` gives for each sample alone."""
    return np.array([f(x.sample(i)) for i in range(x.n_samples)])


@pytest.mark.parametrize("operation", [operator.eq, operator.ne])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("reflected", [False, True])
def test_a_comparison_with_a_text_is_that_of_each_label(operation, text, reflected):
    def compare(x):
        return operation(text, x.c) if reflected else operation(x.c, text)

    found = compare(X)
    assert isinstance(found, en.Ensemble) and found.dtype == np.bool_
    assert np.array_equal(np.broadcast_to(found.samples, N), each(compare))


@pytest.mark.parametrize("operation", [operator.eq, operator.ne])
def test_two_categories_are_equal_where_their_labels_are(operation):
    for compare in (lambda x: operation(x.c, x.d), lambda x: operation(x.d, x.c), lambda x: operation(x.c, x.c)):
        assert np.array_equal(compare(X).samples, each(compare))


@given(labels=st.lists(st.text(max_size=2), min_size=1, max_size=5, unique=True), text=st.text(max_size=2))
@settings(max_examples=examples(12), deadline=None)
def test_any_label_equals_itself_alone(labels, text):
    x = en.Inputs(c=en.Categorical(labels)).samples(16, seed=1, sampler="monte_carlo")
    assert np.array_equal(np.broadcast_to((x.c == text).samples, 16), each(lambda one: one.c == text, x))


@pytest.mark.parametrize(
    "kept", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c)), lambda c: X.take(range(N)).c]
)
def test_copies_keep_the_labels(kept):
    assert np.array_equal((kept(X.c) == "red").samples, each(lambda x: x.c == "red"))


def test_samples_of_a_device_or_of_torch_keep_the_labels():
    moved = BackendSamples(X, np.zeros(1))
    assert np.array_equal((moved.c == "red").samples, each(lambda x: x.c == "red"))
    torch = pytest.importorskip("torch")
    moved = BackendSamples(X, torch.zeros(1))
    assert (moved.c == "red").samples.tolist() == each(lambda x: x.c == "red").tolist()
    assert (moved.c == moved.d).samples.tolist() == each(lambda x: x.c == x.d).tolist()


def test_unchanged_code_takes_the_way_of_each_label():
    def model(c):
        if c == "red":
            return 1.0
        return 2.0 if c in ("blue", "green") else 3.0

    result = en.run(model, X.c)
    assert not result.errors and np.array_equal(result.value.samples, each(lambda x: model(x.c)))


def test_what_is_computed_from_places_has_no_labels():
    assert (X.c + 0 == "red") is False and np.array_equal((X.c == 0).samples, each(lambda x: x.c == "red"))


def test_samples_that_differ_are_named_where_one_truth_value_is_asked_for():
    with pytest.raises(en.DivergenceError, match="a truth value must be one bool"):
        bool(X.c == "red")


@pytest.mark.parametrize("loop", [None, False])
def test_one_sample_of_a_category_is_its_place_and_compares_as_its_label(loop):
    table = np.array([1.0, 2.0, 4.0])
    result = en.run(lambda c: table[c] if c != "blue" else float(c) + 10.0, X.c, loop=loop)
    for i in range(N):
        one, label = X.c.sample(i), X.sample(i).c
        assert all((one == text) == (label == text) and (one != text) == (label != text) for text in TEXTS)
        assert one == X.c.samples[i] and int(one) == INPUTS["c"].labels.index(label) and one[()] is one
        assert result.value.sample(i) == (table[one] if label != "blue" else 10.0 + one)
        assert (one == X.d.sample(i)) == (label == X.sample(i).d) and pickle.loads(pickle.dumps(one)) == label


def test_branches_of_cond_and_taken_samples_have_labels():
    found = en.cond(X.c == "red", lambda c: (c == "red") * 1.0, lambda c: (c == "blue") * 2.0, X.c)
    assert np.array_equal(found.samples, each(lambda x: {"red": 1.0, "blue": 2.0}.get(x.c, 0.0)))
    assert (X.c.take_samples(X.c == "red") == "red").samples.all()
