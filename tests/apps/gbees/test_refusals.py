"""What `Gbees` refuses, and how; and how the parts of a run show themselves."""

import numpy as np
import pytest

from ensemble._backend import to_numpy
from ensemble.apps.gbees import Drift, Gbees, GridError, lorenz63
from ensemble.scalar import Ensemble
from tests.apps.gbees.problems import backend_of, build, oscillator

START = {"mean": [1.0, 0.5], "covariance": [0.04, 0.04], "threshold": 1e-4, "backend": "array"}


def turning(x, t, xp):
    return x[1], -x[0]


@pytest.mark.parametrize(
    "drift",
    [
        lambda x, t, xp: (x[1], -x[0] + xp.cos(t)),
        lambda x, t, xp: (x[1] * t, -x[0]),
        Drift(lambda x, t, xp, k: (t, k), (1.0,)),
    ],
)
def test_a_drift_that_varies_in_time_must_be_said_to(drift):
    with pytest.raises(ValueError, match=r"drift must not depend on t without time_varying=True; got one that changes"):
        Gbees(drift, **START)
    assert Gbees(drift, time_varying=True, **START).time == 0.0


def test_a_drift_without_a_value_at_the_mean_is_no_drift_in_time():
    with np.errstate(all="ignore"):  # the faces of its cells do not go through the mean
        run = Gbees(lambda x, t, xp: ((x[0] - 1.0) / (x[0] - 1.0), -x[0]), **START)
    assert run.n_cells > 0


def test_functions_of_the_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"Gbees: drift must take 2 scalars x, a time and .*got TypeError"):
        Gbees(lambda x, t: (x[1], -x[0]), **START)
    with pytest.raises(ValueError, match=r"Gbees: bounds must take n scalars x and a namespace.*got TypeError"):
        Gbees(turning, bounds=lambda x: x[0], **START)
    run = Gbees(turning, **START)
    with pytest.raises(ValueError, match=r"Gbees.update: h must take 2 scalars x and a namespace, and give 1; got"):
        run.update(lambda x: x[0], 1.0, 0.1)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ((1.0,), "function must be a function"),
        ((turning, {"k": 1.0}), "parameters must be a tuple of numbers or Ensembles; got a dict"),
        ((turning, (1.0,), ("k", "c")), "names must be one per parameter, or none; got 2 for 1 parameters"),
    ],
)
def test_a_drift_is_checked_when_it_is_made(arguments, text):
    with pytest.raises((TypeError, ValueError), match=text):
        Drift(*arguments)


def test_parts_of_a_run_are_one_line():
    run = Gbees(turning, **START)
    steps = run.advance(0.2)
    assert repr(steps).startswith(f"Steps({len(steps)} step") and repr(steps).endswith(f"{steps.cells.max():,} cells)")
    assert repr(run.advance(0.2)) == "Steps(none)"
    assert repr(run.cells()) == f"Cells({run.n_cells:,} cells, n=2, time=0.2)"
    assert repr(run.marginal(0)).startswith("Marginal(axes=(0,), shape=(") and repr(run.marginal(0)).endswith(
        "time=0.2)"
    )


def test_a_grid_that_outgrows_the_memory_says_so_and_stays(engine):
    def explosive(x, t, xp):
        return 20.0 * x[0], 20.0 * x[1]

    limit = 400_000.0
    run = Gbees(explosive, [0.1, 0.1], [0.04, 0.05], threshold=1e-9, memory_limit=limit, backend=backend_of(engine))
    with pytest.raises(MemoryError, match=r"grid must fit 0.0004 GB; got [\d,]+ cells of about \d+ bytes"):
        run.advance(10.0)
    assert 0.0 < run.time < 10.0
    assert float(np.sum(to_numpy(run.cells().probabilities))) == pytest.approx(1.0, abs=1e-12)
    before = run.state()
    with pytest.raises(MemoryError):
        run.advance(10.0)
    np.testing.assert_array_equal(run.state()["0/probabilities"], before["0/probabilities"])


def test_a_first_grid_that_does_not_fit():
    with pytest.raises(MemoryError, match=r"got 3,937,376,385,699,289 cells"):
        Gbees(lambda x, t, xp: [0.0] * 14, np.zeros(14), np.eye(14), threshold=1e-9)


def test_a_threshold_that_leaves_nothing(engine):
    run = build(engine, threshold=0.039, prune="parallel")
    before = run.state()

    def flattening(x, xp):  # all 169 cells become as likely as each other
        return 0.5 * ((x[0] - 0.8) ** 2 / 0.04 + (x[1] - 0.1) ** 2 / 0.05)

    with pytest.raises(GridError, match=r"threshold must leave some cells; got 0.039"):
        run.update_likelihood(flattening)
    np.testing.assert_array_equal(run.state()["0/probabilities"], before["0/probabilities"])


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"drift": 3.0}, "drift must be a function"),
        ({"drift": lambda x, t, xp: (x[1],)}, "drift must give 2 components, as the mean has; got 1"),
        ({"drift": lambda x, t, xp: (x[2], x[1])}, "drift must take 2 scalars x.*IndexError"),
        ({"drift": lambda x, t, xp: (xp.nan, x[1])}, "drift must be finite; got nan in component 0 at x = "),
        ({"mean": [0.0, np.nan]}, "mean must be finite"),
        ({"mean": 0.0}, r"mean must have shape \(n,\); got shape \(\)"),
        ({"mean": ["a", "b"]}, "mean must hold real numbers"),
        (
            {"covariance": [[1.0, 2.0], [2.0, 1.0]]},
            "covariance must be positive definite; got a smallest eigenvalue of -1",
        ),
        ({"covariance": [[1.0, 0.1], [0.2, 1.0]]}, "covariance must be symmetric; got entries that differ by 0.1"),
        ({"covariance": np.eye(3)}, r"covariance must be a number or have shape \(2,\) or \(2, 2\)"),
        ({"covariance": [1.0, 0.0]}, "covariance must be positive definite"),
        ({"factor": 0.0}, "factor must be above zero"),
        ({"factor": [1.0, 1.0, 1.0]}, r"factor must be a number or have shape \(2,\)"),
        ({"threshold": 0.0}, "threshold must be a finite number above zero"),
        ({"threshold": 1.0}, "threshold must be a probability below 1"),
        (
            {"threshold": 0.1},
            "threshold must leave active cells on the first grid; got 0.1, and the largest of 169 cells holds 0.0399",
        ),
        ({"time": np.nan}, "time must be finite"),
        ({"limiter": "koren"}, "limiter must be one of 'mc'"),
        ({"cfl": 1.5}, "cfl must be at most 1; got 1.5. Longer steps are not stable."),
        ({"prune_every": 0}, "prune_every must be an integer of at least 1"),
        ({"prune": "all"}, "prune must be one of 'sequential', 'parallel'"),
        ({"bounds": 1.0}, "bounds must be a function"),
        ({"bounds": lambda x, xp: xp.log(-1.0 - x[0] ** 2)}, "bounds must be finite"),
        ({"diffusion": [[1.0, 1.1], [1.1, 1.0]]}, "diffusion must be positive semidefinite; got a smallest .* of -0.1"),
        ({"diffusion": [1.0, -1.0]}, "diffusion must be positive semidefinite; got a smallest eigenvalue of -1"),
        ({"periods": [1.0]}, "periods must have 2 entries"),
        ({"periods": [0.0, None]}, "periods must be finite numbers above zero"),
        (
            {"periods": [0.2, None]},
            "periods must hold 3 cells, to half a cell; got 0.2 for coordinate 0, whose cells are 0.1 wide",
        ),
        ({"periods": [1.0, None], "rotate": True}, "periods must be None in a rotated grid"),
        ({"memory_limit": -1.0}, "memory_limit must be a finite number above zero"),
        ({"dtype": np.int64}, "dtype must be float64 or float32; got int64"),
        ({"backend": "torch"}, "backend must be one of 'numpy', 'array', 'cupy', or an Array API namespace"),
        ({"backend": 3}, "backend must be a name or an Array API namespace"),
    ],
)
def test_bad_arguments_are_named(arguments, text):
    given = {"drift": oscillator, "mean": [0.8, 0.1], "covariance": [0.04, 0.05], "threshold": 1e-4, **arguments}
    with pytest.raises((ValueError, TypeError), match=text):
        Gbees(given.pop("drift"), given.pop("mean"), given.pop("covariance"), **given)


@pytest.mark.parametrize("log_likelihood", [False, True])
def test_a_likelihood_that_is_no_number_is_said_with_its_place(engine, log_likelihood):
    run = build(engine)
    before = run.state()

    def undefined(x, xp):  # beyond half a deviation above the mean
        return xp.where(x[0] > 0.95, xp.nan * x[0], x[0])

    with pytest.raises(
        GridError, match=r"in every cell; got nan at x = \((1|0.99?9*), -0.57\d+\) and in \d+ other cells"
    ):
        run.update_likelihood(undefined) if log_likelihood else run.update(undefined, 0.8, 0.1)
    np.testing.assert_array_equal(run.state()["0/probabilities"], before["0/probabilities"])


@pytest.mark.parametrize("until", [-0.1, np.nan, np.inf])
def test_the_past_is_closed(until):
    with pytest.raises(ValueError, match=r"until must not lie in the past; got .* at time 0"):
        build().advance(until)


@pytest.mark.parametrize("broken", ["0/indices", "0/message", "n_samples"])
def test_an_incomplete_state_is_refused(broken):
    run = build()
    state = run.state()
    del state[broken]
    with pytest.raises(
        ValueError, match=f"state must hold all that Gbees.state gave; got no entry '{broken.split('/')[-1]}|{broken}"
    ):
        run.restore(state)


def test_a_state_of_another_problem_is_refused():
    other = Gbees(lorenz63, [0.0, 0.0, 0.0], np.eye(3), threshold=1e-3)
    with pytest.raises(ValueError, match="state must have 2 dimensions; got 3"):
        build().restore(other.state())


def test_the_sample_of_a_mean_that_is_not_finite_is_named():
    mean = Ensemble(np.array([[1.0, np.nan, 2.0], [0.0, 0.0, 0.0]]))
    with pytest.raises(ValueError, match="Gbees: mean must be finite; got NaN or infinity in sample 1"):
        Gbees(lambda x, t, xp: (x[1], -x[0]), mean, [0.04, 0.04], threshold=1e-5, backend="array")
