"""Models and distributions handed to the real packages, and taken from them."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble.uq import adapters
from tests.uq.adapters.served import beam, inputs


def both(x):
    """A number and a vector, from a number, a vector, a field and a constant."""
    total = x.v[0] + 2.0 * x.v[1]
    return {"sum": x.a * x.k + total, "field": x.kappa(np.array([[0.25], [0.75]]))}


INPUTS = en.Inputs(
    a=stats.norm(1.0, 0.5), k=3.0, v=en.uq.Vector(stats.uniform(), 2),
    kappa=en.fields.KarhunenLoeve.exponential([(0.0, 1.0)], 0.5, 3, mean=1.0, std=0.2),
)  # fmt: skip


@pytest.mark.parametrize("ensemble_size", [1, 3, 32])
def test_an_array_function_gives_what_the_model_gives(ensemble_size):
    function = adapters.ArrayFunction(both, INPUTS, ensemble_size=ensemble_size)
    assert function.columns == ("a", "v[0]", "v[1]", "kappa[0]", "kappa[1]", "kappa[2]")
    assert function.values == ("sum", "field[0]", "field[1]")
    x = INPUTS.samples(40, sampler="monte_carlo", seed=31337)
    points = np.concatenate([x.a.samples[None], x.v.samples, x.kappa.coefficients.samples]).T
    expected = both(x)
    assert np.array_equal(function(points)[:, 0], expected["sum"].samples)
    assert np.array_equal(function(points)[:, 1:].T, expected["field"].samples)


def test_chosen_outputs_come_in_their_order():
    function = adapters.ArrayFunction(both, INPUTS, ["field"])
    assert function.values == ("field[0]", "field[1]")


def test_points_of_the_cube_go_through_the_inverses():
    function = adapters.ArrayFunction(lambda x: x.a, en.Inputs(a=stats.expon()))
    u = np.array([[0.1], [0.9]])
    assert np.array_equal(function.from_uniform(u), stats.expon().ppf(u))


def test_failed_samples_are_nan_and_harm_no_other():
    def model(x):
        x.fail(x.a > 2.0, "too large")
        if x.n_samples > 1 and bool(en.any_sample(x.a > 3.0)):
            raise ArithmeticError("no")
        return x.a * 1.0

    function = adapters.ArrayFunction(model, en.Inputs(a=stats.norm()), ensemble_size=4)
    found = function(np.array([[0.5], [3.5], [1.0], [2.5], [-1.0]]))[:, 0]
    assert np.array_equal(found, [0.5, np.nan, 1.0, np.nan, -1.0], equal_nan=True)


@pytest.mark.parametrize(
    "points, text",
    [
        (np.ones(6), "have one row per sample and the columns a, v"),
        (np.ones((2, 5)), r"shape \(2, 5\)"),
        (np.full((2, 6), np.nan), "points must be finite"),
    ],
)
def test_points_of_the_wrong_kind_are_refused(points, text):
    with pytest.raises(ValueError, match=text):
        adapters.ArrayFunction(both, INPUTS)(points)


def test_models_that_give_nothing_are_refused():
    with pytest.raises(ValueError, match="succeed at the medians of the inputs; got ValueError: no"):
        adapters.ArrayFunction(raising, INPUTS)
    with pytest.raises(ValueError, match="outputs must be one of 'sum', 'field'; got 'none'"):
        adapters.ArrayFunction(both, INPUTS, ["none"])
    with pytest.raises(TypeError, match="model must be callable"):
        adapters.ArrayFunction(3, INPUTS)
    with pytest.raises(TypeError, match="inputs must be Inputs"):
        adapters.ArrayFunction(both, {"a": 1})
    with pytest.raises(ValueError, match="output 'y' must be real"):
        adapters.ArrayFunction(lambda x: x.a * 1j, en.Inputs(a=stats.norm()))


def raising(x):
    raise ValueError("no")


def test_openturns_propagates_a_sample_through_the_model():
    import openturns as ot

    calls = []

    def model(x):
        calls.append(x.n_samples)
        return {"tip": x.load**3 / x.stiffness}

    given = en.Inputs(load=stats.norm(1.0, 0.2), stiffness=stats.uniform(2.0, 2.0))
    function = adapters.to_openturns(model, given, ensemble_size=50)
    distribution = ot.JointDistribution([ot.Normal(1.0, 0.2), ot.Uniform(2.0, 4.0)])
    points = distribution.getSample(100)
    found = np.asarray(function(points))[:, 0]
    assert np.array_equal(found, np.asarray(points)[:, 0] ** 3 / np.asarray(points)[:, 1])
    assert calls == [1, 50, 50]
    assert list(function.getInputDescription()) == ["load", "stiffness"]
    assert list(function.getOutputDescription()) == ["tip"]
    assert function([2.0, 4.0])[0] == 2.0


def test_a_distribution_of_openturns_is_an_input():
    import openturns as ot

    x = en.Inputs(a=adapters.from_openturns(ot.Gumbel(2.0, 0.5))).samples(256, seed=5)
    assert stats.kstest(x.a.samples, stats.gumbel_r(0.5, 2.0).cdf).pvalue > 0.5


def test_a_distribution_of_chaospy_is_an_input():
    import chaospy

    x = en.Inputs(a=adapters.from_chaospy(chaospy.Gamma(2.0, 3.0))).samples(256, seed=5)
    assert stats.kstest(x.a.samples, stats.gamma(2.0, scale=3.0).cdf).pvalue > 0.5


@pytest.mark.parametrize(
    "adapter, distribution, error, text",
    [
        (adapters.from_chaospy, 3.0, TypeError, "be of chaospy; got a float"),
        (adapters.from_openturns, 3.0, TypeError, "be of OpenTURNS; got a float"),
        (adapters.from_openturns, "joint", ValueError, "be of one number; got 2 numbers"),
    ],
)
def test_other_distributions_are_refused(adapter, distribution, error, text):
    if distribution == "joint":
        import openturns as ot

        distribution = ot.Normal(2)
    with pytest.raises(error, match=text):
        adapter(distribution)


def test_chaospy_fits_polynomials_to_the_model():
    import chaospy

    joint = chaospy.J(chaospy.Uniform(-1.0, 1.0), chaospy.Uniform(-1.0, 1.0))
    nodes = joint.sample(64, rule="sobol")
    given = en.Inputs(a=adapters.from_chaospy(joint[0]), b=adapters.from_chaospy(joint[1]))
    function = adapters.ArrayFunction(lambda x: {"y": x.a + 3.0 * x.b**2}, given)
    fitted = chaospy.fit_regression(chaospy.generate_expansion(2, joint), nodes, function(nodes.T))
    assert float(np.ravel(chaospy.E(fitted, joint))[0]) == pytest.approx(1.0, abs=1e-12)
    assert float(np.ravel(chaospy.Var(fitted, joint))[0]) == pytest.approx(1.0 / 3.0 + 9.0 * 4.0 / 45.0, abs=1e-12)


def test_salib_finds_the_indices_of_ishigami():
    from SALib.analyze import sobol as analyze
    from SALib.sample import sobol as sample

    angle = stats.uniform(-np.pi, 2.0 * np.pi)
    given = en.Inputs(a=angle, b=angle, c=angle)
    xp = en.xp

    def ishigami(x):
        return xp.sin(x.a) + 7.0 * xp.sin(x.b) ** 2 + 0.1 * x.c**4 * xp.sin(x.a)

    problem = adapters.to_salib(given)
    points = sample.sample(problem, 1024, calc_second_order=False, seed=41)
    values = adapters.ArrayFunction(ishigami, given, ensemble_size=256).from_uniform(points)[:, 0]
    found = analyze.analyze(problem, values, calc_second_order=False, seed=41)
    assert np.allclose(found["S1"], [0.3139, 0.4424, 0.0], atol=0.02)
    assert np.allclose(found["ST"], [0.5576, 0.4424, 0.2437], atol=0.02)


def test_salib_takes_independent_inputs_only():
    with pytest.raises(ValueError, match="be independent; got correlated ones"):
        adapters.to_salib(en.Inputs(a=stats.norm(), b=stats.norm(), correlation={("a", "b"): 0.5}))


def test_vectors_are_groups_of_salib():
    assert adapters.to_salib(INPUTS) == {
        "num_vars": 6, "names": ["a", "v[0]", "v[1]", "kappa[0]", "kappa[1]", "kappa[2]"],
        "bounds": [[0.0, 1.0]] * 6, "groups": ["a", "v", "v", "kappa", "kappa", "kappa"],
    }  # fmt: skip


@pytest.fixture(scope="module")
def server():
    """The address of a server of UM-Bridge with the beam of `served`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"PYTHONPATH": str(Path(en.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.uq.adapters.served", str(port)], env=environment, stdout=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    end = time.monotonic() + 60.0
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield url
    process.kill()
    process.wait()


@pytest.mark.parametrize("workers", [1, 4])
def test_a_model_behind_um_bridge_and_back_is_the_model(server, workers):
    model = adapters.from_um_bridge(server, "beam", outputs=["tip", "line"], workers=workers)
    assert model.input_sizes == [1, 2] and model.output_sizes == [1, 3]
    far = en.propagate(model, inputs, 64, seed=17, progress=False)
    near = en.propagate(beam, inputs, 64, seed=17, progress=False, on_failure="retry")
    assert far.n_failed == near.n_failed > 0 and np.array_equal(far.failed, near.failed)
    assert np.array_equal(far.values("tip"), near.values("tip"), equal_nan=True)
    assert np.array_equal(far.values("line"), near.values("line"), equal_nan=True)


def test_um_bridge_names_what_is_wrong(server):
    with pytest.raises(ValueError, match="name must be one of beam; got 'bean'"):
        adapters.from_um_bridge(server, "bean")
    with pytest.raises(ValueError, match=r"name the 2 vectors that the server gives; got \['tip'\]"):
        adapters.from_um_bridge(server, "beam", outputs=["tip"])
    with pytest.raises(ConnectionError, match="be that of a running server"):
        adapters.from_um_bridge("http://127.0.0.1:9", "beam")
    model = adapters.from_um_bridge(server, "beam", inputs=["load"])
    with pytest.raises(ValueError, match=r"have 3 numbers, the vectors \[1, 2\] of the server; got 1"):
        model(inputs.samples(2, sampler="monte_carlo", seed=3))


def test_errors_of_a_server_of_um_bridge_are_its_own(server):
    model = adapters.from_um_bridge(server, "beam", outputs=["tip", "line"])
    result = en.propagate(model, inputs, 64, seed=17, progress=False)
    reason = result.reasons[int(np.flatnonzero(result.failed)[0])]
    assert "RuntimeError: from_um_bridge: the server must answer" in reason and "status 500" in reason
    assert f"{server}/Evaluate of model 'beam'" in reason and "JSON" not in reason
    model.name = "bean"
    with pytest.raises(en.uq.SampleError, match=r"status 400 from .*ModelNotFound: Model bean not found"):
        en.propagate(model, inputs, 64, seed=17, progress=False)


def test_our_server_of_um_bridge_listens_to_this_machine_alone(server):
    import socket

    port = int(server.rsplit(":", 1)[1])
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in others:
        with pytest.raises(OSError), socket.create_connection((address, port), timeout=2.0):
            pass
    with socket.create_connection(("127.0.0.1", port), timeout=2.0):
        pass


@pytest.mark.parametrize("options", [{"port": 0}, {"port": 70000}, {"max_workers": 0}, {"host": 3}])
def test_a_server_needs_an_address_of_its_own(options):
    with pytest.raises((ValueError, TypeError), match="serve_um_bridge"):
        adapters.serve_um_bridge([], **options)
