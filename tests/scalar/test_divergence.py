"""A truth value of many samples: where they agree, where they do not, and what the policies make of it."""

import inspect
import pickle
import threading

import numpy as np
import pytest

from ensemble.scalar import DivergenceError, Ensemble, any_sample, divergence


def some_true(*true, n=16):
    return Ensemble(np.isin(np.arange(n), true))


@pytest.mark.parametrize("values, truth", [([True] * 3, True), ([False] * 3, False), ([True], True)])
def test_where_all_samples_agree_there_is_no_question(values, truth):
    assert bool(Ensemble(np.array(values))) is truth


def test_other_dtypes_have_truth_values_too(base):
    assert Ensemble(base.asarray([2.0, -1.0]))
    assert not Ensemble(base.asarray([0, 0]))
    with pytest.raises(DivergenceError):
        bool(Ensemble(base.asarray([0, 3])))


def test_the_message_says_how_many_and_who():
    text = r"Ensemble: a truth value must be one bool; got 3 True among 16 samples \(2, 5, 9\), False for 0, 1, 3, "
    with pytest.raises(DivergenceError, match=text + r".*\(13 in all\).*Use xp.where, all_samples or any_sample"):
        bool(some_true(2, 5, 9))


def test_the_message_names_the_place_and_the_expression():
    x = Ensemble(np.array([1.0, -1.0]))
    with pytest.raises(DivergenceError) as caught:
        if x > 0.0:
            x = -x
    error = caught.value
    assert error.filename == __file__
    line = inspect.getsourcelines(test_the_message_names_the_place_and_the_expression)[1] + 3
    assert error.lineno == line
    assert error.expression == "x > 0.0"
    assert f"`x > 0.0` at {__file__}:{line}" in str(error)
    np.testing.assert_array_equal(error.values, [True, False])


@pytest.mark.parametrize(
    "ask, expression",
    [
        (lambda x: max(x, 0.0), "max(x, 0.0)"),
        (lambda x: sorted([x, 0.0]), "sorted([x, 0.0])"),
        (lambda x: x > 0 and x < 5, "x > 0"),
        (lambda x: not x > 0, "x > 0"),
        (lambda x: -5 < x < 0, "-5 < x"),
        (lambda x: [1, 2][x > 0], "[1, 2][x > 0]"),
    ],
    ids=["max", "sorted", "and", "not", "chain", "index"],
)
def test_python_words_that_ask_for_one_bool_are_named(ask, expression):
    x = Ensemble(np.array([1.0, -7.0]))
    with pytest.raises((DivergenceError, TypeError)) as caught:
        ask(x)
    if isinstance(caught.value, DivergenceError):
        assert expression in caught.value.expression


def test_numbers_that_differ_name_the_place():
    x = Ensemble(np.array([1.0, -1.0]))
    with pytest.raises(DivergenceError, match=r"`float\(x\)` at .*test_divergence.py:\d+. Use the function"):
        float(x)


def test_code_that_expects_a_bad_number_does_not_catch_the_error():
    def number(x):
        try:
            return float(x)
        except (TypeError, ValueError):
            return 0.0

    with pytest.raises(DivergenceError):
        number(Ensemble(np.array([1.0, -1.0])))
    assert not issubclass(DivergenceError, TypeError | ValueError | ArithmeticError | LookupError)


def test_the_error_survives_a_pickle():
    with pytest.raises(DivergenceError) as caught:
        bool(some_true(1))
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.lineno) == (str(caught.value), caught.value.lineno)


@pytest.mark.parametrize(
    "policy, answers",
    [
        ("first", [True, False, True]),
        ("any", [True, True, True]),
        ("all", [False, False, False]),
        ("majority", [False, True, False]),
    ],
)
def test_policies(policy, answers):
    masks = [some_true(0, n=3), some_true(1, 2, n=3), some_true(0, 1, n=4)]
    with divergence(policy):
        assert [bool(mask) for mask in masks] == answers
    with pytest.raises(DivergenceError):
        bool(masks[0])


def test_only_first_speaks_about_numbers():
    x = Ensemble(np.array([3.0, 4.0]))
    with divergence("first"):
        assert float(x) == 3.0
    with divergence("any"), pytest.raises(DivergenceError):
        float(x)


def test_policies_nest():
    mask = some_true(0, n=3)
    with divergence("any"):
        with divergence("all"):
            assert not mask
        assert mask
        with divergence("raise"), pytest.raises(DivergenceError):
            bool(mask)


def test_a_policy_ends_with_an_exception():
    with pytest.raises(KeyError), divergence("any"):
        raise KeyError
    with pytest.raises(DivergenceError):
        bool(some_true(1))


def test_a_policy_may_be_a_function_of_the_truth_values():
    with divergence(lambda values: values.sum() == 2):
        assert some_true(3, 4)
        assert not some_true(3)


def test_threads_have_their_own_policy():
    seen = []

    def ask():
        with pytest.raises(DivergenceError):
            bool(some_true(1))
        seen.append(True)

    with divergence("any"):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert seen == [True]


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="divergence: policy must be one of 'raise', 'first'"), divergence("mean"):
        pass


def test_unchanged_conjugate_gradients_stop_at_the_first_disagreement():
    """A textbook loop over samples of different condition: never a silent wrong answer."""
    eigenvalues = np.stack([np.linspace(1.0, condition, 20) for condition in (1.0, 30.0)], axis=-1)
    A, b = Ensemble(eigenvalues), Ensemble(np.ones((20, 2)))

    def cg():
        xp = b.__array_namespace__()
        x, r = xp.zeros_like(b), b
        p, rr = r, xp.vecdot(r, r)
        while rr > 1e-20:
            q = A * p
            alpha = rr / xp.vecdot(p, q)
            x, r = x + alpha * p, r - alpha * q
            rr, old = xp.vecdot(r, r), rr
            p = r + rr / old * p
        return x

    with pytest.raises(DivergenceError, match=r"1 True among 2 samples \(1\), False for 0 in `rr > 1e-20`"):
        cg()
    with divergence("first"):
        assert any_sample(np.abs(A * cg() - b)[5] > 1e-3)  # the rule of the paper: sample 1 is not solved
