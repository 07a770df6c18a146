"""Steps of rodas4 in one pass have the bits of the same steps part by part, and control in one loop those of NumPy."""

import warnings

import numpy as np
import pytest

from ensemble import Ensemble, ode
from ensemble._kernels.ode import lock_step_control as control
from ensemble.ode import bdf, explicit, implicit
from ensemble.ode.methods.bdf import ALPHA
from ensemble.ode.methods.inverse_root import inverse_root

N = 33


def forced(t, y, p, xp):
    """Depends on the time; products of three unknowns, quotients and roots, whose slopes have no bound."""
    return [p[0] * (y[i - 1] - 2.0 * y[i] + y[(i + 1) % N]) - y[i] * y[i - 1] * y[(i + 5) % N] / (1.0 + y[i])
            + xp.sqrt(y[(i + 2) % N]) - xp.where(y[i] > 1.5, t, t * t) for i in range(N)]  # fmt: skip


def height(t, y, p, xp):
    return y[0] - 1.4


CASES = {
    "times and events": {"t_eval": np.linspace(0.0, 0.5, 7), "events": height},
    "a tolerance of each unknown": {"atol": np.linspace(1e-8, 1e-5, N)},
    "fixed steps": {"step": 0.02, "t_eval": [0.25, 0.5]},
    "backwards": {"t": (0.004, 0.0)},
    "long first step": {"first_step": 0.5, "max_step": 0.4},
}


def solver(case, dtype, method):
    """A function that solves the problem of a case for parameters ``p``, one of each sample."""
    options = {"t": (0.0, 0.5), "rtol": 1e-4} | CASES[case]
    span = options.pop("t")
    start = np.linspace(1.0, 2.0, N).astype(dtype)
    if "atol" in options:
        options["atol"] = options["atol"].astype(dtype)
    return lambda p: ode.solve(forced, start, span, p=Ensemble(p.astype(dtype)[None]), method=method, **options)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_one_pass_has_the_bits_of_its_parts(case, dtype, monkeypatch):
    solved = solver(case, dtype, "rodas4")
    p = np.linspace(1.0, 30.0, 9)
    whole, alone = solved(p), solved(p[4:5])
    assert implicit.Steps._whole_steps(_steps_of(solved, p, monkeypatch)) is not None
    monkeypatch.setattr(implicit.Steps, "_whole_steps", lambda self: None)
    parts = solved(p)
    assert np.array_equal(whole.y.samples, parts.y.samples)
    assert np.array_equal(whole.n_steps, parts.n_steps)
    assert np.array_equal(whole.n_rejected, parts.n_rejected)
    assert alone.y.samples[..., 0].tobytes() == whole.y.samples[..., 4].tobytes()
    assert (alone.n_steps[0], alone.n_rejected[0]) == (whole.n_steps[4], whole.n_rejected[4])
    for ours, theirs in zip(alone.t_events, whole.t_events):
        assert ours.samples[..., 0].tobytes() == theirs.samples[..., 4].tobytes()
    for ours, theirs in zip(whole.t_events, parts.t_events):
        assert np.array_equal(ours.samples, theirs.samples, equal_nan=True)


@pytest.mark.parametrize("case", [case for case in CASES if case != "fixed steps"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_passes_of_a_lone_sample_have_the_bits_of_those_together(case, dtype, monkeypatch):
    solved = solver(case, dtype, "bdf")
    passes, calls = bdf.passes_alone, []
    monkeypatch.setattr(bdf, "passes_alone", lambda *arguments: (calls.append(0), passes(*arguments))[1])
    p = np.array([1.0, 12.0, 30.0])
    alone = solved(p)
    assert calls
    calls.clear()
    monkeypatch.setattr(bdf, "alone", lambda n, n_samples: False)
    whole = solved(p)
    assert not calls
    assert alone.y.samples.tobytes() == whole.y.samples.tobytes()
    assert np.array_equal(alone.n_steps, whole.n_steps) and np.array_equal(alone.n_rejected, whole.n_rejected)
    assert np.array_equal(alone.status, whole.status)
    for ours, theirs in zip(alone.t_events, whole.t_events):
        assert ours.samples.tobytes() == theirs.samples.tobytes()


@pytest.mark.parametrize("power", [1, 2], ids=["singular matrix", "without bound"])
def test_a_lone_sample_that_fails_does_so_as_together(power, monkeypatch):
    def f(t, y, p, xp):
        return [p[0] * y[0] ** power, *(-y[i] for i in range(1, N))]

    def solved(p):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ode.solve(f, np.ones(N), (0.0, 2.0), p=Ensemble(p[None]), method="bdf", first_step=0.1, rtol=1e-5)

    p = np.array([0.1, 1.0, ALPHA[1] / 0.1])  # 1 / c - J of the last sample is zero at the first step of y' = p y
    alone = solved(p)
    monkeypatch.setattr(bdf, "alone", lambda n, n_samples: False)
    whole = solved(p)
    assert alone.y.samples.tobytes() == whole.y.samples.tobytes()
    assert np.array_equal(alone.status, whole.status) and np.array_equal(alone.n_steps, whole.n_steps)
    assert whole.status.tolist() == [1, 1, 1] if power == 1 else len(set(whole.status.tolist())) == 2


def _steps_of(solved, p, monkeypatch):
    """The steps of a run."""
    made = []
    original = implicit.Steps.__init__
    with monkeypatch.context() as patch:
        patch.setattr(implicit.Steps, "__init__", lambda self, problem: (original(self, problem), made.append(self))[0])
        solved(p)
    return made[0]


def test_a_sample_whose_matrix_is_singular_takes_another_step():
    # 1 / (h gamma) - J is zero at the first step of the second sample
    def f(t, y, p, xp):
        return [p[0] * y[0], *(-y[i] for i in range(1, N))]

    h = 0.1
    p = Ensemble(np.array([[1.0, 1.0 / (h * 0.25), 2.0]]))
    made = ode.solve(f, np.ones(N), (0.0, 0.2), p=p, method="rodas4", first_step=h, rtol=1e-7)
    assert np.allclose(made.y.samples[0], np.exp(0.2 * p.samples[0]), rtol=1e-5)
    alone = ode.solve(f, np.ones(N), (0.0, 0.2), p=p.samples[0, :1], method="rodas4", first_step=h, rtol=1e-7)
    assert np.array_equal(alone.y.samples[:, 0], made.y.samples[:, 0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("m", [2, 4, 6, 8, 16])
def test_roots_are_those_of_arrays(m, dtype):
    """By way of a step's control: the proposed length is h times the root of the squared norm of the error."""
    rng, S = np.random.default_rng(m), 50
    square = (10.0 ** rng.uniform(-12, 12, S)).astype(dtype)
    square[:3] = np.nan, np.inf, 0.0
    ones = np.ones(S, dtype)
    now = implicit.Active(
        ids=np.arange(S), t=0 * ones, y=np.zeros((1, S), dtype), h=0.5 * ones, p=np.zeros((0, S), dtype), t0=0 * ones,
        t1=100 * ones, direction=ones, rtol=ones, atol=ones[None], longest=np.inf * ones, most=1000 * ones,
        t_eval=np.zeros((0, S), dtype), n_steps=0 * ones, n_rejected=0 * ones, rejected=0 * ones,
        events=np.zeros((0, S), dtype), slope=np.zeros((0, S), dtype),
    )  # fmt: skip
    plan = control.Plan.empty(S, np.dtype(dtype))
    numbers = control.control_numbers(np.dtype(dtype), m, 1.01, 10.0, (0.9, 0.2, 10.0))
    control.next_steps(plan, np.zeros(S, np.int8), now, numbers, False)
    assert control.judge(plan, square, now, numbers, m, False) == 0
    lowest, highest = (0.9 / 10.0) ** m, (0.9 / 0.2) ** m
    bounded = np.where(square <= highest, np.maximum(square, lowest), highest).astype(dtype)
    assert np.array_equal(plan.proposed, plan.h * (0.9 * inverse_root(bounded, m, np)))
    assert np.array_equal(plan.accepted, square <= 1.0)


@pytest.mark.parametrize("span", [(0.0, 1.0), (1.0, 0.0)])
def test_every_output_time_within_a_step_is_found(span):
    """One, several, equal ones, those at the ends of the run and of steps."""
    times = np.sort(np.array([0.0, 0.25, 0.25, 0.25 + 1e-9, 0.5, 0.999, 1.0]))[:: 1 if span[0] == 0.0 else -1]
    rates = Ensemble(np.linspace(0.5, 1.0, 4)[None])
    made = ode.solve(lambda t, y, p, xp: [-p[0] * y[i] for i in range(N)], np.ones(N), span, p=rates,
                     method="rodas4", t_eval=times, max_step=0.25, rtol=1e-8, atol=1e-10)  # fmt: skip
    expected = np.exp(-rates.samples[0] * (times - span[0])[:, None])
    assert np.allclose(made.y.samples[:, 7], expected, rtol=1e-6)


A = np.random.default_rng(3).normal(size=(40, 40)) / np.sqrt(40) - np.eye(40)


def coupled(t, y, p, xp):
    return p[0] * (xp.asarray(A) @ y) + t


LONE = {
    "no output": {},
    "times": {"t_eval": np.linspace(0.0, 2.0, 5)},
    "events": {"events": lambda t, y, p, xp: y[0] - y[1], "max_roots": 4},
    "too many steps": {"max_steps": 4},
    "a tolerance of each unknown": {"atol": np.linspace(1e-8, 1e-5, 40)},
}


@pytest.mark.parametrize("case", LONE)
@pytest.mark.parametrize("method", ["tsit5", "dop853"])
def test_a_lone_sample_of_an_explicit_pair_has_the_bits_of_its_place(case, method):
    p = np.linspace(1.0, 1.3, 3)

    def solved(p):
        return ode.solve(coupled, np.linspace(1.0, 2.0, 40), (0.0, 2.0), p=Ensemble(p[None]), method=method,
                         rtol=1e-4, **LONE[case])  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ode.OdeWarning)
        whole, alone = solved(p), solved(p[1:2])
    assert alone.y_reached.samples[..., 0].tobytes() == whole.y_reached.samples[..., 1].tobytes()
    assert alone.y.samples[..., 0].tobytes() == whole.y.samples[..., 1].tobytes()
    assert (alone.n_steps[0], alone.n_rejected[0]) == (whole.n_steps[1], whole.n_rejected[1])
    assert alone.status[0] == whole.status[1]
    for ours, theirs in zip(alone.t_events, whole.t_events):
        assert ours.samples[..., 0].tobytes() == theirs.samples[..., 1].tobytes()


@pytest.mark.parametrize("f, method, name", [(forced, "rodas4", "implicit"), (coupled, "tsit5", "explicit")])
def test_python_has_no_step_of_a_lone_sample_but_the_last(f, method, name, monkeypatch):
    calls, module = [], {"implicit": implicit, "explicit": explicit}[name]
    kernel = "steps_alone" if name == "implicit" else "pair_alone"
    original = getattr(module, kernel)
    monkeypatch.setattr(module, kernel, lambda *given: (calls.append(1), original(*given))[1])
    made = ode.solve(f, np.linspace(1.0, 2.0, N if f is forced else 40), (0.0, 0.5), p=[1.0], method=method, rtol=1e-7)
    assert made.n_steps[0] > 3 and len(calls) == 1


def test_a_nan_of_a_lone_sample_ends_it_as_in_company():
    def f(t, y, p, xp):
        return [p[0] * xp.sqrt(0.1 - t) - y[i] * y[(i + 1) % N] for i in range(N)]

    p = np.array([1.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ode.OdeWarning)
        whole, alone = (ode.solve(f, np.ones(N), (0.0, 0.2), p=Ensemble(each[None]), method="rodas4", rtol=1e-3)
                        for each in (p, p[1:]))  # fmt: skip
    assert whole.status[1] == alone.status[0] != 1
    assert alone.y_reached.samples[:, 0].tobytes() == whole.y_reached.samples[:, 1].tobytes()
    assert alone.n_steps[0] == whole.n_steps[1]
