"""Pictures of studies: what they draw, and what they refuse."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from scipy import stats

import ensemble as en
from ensemble import xp
from ensemble.uq.plots import plot_fan, plot_field, plot_histogram_with_interval, plot_indices, plot_scatter

TIMES = np.linspace(0.0, 1.0, 12)


def study(**options):
    inputs = en.Inputs(k=stats.lognorm(0.3), load=stats.norm(1.0, 0.2), c=2.0)

    def model(x):
        return {"tip": x.load / x.k, "curve": xp.stack([x.load * xp.exp(-x.k * t) + x.c for t in TIMES])}

    return en.propagate(model, inputs, 256, seed=30911, progress=False, ensemble_size=256, **options)


@pytest.fixture
def ax():
    return Figure().add_subplot()


def test_the_histogram_has_mean_and_interval(ax):
    result = study()
    assert result.plot.hist("tip", ax=ax) is ax
    assert ax.lines[0].get_xdata()[0] == pytest.approx(float(result.mean("tip")))
    low, high = result.confidence_interval("tip")
    band = ax.patches[-1].get_extents().transformed(ax.transData.inverted())
    assert (band.x0, band.x1) == (pytest.approx(low), pytest.approx(high))
    assert ax.get_xlabel() == "tip"


def test_samples_that_are_not_finite_are_left_out_of_the_histogram(ax):
    y = en.Ensemble(np.array([1.0, np.nan, 3.0]))
    plot_histogram_with_interval(y, ax=ax)
    assert ax.lines[0].get_xdata()[0] == 2.0


@pytest.mark.parametrize("keep", ["all", "statistics"])
def test_the_fan_has_the_quantiles(ax, keep):
    result = study(keep=keep)
    result.plot.fan("curve", TIMES, levels=(0.9, 0.5), ax=ax)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), result.quantile("curve", 0.5))
    widest = ax.collections[0].get_paths()[0].vertices
    assert widest[:, 1].min() == pytest.approx(float(result.quantile("curve", 0.05).min()))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["90 %", "50 %", "median"]


def test_the_fan_of_an_ensemble_is_that_of_the_study(ax):
    result = study()
    plot_fan(result.samples("curve"), ax=ax)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), result.quantile("curve", 0.5))


def test_the_scatter_matrix_has_random_inputs_and_scalar_outputs():
    result = study()
    figure = result.plot.scatter(figure=Figure())
    assert len(figure.axes) == 9
    assert [ax.get_ylabel() for ax in figure.axes[::3]] == ["k", "load", "tip"]
    points = figure.axes[1].collections[0].get_offsets()
    np.testing.assert_array_equal(points[:, 0], result.inputs.load.samples)
    np.testing.assert_array_equal(points[:, 1], result.inputs.k.samples)


def test_chosen_names_are_scattered():
    figure = study().plot.scatter(["load", "tip"], figure=Figure())
    assert [ax.get_xlabel() for ax in figure.axes[2:]] == ["load", "tip"]


def test_a_line_has_a_band_of_one_deviation():
    result = study()
    figure = result.plot.field("curve", points=TIMES, figure=Figure(), labels=("t", "u"))
    (ax,) = figure.axes
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), result.mean("curve"))
    top = ax.collections[0].get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(float((result.mean("curve") + result.std("curve")).max()))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("t", "u")


def test_a_grid_has_two_maps():
    mean = np.arange(12.0).reshape(3, 4)
    figure = plot_field(mean, 0.1 * mean, points=(np.arange(4.0), np.arange(3.0)), figure=Figure())
    mean_axes, std_axes = figure.axes[:2]
    np.testing.assert_array_equal(mean_axes.collections[0].get_array().reshape(3, 4), mean)
    assert std_axes.get_title() == "standard deviation"


def test_scattered_points_are_triangulated(rng):
    points = rng.random((30, 2))
    figure = plot_field(points[:, 0], points[:, 1], points=points, figure=Figure())
    np.testing.assert_array_equal(figure.axes[1].collections[0].get_array(), points[:, 1])


def test_bars_have_the_indices_and_their_intervals(ax):
    values = {
        "first": (np.array([0.3, 0.5]), np.array([0.1, 0.2])),
        "total": (np.array([0.4, 0.6]), np.full(2, np.nan)),
    }
    plot_indices(values, ["a", "b"], ax=ax)
    heights = [patch.get_height() for patch in ax.patches]
    assert heights == [0.3, 0.5, 0.4, 0.6]
    segments = ax.collections[0].get_segments()
    np.testing.assert_allclose([s[:, 1] for s in segments], [[0.2, 0.4], [0.3, 0.7]])
    assert len(ax.collections) == 1


def test_indices_of_a_field_are_lines_of_one_color_per_input(ax):
    values = {kind: (np.ones((2, 5)), np.ones((2, 5))) for kind in ("first", "total")}
    plot_indices(values, ["a", "b"], ax=ax)
    assert len(ax.lines) == 4 and to_rgba(ax.lines[0].get_color()) == to_rgba(ax.lines[2].get_color())


def test_results_draw_themselves(ax):
    indices = en.sobol_indices(lambda x: x.a, en.Inputs(a=stats.norm()), 16, seed=3, progress=False, ensemble_size=16)
    assert indices.plot(ax=ax) is ax


@pytest.mark.parametrize(
    ("draw", "match"),
    [
        (lambda: plot_fan(en.Ensemble(np.ones((3, 4))), levels=(0.5, 1.0)), "levels must lie between 0 and 1"),
        (lambda: plot_fan(en.Ensemble(np.ones(4))), "y must have 1 axis"),
        (
            lambda: plot_fan(en.Ensemble(np.ones((3, 4))), np.ones(2), ax=Figure().gca()),
            r"along must have shape \(3,\)",
        ),
        (lambda: plot_scatter({"a": np.ones(3)}), "values must be two or more; got 1"),
        (lambda: plot_scatter({"a": np.ones(3), "b": np.ones(4)}), "be vectors of one length"),
        (lambda: plot_field(np.ones(3), np.ones(4)), "be arrays of one shape"),
        (
            lambda: plot_field(np.ones(3), np.ones(3), points=np.ones(4), figure=Figure()),
            r"points must have shape \(3,\)",
        ),
        (lambda: plot_field(np.ones(3), np.ones(3), points=np.ones((4, 2)), figure=Figure()), r"have shape \(3, 2\)"),
        (
            lambda: plot_field(np.ones((3, 2)), np.ones((3, 2)), points=(np.ones(3), np.ones(3)), figure=Figure()),
            "be coordinates of 2 columns and 3 rows",
        ),
        (
            lambda: plot_indices({"first": (np.ones((2, 3, 4)),) * 2}, ["a", "b"]),
            "have one axis beside that of the inputs",
        ),
        (
            lambda: plot_indices({"first": (np.ones((2, 3)),) * 2}, ["a", "b"], along=np.ones(2), ax=Figure().gca()),
            r"along must have shape \(3,\)",
        ),
        (lambda: study().plot.hist(), "UqResult.plot.hist: name must be one of 'tip', 'curve'"),
        (lambda: study().plot.fan("tip"), "output 'tip' must have 1 axis"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, match):
    with pytest.raises(ValueError, match=match):
        draw()
