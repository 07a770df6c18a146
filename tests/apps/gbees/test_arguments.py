"""Functions of the caller's that do not suit, and how results of a run show themselves."""

import numpy as np
import pytest

from ensemble.apps.gbees import Drift, Gbees

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
    with pytest.raises(ValueError, match=r"drift must not depend on t unless it is said to; .*time_varying=True"):
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
        ((turning, (1.0,), ("k", "c")), "names must be one a parameter, or none; got 2 for 1 parameters"),
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
