"""Samples dealt to ranks: the bits of one call, whatever the number of ranks."""

import warnings

import numpy as np
import pytest

from ensemble import Ensemble, SampleSet, ode
from ensemble.apps.gbees import Drift, Gbees, GridWarning
from ensemble.distributed import farm, serial


def lorenz(t, y, p, xp):
    return [10.0 * (y[1] - y[0]), y[0] * (p[0] - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]]


def blow_up(t, y, p, xp):
    return [p[0] * y[0] * y[0]]


def noisy(t, y, p, xp):
    return [0.1 * y[0]]


def results(run, n):
    """Results of several kinds by name; `run` is `farm` of a communicator, or a call."""
    rho = Ensemble(np.linspace(20.0, 30.0, n), SampleSet(weights=np.arange(1.0, n + 1)))
    growth = Ensemble(np.linspace(-1.0, 2.0, n))
    found = {}
    for name, method in (("tsit5", "tsit5"), ("rodas4", "rodas4")):
        found[name] = run(lambda p, m=method: ode.solve(lorenz, [1.0, 1.0, 1.0], (0.0, 1.0), p=[p], method=m), rho)
    found["times"] = run(lambda p: ode.solve(lorenz, [1.0, 1.0, 1.0], (0.0, 1.0), p=[p], t_eval=[0.5, 1.0]), rho)
    found["fails"] = run(lambda p: ode.solve(blow_up, [1.0], (0.0, 1.0), p=[p], max_steps=200), growth)
    found["noise"] = run(
        lambda p: ode.solve(
            noisy, [1.0 + 0.0 * p], (0.0, 1.0), method="euler-maruyama", step=0.1, noise=lambda t, y, p, xp: [y[0]],
            seed=5,
        ),
        growth,
    )  # fmt: skip
    found["events"] = run(
        lambda p: ode.solve(
            lorenz, [1.0, 1.0, 1.0], (0.0, 1.0), p=[p], events=lambda t, y, p, xp: y[0] - 10.0
        ),
        rho,
    )  # fmt: skip
    return found


def bits(found):
    """All numbers of results, as bytes."""
    said = {}
    for name, result in found.items():
        arrays = [result.y.samples, result.status, result.n_steps, result.n_rejected, result.t_reached.samples,
                  result.y_reached.samples, result.n_events, *(e.samples for e in result.t_events)]  # fmt: skip
        said[name] = [np.ascontiguousarray(a).tobytes() for a in arrays], result.summary, np.shape(result.t)
        said[name] += (None if result.y.sample_set is None else result.y.sample_set.weights.tolist(),)
    return said


def farmed(comm, n):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ode.OdeWarning)
        return bits(results(lambda function, *samples: farm(comm, function, *samples), n))


@pytest.fixture(scope="module")
def plain():
    kept = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ode.OdeWarning)
        for n in (2, 7):
            kept[n] = bits(results(lambda function, *samples: function(*samples), n))
    assert "samples" in kept[7]["fails"][1]
    return kept


@pytest.mark.parametrize("ranks", [2, 3])
def test_ensembles_of_differential_equations_have_the_bits_of_one_call(mpi, plain, ranks):
    for n in (7, 2):  # and ranks without a sample
        for told in mpi(farmed, ranks, n, limit=200.0):
            assert told == plain[n]


def blowing_up(x, t, xp, a):
    return 1.0, xp.log(a - x[0])  # not finite from x[0] = a on


def densities(comm, n):
    """Means, failures and messages of GBEES runs, one of which fails."""
    means, poles = Ensemble(np.stack([np.linspace(0.5, 0.7, n), np.full(n, 0.5)])), np.full(n, 50.0)
    poles[n // 2] = 1.2

    def run(mean, pole):
        grid = Gbees(Drift(blowing_up, (pole,), ("a",)), mean, [0.01, 0.01], threshold=1e-4)
        grid.advance(1.0)
        return grid.mean(), grid.failed, list(grid.messages)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridWarning)
        return farm(comm, run, means, Ensemble(poles))


def test_gbees_runs_have_the_bits_of_one_call(mpi):
    mean, failed, messages = densities(serial(), 5)
    assert failed.tolist() == [False, False, True, False, False] and len(messages) == 5
    for got, lost, texts in mpi(densities, 2, 5, limit=200.0):
        np.testing.assert_array_equal(got.samples, mean.samples)
        np.testing.assert_array_equal(lost, failed)
        assert texts == messages


def joins(comm):
    x = Ensemble(np.arange(5.0))
    by_number = farm(comm, lambda own: (own**2, [f"sample {k}" for k in own]), n_samples=5)
    named = farm(comm, lambda x: {"twice": 2.0 * x, "same": Ensemble(np.ones(1)), "unit": "m", "nan": np.nan}, x)
    return by_number[0].tolist(), by_number[1], named["twice"].samples.tolist(), named["same"].n_samples, named["unit"]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_results_are_joined_by_their_kind(mpi, ranks):
    expected = [0, 1, 4, 9, 16], [f"sample {k}" for k in range(5)], [0.0, 2.0, 4.0, 6.0, 8.0], 1, "m"
    found = mpi(joins, ranks) if ranks > 1 else [joins(serial())]
    assert all(told == expected for told in found)


def wrong(comm):
    x = Ensemble(np.arange(5.0))
    calls = [
        lambda: farm(comm, lambda x: comm.rank, x),
        lambda: farm(comm, lambda x: np.zeros(3), x),
        lambda: farm(comm, lambda x: [1], x),
        lambda: farm(comm, lambda x: 1 / (comm.rank - 1), x),
        lambda: farm(comm, lambda x: x, 1.0),
        lambda: farm(comm, lambda x: x, x, Ensemble(np.arange(4.0))),
        lambda: farm(comm, lambda x: x, Ensemble(np.arange(4.0 + comm.rank))),
        lambda: farm(comm, lambda own, x: x, x, n_samples=6),
    ]
    said = []
    for call in calls:
        try:
            call()
            said.append("")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def test_what_does_not_fit_is_said_on_all_ranks(mpi):
    first, second = mpi(wrong, 2)
    assert first == second
    for text, start in zip(first, (
        "ValueError: farm: the result must be equal on all ranks; got 0 and 1. Return an Ensemble",
        "ValueError: farm: the result must have its last axis for the samples",
        "ValueError: farm: the result must have one entry for each sample; got [1, 1] for [2, 3].",
        "ZeroDivisionError",
        "TypeError: farm: samples must have an Ensemble of several samples; got a float",
        "ValueError: farm: samples must have one number of samples; got [4, 5]",
        "ValueError: farm: the number of samples must be the same on every rank; got 4 on rank 0, 5 on rank 1",
        "ValueError: farm: n_samples must be that of the Ensembles, [5]; got 6",
    ), strict=True):  # fmt: skip
        assert text.startswith(start), text
