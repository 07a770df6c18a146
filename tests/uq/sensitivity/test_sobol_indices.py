"""Sobol' indices of models: known ones, intervals, groups, stores, failures, errors."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import xp
from tests.uq.sensitivity.problems import (
    G_FIRST,
    G_TOTAL,
    ISHIGAMI_FIRST,
    ISHIGAMI_TOTAL,
    ISHIGAMI_VARIANCE,
    g_function,
    g_inputs,
    ishigami,
    ishigami_inputs,
)

PROBLEMS = {
    "ishigami": (ishigami, ishigami_inputs, ISHIGAMI_FIRST, ISHIGAMI_TOTAL),
    "g": (g_function, g_inputs, G_FIRST, G_TOTAL),
}


def indices_of(name="ishigami", n=64, **options):
    model, inputs, _, _ = PROBLEMS[name]
    return en.sobol_indices(model, inputs(), n, **({"seed": 40617, "progress": False, "ensemble_size": 64} | options))


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("sampler", ["sobol", "halton", "monte_carlo"])
def test_indices_are_near_the_known_ones(name, sampler):
    indices = indices_of(name, 2048, sampler=sampler, ensemble_size=2048)
    for kind, known in zip(("first", "total"), PROBLEMS[name][2:]):
        low, high = indices.interval("y", kind)
        half = 0.5 * (high - low)
        assert np.all(np.abs(0.5 * (low + high) - known) <= 2.5 * half)
        assert np.all(half < (0.15 if sampler == "monte_carlo" else 0.07))


def coverage(name, n, repeats):
    inside = []
    for seed in range(repeats):
        indices = indices_of(name, n, seed=52000 + seed, ensemble_size=n * 8)
        for kind, known in zip(("first", "total"), PROBLEMS[name][2:]):
            low, high = indices.interval("y", kind)
            inside.append((low <= known) & (known <= high))
    return float(np.mean(inside))


@pytest.mark.slow
def test_intervals_hold_the_indices_about_as_often_as_they_say():
    assert 0.88 <= coverage("ishigami", 256, 60) <= 0.99  # 360 answers, of which those of a repeat depend


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("n", [256, 1024])
def test_intervals_hold_the_indices_as_often_as_they_say(name, n):
    assert 0.93 <= coverage(name, n, 1000) <= 0.97


def test_salib_and_scipy_find_the_same_on_ishigami():
    sobol = pytest.importorskip("SALib.analyze.sobol")
    from SALib.sample import sobol as sample

    problem = {"num_vars": 3, "names": ["x1", "x2", "x3"], "bounds": [[-np.pi, np.pi]] * 3}
    points = sample.sample(problem, 1024, calc_second_order=False, seed=31)
    values = (
        1.0 * np.sin(points[:, 0]) + 7.0 * np.sin(points[:, 1]) ** 2 + 0.1 * points[:, 2] ** 4 * np.sin(points[:, 0])
    )
    theirs = sobol.analyze(problem, values, calc_second_order=False, num_resamples=10, seed=7)
    scipys = stats.sobol_indices(
        func=lambda x: np.sin(x[0]) + 7.0 * np.sin(x[1]) ** 2 + 0.1 * x[2] ** 4 * np.sin(x[0]),
        n=1024, dists=[stats.uniform(-np.pi, 2.0 * np.pi)] * 3, rng=np.random.default_rng(83),
    )  # fmt: skip
    ours = indices_of(n=1024, ensemble_size=1024)
    np.testing.assert_allclose(ours.first["y"], theirs["S1"], atol=0.1)
    np.testing.assert_allclose(ours.total["y"], theirs["ST"], atol=0.1)
    np.testing.assert_allclose(ours.first["y"], scipys.first_order, atol=0.1)
    np.testing.assert_allclose(ours.total["y"], scipys.total_order, atol=0.1)


@pytest.mark.parametrize("ensemble_size", [1, 5, 17, "auto"])
def test_no_bit_depends_on_the_ensemble_size(ensemble_size):
    one, other = indices_of(), indices_of(ensemble_size=ensemble_size)
    np.testing.assert_array_equal(one.first["y"], other.first["y"])
    np.testing.assert_array_equal(one.interval("y", "total"), other.interval("y", "total"))


def test_workers_give_the_bits_of_the_serial_run():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as executor:
        other = indices_of(executor=executor, ensemble_size=7)
    np.testing.assert_array_equal(indices_of().total["y"], other.total["y"])


def test_fields_and_scalars_have_indices_in_their_shapes():
    def model(x):
        y = ishigami(x)["y"]
        return {"y": y, "field": xp.stack([xp.stack([y, x.x1]), xp.stack([x.x2, 2.0 * y])]), "x1": x.x1}

    indices = en.sobol_indices(model, ishigami_inputs(), 64, seed=40617, progress=False, ensemble_size=64)
    field = indices.first["field"]
    assert field.shape == (3, 2, 2)
    np.testing.assert_array_equal(field[:, 0, 0], indices_of().first["y"])
    np.testing.assert_array_equal(field[:, 0, 1], indices.first["x1"])
    np.testing.assert_array_equal(field[:, 1, 1], indices_of().first["y"])
    np.testing.assert_array_equal(indices.total["x1"][1:], [0.0, 0.0])


def test_a_vector_is_one_input_and_constants_are_none():
    inputs = en.Inputs(length=3.0, v=[stats.norm(), stats.norm()], w=stats.norm())
    indices = en.sobol_indices(
        lambda x: {"y": x.length * (x.v[0] + x.v[1]) + x.w}, inputs, 512, seed=7, progress=False, ensemble_size=512
    )
    assert indices.inputs == ("v", "w") and indices.n_samples == 4 * 512
    np.testing.assert_allclose(indices.first["y"], np.array([18.0, 1.0]) / 19.0, atol=0.03)


def test_mean_and_deviation_are_those_of_the_output():
    indices = indices_of(n=2048, ensemble_size=2048)
    assert float(indices.mean("y")) == pytest.approx(3.5, abs=0.05)
    assert float(indices.std("y")) ** 2 == pytest.approx(ISHIGAMI_VARIANCE, rel=0.03)


def failing(x):
    x.fail(x.x1 > 3.0, "x1 is large")
    return ishigami(x)


def test_failures_are_counted_told_and_bounded():
    indices = en.sobol_indices(failing, ishigami_inputs(), 256, seed=9, progress=False, ensemble_size=32)
    assert 0 < indices.n_used < indices.n_rows == 256 and indices.n_failed > 0
    assert "rows are left out" in indices.notes[0] and indices.notes[0] in repr(indices)
    for kind, known in (("first", ISHIGAMI_FIRST), ("total", ISHIGAMI_TOTAL)):
        low, high = indices.bounds("y", kind)
        assert np.all(low < known) and np.all(known < high)


def test_without_failures_bounds_are_the_indices():
    indices = indices_of()
    np.testing.assert_array_equal(indices.bounds("y"), [indices.first["y"]] * 2)
    assert indices.notes == ()


def test_a_constant_output_is_told():
    indices = en.sobol_indices(
        lambda x: {"y": 0.0 * x.x1 + 2.0}, ishigami_inputs(), 32, seed=9, progress=False, ensemble_size=32
    )
    assert np.all(np.isnan(indices.first["y"]))
    assert "output 'y' is constant" in repr(indices)


def test_a_study_is_extended_by_its_store(tmp_path):
    path = tmp_path / "study.zarr"
    indices_of(n=32, store=path, ensemble_size=24)
    extended = indices_of(n=64, store=path, resume=True, ensemble_size=7)
    np.testing.assert_array_equal(extended.first["y"], indices_of(n=64).first["y"])
    np.testing.assert_array_equal(extended.interval("y"), indices_of(n=64).interval("y"))


def test_an_interrupted_study_goes_on(tmp_path):
    calls = []

    def model(x):
        calls.append(x.n_samples)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return ishigami(x)

    options = {"seed": 40617, "progress": False, "store": tmp_path / "study.zarr", "ensemble_size": 32}
    with pytest.raises(KeyboardInterrupt, match=r"sobol_indices: \d+ of 320 samples were done"):
        en.sobol_indices(model, ishigami_inputs(), 64, **options)
    indices = en.sobol_indices(
        model, ishigami_inputs(), 64, resume="force", **options
    )  # the list is part of the digest
    assert sum(calls) == 64 * 5 + 32
    np.testing.assert_array_equal(indices.first["y"], indices_of().first["y"])


def test_the_table_shows_indices_and_intervals():
    text = repr(indices_of())
    assert "first" in text and "total" in text and "+-" in text and "x3" in text


def test_xarray_has_indices_and_intervals():
    pytest.importorskip("xarray")
    indices = indices_of()
    found = indices.to_xarray()
    np.testing.assert_array_equal(found.y_first.sel(input="x2"), indices.first["y"][1])
    np.testing.assert_array_equal(found.y_total_high, indices.interval("y", "total")[1])
    assert found.attrs["n_rows"] == 64


def test_the_aggregated_index_weighs_entries_by_variance():
    indices = en.sobol_indices(
        lambda x: {"y": xp.stack([3.0 * x.x1, x.x2])}, ishigami_inputs(), 256, seed=3, progress=False,
        ensemble_size=256,
    )  # fmt: skip
    np.testing.assert_allclose(indices.aggregated("y"), [0.9, 0.1, 0.0], atol=0.02)


def correlated():
    return en.Inputs(a=stats.norm(), b=stats.norm(), correlation={("a", "b"): 0.5})


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"inputs": correlated()}, ValueError, "inputs must be independent; got 1 correlated pair. .*shapley_effects"),
        ({"inputs": en.Inputs(a=2.0)}, ValueError, "have one that is not constant"),
        ({"inputs": 3}, TypeError, "inputs must be Inputs; got an int"),
        ({"model": 3}, TypeError, "model must be callable"),
        ({"n": 1}, ValueError, "n must be an integer of at least 2"),
        ({"level": 95}, ValueError, "level must be a number in"),
        ({"on_failure": "drop"}, ValueError, "on_failure must be one of"),
        ({"backend": "tape"}, ValueError, "backend must be one of"),
        ({"sampler": "grid"}, ValueError, "sampler must be one of"),
        ({"ensemble_size": 0}, ValueError, "ensemble_size must be an integer of at least 1"),
        ({"model": lambda x: {"y": x.x1 + 1j}}, TypeError, "output 'y' must be real; got dtype complex128"),
        ({"model": lambda x: {"y": x.x1 / 0.0}}, ValueError, "have a row without failures; got 320 failed of 320"),
    ],
)
def test_bad_arguments_are_refused(options, error, match):
    arguments = {"model": ishigami, "inputs": ishigami_inputs(), "n": 64, "seed": 5, "progress": False} | options
    arguments.setdefault("ensemble_size", 64)
    with np.errstate(all="ignore"), pytest.raises(error, match=match):
        en.sobol_indices(arguments.pop("model"), arguments.pop("inputs"), arguments.pop("n"), **arguments)


def test_samplers_of_a_fixed_number_of_points_are_refused():
    class Fixed(en.uq.MonteCarlo):
        extendable = False

    with pytest.raises(ValueError, match="sampler must give points without end"):
        indices_of(sampler=Fixed())


def test_an_unbalanced_number_of_rows_is_told():
    with pytest.warns(UserWarning, match="72 samples are not balanced"):
        indices_of(n=72)


@pytest.mark.parametrize("method", ["interval", "bounds", "mean", "std", "aggregated"])
def test_unknown_outputs_are_refused(method):
    with pytest.raises(KeyError, match=f"SobolIndices.{method}: name must be one of y"):
        getattr(indices_of(), method)("z")


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="kind must be one of 'first', 'total'"):
        indices_of().interval("y", "second")


def test_a_picture_of_several_outputs_needs_a_name():
    indices = en.sobol_indices(
        lambda x: {"y": x.x1, "z": x.x2}, ishigami_inputs(), 16, seed=3, progress=False, ensemble_size=80
    )
    with pytest.raises(ValueError, match=r"SobolIndices.plot: name must be one of 'y', 'z'; got None\."):
        indices.plot()


@pytest.mark.parametrize("exponent", [-1000, -550, -300, 300, 530, 1000])
def test_indices_do_not_depend_on_the_unit_of_an_output(exponent):
    """Squares of such values are beyond the range of float64."""
    inputs, unit = en.Inputs(a=stats.norm(), b=stats.uniform()), 2.0**exponent

    def model(x):
        return {"y": unit * (x.a + x.b), "z": x.a + x.b}

    found = en.sobol_indices(model, inputs, 64, seed=1, progress=False)
    for one, other in ((found.first, found.first), (found.total, found.total)):
        np.testing.assert_array_equal(one["y"], other["z"])
    np.testing.assert_array_equal(found.interval("y"), found.interval("z"))
    assert found.notes == ()
