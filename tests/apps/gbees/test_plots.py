"""Surfaces whose area and volume are known; pictures that show what they are given."""

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

from ensemble.apps.gbees import legend_handles, plot_cells, plot_isosurfaces, plot_marginals, plot_region
from ensemble.apps.gbees.analysis.isosurface import isosurface
from ensemble.apps.gbees.analysis.monte_carlo import draw
from tests.apps.gbees.distributions import gaussian_cells


def area_and_volume(triangles):
    """Of a closed surface with normals pointing out."""
    normal = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    volume = np.sum(triangles[:, 0] * normal) / 6.0
    return 0.5 * np.linalg.norm(normal, axis=1).sum(), volume, normal.sum(axis=0)


def ball(n, radii=(1.0, 1.0, 1.0)):
    axes = [np.linspace(-2.1, 1.9, n) * r for r in radii]
    x, y, z = np.meshgrid(*axes, indexing="ij")
    return np.exp(-0.5 * ((x / radii[0]) ** 2 + (y / radii[1]) ** 2 + (z / radii[2]) ** 2)), axes


@pytest.mark.parametrize("n, tolerance", [(21, 0.02), (41, 0.006)])
def test_a_sphere_has_its_area_and_volume(n, tolerance):
    values, axes = ball(n)
    area, volume, rest = area_and_volume(isosurface(values, np.exp(-0.5), axes))
    np.testing.assert_allclose([area, volume], [4.0 * np.pi, 4.0 / 3.0 * np.pi], rtol=tolerance)
    np.testing.assert_allclose(rest, 0.0, atol=1e-12)  # closed


def test_an_ellipsoid_is_stretched_with_its_coordinates():
    values, axes = ball(31, (1.0, 2.0, 0.5))
    _, volume, _ = area_and_volume(isosurface(values, np.exp(-0.5), axes))
    np.testing.assert_allclose(volume, 4.0 / 3.0 * np.pi, rtol=0.01)


@given(st.integers(0, 2**32 - 1))
def test_every_surface_is_closed_and_its_normals_point_to_smaller_values(seed):
    values = np.random.default_rng(seed).random((4, 3, 5))
    triangles = isosurface(values, 0.5)
    _, volume, rest = area_and_volume(triangles)
    np.testing.assert_allclose(rest, 0.0, atol=1e-12)
    # Every edge belongs to one triangle in each direction.
    edges = np.concatenate([triangles[:, [i, (i + 1) % 3]] for i in range(3)]).reshape(-1, 6).round(9)
    back = edges.reshape(-1, 2, 3)[:, ::-1].reshape(-1, 6)
    one = np.unique(edges, axis=0, return_counts=True)
    other = np.unique(back, axis=0, return_counts=True)
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])
    assert volume > 0.0


def test_one_cell_makes_an_octahedron_or_the_like_around_it():
    triangles = isosurface(np.ones((1, 1, 1)), 0.5, (np.array([3.0]), np.array([4.0]), np.array([5.0])))
    np.testing.assert_allclose(triangles.reshape(-1, 3).mean(axis=0), [3.0, 4.0, 5.0], atol=0.3)
    assert np.all(np.abs(triangles - [3.0, 4.0, 5.0]) <= 0.5 + 1e-12)


def test_a_level_above_every_value_has_no_surface():
    assert isosurface(np.ones((3, 3, 3)), 2.0).shape == (0, 3, 3)


# --- pictures


def inked(figure):
    """How much of the picture is not white, once it is drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    return float(np.mean(np.any(pixels < 250, axis=2)))


CELLS = gaussian_cells([1.0, -2.0, 0.5], np.diag([1.0, 4.0, 0.25]), [0.5, 1.0, 0.25], reach=4.0)


def test_surfaces_of_two_distributions_share_their_axes():
    ax = Figure().add_subplot(projection="3d")
    other = gaussian_cells([9.0, -2.0, 0.5], np.eye(3), [0.5, 0.5, 0.5], reach=3.0)
    samples = draw(np.zeros(3), np.eye(3), 30, seed=2)
    plot_isosurfaces(CELLS, ax=ax, names=("a", "b", "c"), samples=samples)
    plot_isosurfaces(other, ax=ax, names=("a", "b", "c"), color="red")
    low, high = ax.get_xlim()
    assert low < -2.0 and high > 11.0
    assert ax.get_xlabel() == "a" and ax.get_zlabel() == "c" and len(ax.collections) == 6
    assert inked(ax.figure) > 0.02


def test_a_surface_holds_its_mass_and_the_legend_says_so():
    ax = Figure().add_subplot(projection="3d")
    fine = gaussian_cells(np.zeros(3), np.eye(3), [0.2, 0.2, 0.2], reach=4.0)
    plot_isosurfaces(fine, ax=ax, masses=(0.5, 0.9))
    radii = [np.linalg.norm(np.concatenate(surface._faces), axis=1).mean() for surface in ax.collections]
    # Roots of the chi-square distribution with three degrees of freedom at 0.9 and 0.5.
    np.testing.assert_allclose(radii, np.sqrt([6.2514, 2.3660]), rtol=0.02)
    handles = legend_handles((0.9, 0.5))
    assert [handle.get_label() for handle in handles] == ["50 % inside", "90 % inside"]
    alphas = [surface.get_facecolor()[0, 3] for surface in ax.collections]
    assert [handle.get_facecolor()[3] for handle in handles] == pytest.approx(alphas[::-1])


def test_axis_labels_stand_beside_the_numbers_and_not_on_them(monkeypatch):
    places, write = {}, Text.draw

    def noted(text, renderer):
        if text.get_text():
            places[text.get_text(), id(text)] = text.get_window_extent(renderer)
        write(text, renderer)

    monkeypatch.setattr(Text, "draw", noted)
    figure = Figure(figsize=(5.0, 4.6))
    ax = figure.add_subplot(projection="3d")
    small = gaussian_cells([1.001, 0.0, -0.0015], np.diag([1e-7, 1e-6, 1e-6]), [2e-4, 5e-4, 5e-4], reach=4.0)
    plot_isosurfaces(small, ax=ax, names=("x (LU)", "y (LU)", "x' (LU/TU)"))
    inked(figure)
    numbers = [box for (text, _), box in places.items() if text[-1].isdigit() and box.x0 > 1.0]  # not yet placed: at 0
    labels = [box for (text, _), box in places.items() if text.endswith(")")]
    assert len(labels) == 3 and len(numbers) >= 9
    for label in labels:
        text = label.expanded(0.6, 0.6)  # labels stand at an angle: no letter is in the corners of their boxes
        assert not any(text.overlaps(number) for number in numbers)
        centre = label.get_points().mean(axis=0)
        gap = min(np.linalg.norm(number.get_points().mean(axis=0) - centre) for number in numbers)
        assert gap < 0.14 * figure.bbox.width


def test_a_region_holds_its_mass():
    ax = Figure().add_subplot()
    fine = gaussian_cells([0.0, 0.0], np.eye(2), [0.1, 0.1])
    plot_region(fine, (0, 1), ax=ax, masses=(0.6,))
    outline = ax.collections[-1].get_paths()[0].vertices
    # In two dimensions the region of mass m ends at radius sqrt(-2 log(1 - m)).
    np.testing.assert_allclose(np.linalg.norm(outline, axis=1), np.sqrt(-2.0 * np.log(0.4)), rtol=0.03)
    assert ax.get_xlabel() == "x1" and inked(ax.figure) > 0.02


def test_marginals_fill_a_triangle_of_axes():
    figure = plot_marginals(CELLS, figure=Figure(), samples=draw(np.zeros(3), np.eye(3), 50, seed=2), names="abc")
    labels = [(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes]
    assert len(figure.axes) == 6 and labels[-1] == ("c", "") and ("a", "c") in labels
    assert inked(figure) > 0.05
    assert len(plot_marginals(CELLS, figure=Figure(), axes=[2, 0]).axes) == 3


def test_cells_are_drawn_against_time():
    ax = plot_cells([0.0, 1.0, 2.0], [5, 9, 7], ax=Figure().add_subplot(), label="run")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0, 5], [1, 9], [2, 7]])
    assert ax.get_ylim()[0] == 0.0 and ax.get_legend() is not None


def test_without_axes_the_current_ones_are_taken():
    matplotlib.use("Agg")
    from matplotlib import pyplot

    try:
        assert plot_region(CELLS, (0, 1)) is pyplot.gca()
        pyplot.close("all")
        assert plot_isosurfaces(CELLS).figure is pyplot.gcf()
        pyplot.close("all")
        assert plot_marginals(CELLS) is pyplot.gcf()
        pyplot.close("all")
        assert plot_cells([0.0, 1.0], [1, 2]) is pyplot.gca()
    finally:
        pyplot.close("all")


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: isosurface(np.zeros((3, 3)), 1.0), r"values must have three axes; got shape \(3, 3\)"),
        (lambda: isosurface(np.zeros((3, 3, 3)), 0.0), "level must be a finite number above zero"),
        (lambda: isosurface(np.zeros((3, 3, 3)), 1.0, [np.zeros(2)] * 3), "coordinates must have 3 numbers on axis 0"),
        (lambda: plot_isosurfaces(CELLS, (0, 1)), "axes must be three numbers"),
        (lambda: plot_isosurfaces(CELLS, levels=(1.5,)), r"levels must be in \(0, 1\); got \[1.5\]"),
        (lambda: plot_isosurfaces(CELLS, masses=(1.0,)), r"masses must be in \(0, 1\); got \[1.0\]"),
        (lambda: plot_isosurfaces(CELLS, levels=()), "levels must be at least one; got none"),
        (lambda: plot_region(CELLS, (0,)), "axes must be two numbers"),
        (lambda: plot_region(CELLS, (0, 1), ax=Figure().add_subplot(), masses=(2.0,)), r"masses must be numbers in"),
    ],
)
def test_bad_input_is_named(call, text):
    with pytest.raises(ValueError, match=text):
        call()
