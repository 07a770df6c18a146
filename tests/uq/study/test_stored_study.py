"""`open_study`: what a store tells without the model."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en

INPUTS = en.Inputs(
    load=stats.norm(1.0, 0.2), stiffness=stats.lognorm(0.1, scale=3.0), v=en.uq.Vector(stats.uniform(), 2), fixed=2.0
)


def model(x):
    x.fail(x.load > 1.45, "too much load")
    return {"load": x.load / x.stiffness, "line": np.linspace(0.0, 1.0, 3) * (x.v[0] + x.fixed * x.v[1])}


def smooth(x):
    return {"load": x.load / x.stiffness, "line": np.linspace(0.0, 1.0, 3) * (x.v[0] + x.fixed * x.v[1])}


SAMPLERS = {
    "monte_carlo": (model, "monte_carlo", 64),
    "sobol": (model, "sobol", 64),
    "halton": (model, "halton", 60),
    "latin_hypercube": (model, "latin_hypercube", 64),
    "two scrambles": (model, en.uq.Sobol(replicates=2), 64),
    "gauss": (smooth, en.uq.Gauss(3), None),
    "sparse grid": (smooth, en.uq.SparseGrid(2), None),
    "points": (smooth, en.uq.Points(np.random.default_rng(5).random((20, 4)), weights=np.arange(1.0, 21.0)), None),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_statistics_are_those_of_the_study(tmp_path, name):
    function, sampler, n = SAMPLERS[name]
    made = en.propagate(function, INPUTS, n, sampler=sampler, seed=5, store=tmp_path / "run.zarr", progress=False)
    read = en.uq.open_study(tmp_path / "run.zarr")
    assert read.names == made.names and read.n_failed == made.n_failed and read.reasons == made.reasons
    for output in made.names:
        assert np.array_equal(read.mean(output), made.mean(output))
        assert np.array_equal(read.std(output), made.std(output))
        assert np.array_equal(read.values(output), made.values(output), equal_nan=True)
    assert read.no_interval() == made.no_interval()
    if not made.no_interval():
        assert np.array_equal(read.confidence_interval("line"), made.confidence_interval("line"))
    inputs = read.inputs
    for key in ("load", "stiffness", "v", "fixed"):
        assert np.array_equal(np.broadcast_to(made.inputs[key].samples, inputs[key].samples.shape), inputs[key].samples)


def test_the_dataset_is_that_of_the_study(tmp_path):
    made = en.propagate(model, INPUTS, 64, seed=5, store=tmp_path / "run.zarr", progress=False).to_xarray()
    read = en.uq.open_study(tmp_path / "run.zarr").to_xarray()
    assert read.equals(made) and set(read.coords) == set(made.coords)


def test_a_running_study_is_read(tmp_path):
    with en.plan(INPUTS, 64, seed=5, store=tmp_path / "run.zarr") as study:
        group = next(study.groups(16))
        study.tell(group, smooth(group.samples))
        read = en.uq.open_study(tmp_path / "run.zarr")
        assert (read.n, read.n_done) == (64, 16)
        assert read.mean("load") == study.result().mean("load")


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_study_that_was_closed_without_a_sample_is_read_and_goes_on(tmp_path, name):
    function, sampler, n = SAMPLERS[name]
    settings = {"sampler": sampler, "seed": 5, "store": tmp_path / "run.zarr"}
    for resume in (False, True):
        with en.plan(INPUTS, n, resume=resume, **settings):
            pass
        assert en.uq.open_study(tmp_path / "run.zarr").n_done == 0
    with en.plan(INPUTS, n, resume=True, **settings) as study:
        for group in study.groups(16):
            study.tell(group, function(group.samples))
    read = en.uq.open_study(tmp_path / "run.zarr")
    assert read.n_done == read.n
    np.testing.assert_array_equal(read.inputs["load"].samples, study.samples.take(read.ids)["load"].samples)


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(ValueError, match="be a stored study"):
        en.uq.open_study(tmp_path)
