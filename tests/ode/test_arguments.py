"""Arguments that are refused, each with one clear message."""

import array_api_strict as strict
import numpy as np
import pytest

from ensemble import Ensemble, ode

START, SPAN = [1.0, 0.0], (0.0, 1.0)
THREE = np.ones(3)


def oscillator(t, y, p, xp):
    return [y[1], -y[0]]


def passing(terminal=False, direction=0.0):
    def g(t, y, p, xp):
        return y[0] - 0.8

    g.terminal, g.direction = terminal, direction
    return g


ARGUMENTS = [
    ({"y0": [1j, Ensemble(THREE)]}, TypeError, r"y0\[0\] must be a number or an Ensemble of shape \(\); got 1j"),
    ({"y0": np.array([1j, 0.0])}, ValueError, "y0 must be real numbers; got complex128. Split complex unknowns"),
    ({"y0": ["1", Ensemble(THREE)]}, TypeError, r"y0\[0\] must be a number"),
    ({"y0": [Ensemble(np.ones((1, 3))), 0.0]}, ValueError, r"y0\[0\] must be a number or have shape \(\)"),
    ({"y0": 1.0}, ValueError, r"y0 must have one axis; got 1.0. Write \[1.0\]"),
    ({"y0": [None, 0.0]}, TypeError, "y0 must be real numbers; got object"),
    ({"y0": [[1.0], [1.0, 2.0]]}, TypeError, "y0 must be an array, an Ensemble or a list of numbers"),
    ({"y0": Ensemble(strict.ones((2, 3)))}, TypeError, "y0 must be of NumPy or CuPy; got an array of array_api_strict"),
    ({"t": (0.0, Ensemble(strict.ones(3)))}, TypeError, r"t\[1\] must be of NumPy or CuPy; got an array of array_api"),
    ({"y0": np.ones((2, 3))}, ValueError, r"y0 must have one axis; got shape \(2, 3\). Write Ensemble\(x\)"),
    ({"y0": []}, ValueError, "y0 must have at least one entry"),
    ({"p": 2.0}, ValueError, "p must have one axis"),
    ({"p": [Ensemble(1j * THREE)]}, ValueError, r"p\[0\] must be real numbers"),
    ({"t": (0.0, None)}, TypeError, r"t\[1\] must be a number"),
    ({"t": (0.0, np.nan)}, ValueError, r"t\[1\] must be finite"),
    ({"t": (0.0, Ensemble(1j * THREE))}, ValueError, r"t\[1\] must be real numbers"),
    ({"t": (0.0, 1.0, 2.0)}, ValueError, "t must be a pair"),
    ({"t_eval": 0.5}, ValueError, "t_eval must have one axis"),
    ({"t_eval": [0.5, 2.0]}, ValueError, "t_eval must lie between t0 and t1"),
    ({"t_eval": [0.5, np.nan]}, ValueError, "t_eval must be ordered"),
    ({"t_eval": [0.5, np.inf]}, ValueError, "t_eval must be ordered, finite"),
    ({"t_eval": [np.inf, np.inf]}, ValueError, "t_eval must be ordered, finite"),
    ({"rtol": None}, TypeError, "rtol must be a number"),
    ({"rtol": 0.0}, ValueError, "rtol must be above zero"),
    ({"rtol": np.inf}, ValueError, "rtol must be finite"),
    ({"rtol": "1e-3"}, TypeError, "rtol must be a number"),
    ({"rtol": Ensemble(1j * THREE)}, ValueError, "rtol must be real numbers"),
    ({"atol": None}, TypeError, "atol must be real numbers"),
    ({"atol": np.nan}, ValueError, "atol must be zero or above"),
    ({"atol": np.inf}, ValueError, "atol must be finite"),
    ({"step": np.inf}, ValueError, "step must be finite"),
    ({"step": 0.1, "first_step": 0.1}, ValueError, "first_step must be None for fixed steps"),
    ({"step": 0.1, "max_step": 0.1}, ValueError, "max_step must be left out for fixed steps"),
    ({"y0": np.ones(2, np.float32), "max_steps": 2**24 + 1}, ValueError, "max_steps must be at most 16777216"),
    ({"noise_samples": [3]}, ValueError, "noise_samples must be None without noise"),
    ({"method": "RK45"}, ValueError, "method must be one of"),
    ({"t": (0.0, 0.0), "t_eval": [5.0]}, ValueError, "t_eval must lie between t0 and t1"),
    ({"t": (0.0, Ensemble(np.arange(3.0))), "t_eval": Ensemble(THREE[None])}, ValueError, "t_eval must lie between"),
    ({"events": 3}, ValueError, "events must be callable"),
    ({"events": passing(terminal=-1)}, ValueError, "events must have a terminal"),
    ({"events": passing(terminal=0.5)}, TypeError, "events must have a terminal"),
    ({"events": passing(direction="up")}, TypeError, "events must have a direction"),
]


@pytest.mark.parametrize(("changed", "error", "text"), ARGUMENTS)
def test_arguments_of_a_wrong_kind_or_value_are_refused(changed, error, text):
    given = {"y0": START, "t": SPAN, **changed}
    with pytest.raises(error, match=f"ode.solve: {text}"):
        ode.solve(oscillator, given.pop("y0"), given.pop("t"), **given)


@pytest.mark.parametrize(
    ("f", "seen"),
    [
        (lambda t, y, p, xp: [None, y[0]], "None"),
        (lambda t, y, p, xp: [1j * y[0], y[0]], "complex128"),
        (lambda t, y, p, xp: ["a", y[0]], "a str"),
        (lambda t, y, p, xp: {0: y[1], 1: y[0]}, "a dict"),
        (lambda t, y, p, xp: None, "None"),
        (lambda t, y, p, xp: [np.ones(1), y[0]], r"float64 of shape \(1,\)"),
        (lambda t, y, p, xp: [[y[0]], y[1]], "a list"),
    ],
)
def test_a_right_hand_side_that_gives_no_real_numbers_is_refused(f, seen):
    with pytest.raises(TypeError, match=rf"f\(t, y, p, xp\) must return .*; got {seen}"):
        ode.solve(f, START, SPAN)


@pytest.mark.parametrize(
    "g",
    [
        lambda t, y, p, xp: None,
        lambda t, y, p, xp: [y[0], y[1]],
        lambda t, y, p, xp: 1j * y[0],
        lambda t, y, p, xp: y[0] < 0.8,  # it never changes its sign
        lambda t, y, p, xp: bool(y[0] < 0.8),
    ],
)
def test_an_event_that_gives_no_real_number_is_refused(g):
    with pytest.raises(TypeError, match=r"event\(t, y, p, xp\) must return real numbers; got .*Return a number"):
        ode.solve(oscillator, START, SPAN, events=g)


def scipy_function(t, y):
    return [y[1], -y[0]]


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("ode.solve: f", lambda: ode.solve(scipy_function, START, SPAN)),
        ("ode.solve: events", lambda: ode.solve(oscillator, START, SPAN, events=scipy_function)),
        (
            "ode.solve: noise",
            lambda: ode.solve(oscillator, START, SPAN, method="milstein", step=0.1, noise=scipy_function),
        ),
        ("ode.time_statistics: of", lambda: ode.time_statistics(oscillator, START, SPAN, of=scipy_function)),
        ("ode.gradient: f|ode.solve: f", lambda: ode.gradient(scipy_function, START, SPAN, [1.0, 0.0])),
    ],
)
def test_a_function_of_other_arguments_is_named(argument, call):
    with pytest.raises(TypeError, match=rf"({argument}) must take \(t, y, p, xp\); got a function of \(t, y\)\.$"):
        call()


@pytest.mark.parametrize("function", [ode.solve, ode.time_statistics])
def test_an_unknown_option_is_named_with_the_function(function):
    with pytest.raises(TypeError, match=r"ode.solve: a keyword must be one of its arguments; got rtoll\. Use rtol\.$"):
        function(oscillator, START, SPAN, rtoll=1e-3)


@pytest.mark.parametrize(("values", "seen"), [(None, "None"), ({"a": 1.0}, "a dict")])
def test_a_functional_that_gives_no_numbers_is_refused(values, seen):
    text = rf"statistics: of\(t, y, p, xp\) must return one number or a list of them; got {seen}\.$"
    with pytest.raises(TypeError, match=text):
        ode.sample_statistics(oscillator, START, SPAN, of=lambda t, y, p, xp: values)


def test_an_event_that_cannot_be_traced_is_refused_by_bdf():
    def branching(t, y, p, xp):
        return y[0] - 0.8 if bool(xp.all(y[0] > -9.0)) else y[0]

    with pytest.raises(TypeError, match="events must be traceable for the method bdf"):
        ode.solve(oscillator, START, SPAN, method="bdf", events=branching)


@pytest.mark.parametrize(
    ("cotangent", "error", "text"),
    [
        (np.array([1j, 0.0]), ValueError, "cotangent must be real numbers"),
        (Ensemble(np.full((2, 1), 1j)), ValueError, "cotangent must be real numbers"),
        (lambda y: np.array([1j, 0.0]), ValueError, "cotangent must be real numbers"),
        (lambda y: None, TypeError, "cotangent must be numbers of shape .*; got None"),
        (None, TypeError, "cotangent must be numbers of shape .*; got None"),
        ("ab", TypeError, "cotangent must be numbers of shape"),
        (1.0, ValueError, r"cotangent must have shape \(2,\)"),
    ],
)
def test_cotangents_are_real_numbers_of_the_shape_of_the_states(cotangent, error, text):
    with pytest.raises(error, match=f"ode.gradient: {text}"):
        ode.gradient(oscillator, START, SPAN, cotangent)


@pytest.mark.parametrize(
    ("wrt", "error", "text"),
    [
        (None, TypeError, "wrt must be 'y0'"),
        (3, TypeError, "wrt must be 'y0'"),
        ({"y0": 0}, TypeError, "wrt must name a list of entries of y0"),
        ({"y0": "01"}, TypeError, "wrt must name a list of entries of y0"),
        ({"y0": [0.5]}, TypeError, r"wrt\['y0'\] must be an integer"),
        ({"y0": [2]}, ValueError, "wrt must name entries of y0 from 0 to 1"),
    ],
)
def test_what_to_differentiate_by_is_named_by_integers(wrt, error, text):
    with pytest.raises(error, match=f"ode.sensitivities: {text}"):
        ode.sensitivities(oscillator, START, SPAN, wrt=wrt)


@pytest.mark.parametrize("function", [ode.sample_statistics, ode.time_statistics])
def test_statistics_are_of_at_least_one_value(function):
    with pytest.raises(ValueError, match="of must return at least one value; got 0"):
        function(oscillator, START, SPAN, of=lambda t, y, p, xp: [])


def test_samples_in_f_come_from_its_arguments():
    factor = Ensemble(THREE)
    with pytest.raises(ValueError, match=r"f\(t, y, p, xp\) must return a value per sample; got 3 samples where 1 are"):
        ode.solve(lambda t, y, p, xp: [factor * y[1], y[0]], START, SPAN)


@pytest.mark.parametrize("method", ["tsit5", "taylor"])
@pytest.mark.parametrize("atol", [Ensemble(np.array([1e-3, 1e-9])), [Ensemble(np.array([1e-3, 1e-9])), 1e-6]])
def test_each_sample_may_have_its_absolute_tolerance(method, atol):
    steps = ode.solve(oscillator, START, (0.0, 8.0), rtol=1e-9, atol=atol, method=method).n_steps
    assert steps[0] < steps[1]


@pytest.mark.parametrize("method", ["tsit5", "taylor", "rodas4", "bdf"])
def test_the_first_step_is_at_most_the_given_one_and_the_longest(method):
    options = {"rtol": 0.1, "atol": 0.1, "method": method, "events": lambda t, y, p, xp: y[0] - 2.0}
    free, first, longest = (
        ode.solve(oscillator, START, (0.0, 0.5), **options, **more).n_steps[0]
        for more in ({}, {"first_step": 1e-6}, {"first_step": 0.5, "max_step": 0.1})
    )
    assert first > free and longest >= 5


def test_no_events_are_none():
    given = ode.solve(oscillator, START, SPAN, events=None)
    assert given.y.shape == (2,) and given.t_events == ()
    assert ode.sensitivities(oscillator, START, SPAN, events=None).y.shape == (2,)


def test_the_ends_may_be_an_array():
    assert np.array_equal(
        ode.solve(oscillator, START, np.array(SPAN)).y.samples, ode.solve(oscillator, START, SPAN).y.samples
    )


def test_plain_numbers_take_the_precision_of_ensembles_beside_them():
    start = [Ensemble(THREE.astype(np.float32)), 0.0]
    assert ode.solve(oscillator, start, SPAN).y.dtype == np.float32


def test_no_largest_step_is_none():
    free = ode.solve(oscillator, START, SPAN, max_step=None)
    np.testing.assert_array_equal(free.y.samples, ode.solve(oscillator, START, SPAN).y.samples)


@pytest.mark.parametrize("function", [ode.sensitivities, ode.sample_statistics, ode.time_statistics])
def test_unknown_options_are_refused(function):
    with pytest.raises(TypeError, match=r"a keyword must be one of its arguments; got tolerance\. Use rtol\.$"):
        function(oscillator, START, SPAN, tolerance=1e-3)


def test_the_order_of_taylor_depends_on_the_smallest_tolerance_alone():
    rtol = np.array([1e-4, 1e-8, 1e-6])
    whole = ode.solve(oscillator, START, SPAN, method="taylor", rtol=Ensemble(rtol))
    part = ode.solve(oscillator, START, SPAN, method="taylor", rtol=Ensemble(rtol[:2]))
    np.testing.assert_array_equal(whole.y.samples[:, :2], part.y.samples)


CONDITIONS = {
    "traced": lambda t, y, p, xp: [y[1], xp.where(y[1] > 0.0, -y[0], -2.0 * y[0])],
    "not traced": lambda t, y, p, xp: [y[1], -y[0] * (2.0 if float(y[1]) > 0.0 else 1.0)],
    "time": lambda t, y, p, xp: [t + y[1], -y[0]],
}


@pytest.mark.parametrize("f", CONDITIONS.values(), ids=CONDITIONS)
def test_a_symplectic_method_refuses_what_conditions_and_times_couple(f):
    """Derivatives do not see them."""
    with pytest.raises(ValueError, match="must be separable for a symplectic method"):
        ode.solve(f, [1.0, 0.0], (0.0, 1.0), method="leapfrog", step=0.1)


def test_a_symplectic_method_takes_conditions_on_positions():
    def force(t, y, p, xp):
        return [y[1], -y[0] * (2.0 if float(y[0]) > 0.0 else 1.0)]

    end = ode.solve(force, [1.0, 0.0], (0.0, 0.5), method="leapfrog", step=1e-3).y.samples[0, 0]
    np.testing.assert_allclose(end, np.cos(0.5 * 2.0**0.5), rtol=1e-6)


def test_an_event_that_gives_truth_values_is_refused():
    """They have no sign change that a root could be found of."""
    with pytest.raises(TypeError, match=r"event.* must return real numbers; got bool"):
        ode.solve(lambda t, y, p, xp: [y[1], -y[0]], [1.0, 0.0], (0.0, 1.0), events=[lambda t, y, p, xp: y[0] < 0.7])


def test_an_index_beyond_the_parameters_says_how_many_there_are():
    with pytest.raises(IndexError) as caught:
        ode.solve(lambda t, y, p, xp: [p[0] * y[0]], [1.0], (0.0, 1.0))
    assert caught.value.__notes__ == ["ode.solve: f(t, y, p, xp) gets 1 values y and 0 parameters p."]
