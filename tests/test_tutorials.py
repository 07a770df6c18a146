"""Every tutorial runs, draws, and finds what is known."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"

TUTORIALS = sorted(path.stem for path in FOLDER.glob("*.py"))


def test_every_tutorial_is_checked():
    assert TUTORIALS == ["butterfly", "long_study", "mountain", "nile", "orifice", "plate"]


@pytest.fixture(scope="module")
def nile():
    return runpy.run_path(str(FOLDER / "nile.py"))


def test_the_nile_is_that_of_the_book(nile):
    """Durbin, Koopman (2001), section 2.10.2: variances 15099 and 1469.1."""
    np.testing.assert_allclose(nile["fit"].estimate, [15099.0, 1469.1], atol=0.6)
    assert nile["years"].tolist() == list(range(1871, 1971)) and nile["volume"].sum() == 91935.0
    best = np.unravel_index(np.argmax(nile["surface"]), (48, 48))
    assert 0.0 < nile["fit"].log_likelihood - nile["surface"][best] < 0.05


def test_bands_are_wider_where_less_is_known(nile):
    filtered, smooth, bridged = (nile[name].covariance[:, 0, 0] for name in ("filtered", "smooth", "bridged"))
    assert np.all(smooth <= filtered * (1 + 1e-9)) and np.all(bridged >= smooth * (1 - 1e-9))
    assert bridged[29] > 2.0 * smooth[29]


def test_the_fall_is_that_of_the_smoothed_means(nile):
    level = nile["smooth"].mean[:, 0]
    expected = level[nile["before"]].mean() - level[nile["after"]].mean()
    fall = nile["fall"]
    assert abs(fall.mean() - expected) < 5 * fall.std() / np.sqrt(fall.size)


def test_it_reports_and_draws(nile, tmp_path, capsys):
    nile["report"]()
    assert "variance of the walk         1469.1" in capsys.readouterr().out
    nile["draw"](tmp_path / "nile.png")
    assert (tmp_path / "nile.png").stat().st_size > 50_000


@pytest.fixture(scope="module")
def butterfly():
    return runpy.run_path(str(FOLDER / "butterfly.py"))


def test_the_butterfly_is_the_published_one(butterfly):
    """Hanson et al. (2025), table 1: a coefficient of 0.9027 with 100,000 samples; fewer samples have wider kernels."""
    saved_run = butterfly["saved_run"]
    assert (len(saved_run.steps), saved_run.cell_steps) == (963, 6_512_143)
    assert abs(butterfly["by_kernels"] - 0.893) < 0.01 and butterfly["by_bins"] < butterfly["by_kernels"]


def test_the_measurement_fixes_the_height_and_not_the_wing(butterfly):
    position, p = (butterfly["gbees"].positions(butterfly["after"]), butterfly["after"].probabilities)
    p = p / p.sum()
    assert abs(p @ position[:, 2] + 8.0) < 0.1 and np.sqrt(p @ (position[:, 2] + 8.0) ** 2) < 1.1
    assert 0.2 < p[position[:, 0] < 0.0].sum() < 0.8
    assert -6.0 < butterfly["log_evidence"] < -3.0


@pytest.mark.filterwarnings("ignore::ensemble.apps.gbees.GridWarning")  # of the published cells
def test_each_system_of_the_ensemble_is_its_own(butterfly):
    gbees, problem = butterfly["gbees"], butterfly["problem"]
    alone = gbees.Gbees(gbees.lorenz63.with_parameters(r=38.0), problem.mean, problem.covariance, threshold=1e-5)
    alone.advance(0.5)
    np.testing.assert_array_equal(butterfly["means"][:, 1], alone.mean())


def test_the_butterfly_reports_and_draws(butterfly, tmp_path, capsys):
    butterfly["report"]()
    assert "963 steps, 6,512,143 cell-steps" in capsys.readouterr().out
    butterfly["draw"](tmp_path / "butterfly.png")
    assert (tmp_path / "butterfly.png").stat().st_size > 50_000


@pytest.fixture(scope="module")
def mountain():
    return runpy.run_path(str(FOLDER / "mountain.py"))


@pytest.mark.slow
def test_the_wind_blows_along_the_ground(mountain):
    """No air flows through the ground: what enters at one end leaves at the other, in every column of the flow."""
    mesh, phi = mountain["mesh"], mountain["potentials"][0]
    through = mountain["laplacian"] @ phi  # flux out of the domain around each node
    ends = np.isin(mesh.points[:, 0], (0.0, mountain["SIZE"]))
    assert abs(through[~ends]).max() < 1e-8 * abs(through[ends]).max()
    assert abs(through.sum()) < 1e-8 * abs(through).sum()


@pytest.mark.slow
def test_mass_is_kept_until_it_leaves(mountain):
    """The plume of the slowest sample is still inside: its mass is what was emitted."""
    inside, emitted = mountain["inside"].samples, mountain["emitted"]
    assert abs(inside.max() - emitted) < 0.02 * emitted and inside.min() > 0.3 * emitted
    assert inside[np.argmin(mountain["speed"].samples)] > np.median(inside)


@pytest.mark.slow
def test_a_sample_of_the_plume_has_the_bits_of_its_own_run(mountain):
    i, fem = 5, mountain["fem"]
    fields = {
        name: value.sample(i) if hasattr(value, "sample") else value for name, value in mountain["fields"].items()
    }
    rest = {"source": fem.at_nodes(mountain["source"]), "mixing": mountain["mixing"].sample(i)}
    forms = (mountain["mass"], mountain["transport"], mountain["emission"])
    for own, all_samples in zip(fem.assemble(mountain["mesh"], *forms, **rest, **fields),
                                (mountain["M"], mountain["A"], mountain["b"]), strict=True):  # fmt: skip
        values = [made.values if hasattr(made, "values") else made.samples for made in (own, all_samples)]
        np.testing.assert_array_equal(values[0][..., 0], values[1][..., i])


@pytest.mark.slow
def test_the_mountain_reports_draws_and_writes(mountain, tmp_path, capsys):
    meshio = pytest.importorskip("meshio")
    mountain["report"]()
    assert "emitted 1800 kg" in capsys.readouterr().out
    mountain["draw"](tmp_path / "mountain.png")
    assert (tmp_path / "mountain.png").stat().st_size > 30_000
    mountain["write"](tmp_path / "plume.vtu")
    data = meshio.read(tmp_path / "plume.vtu").point_data
    np.testing.assert_allclose(data["concentration_mean"], mountain["mean"], rtol=1e-14)
    np.testing.assert_allclose(data["concentration_std"], mountain["deviation"], rtol=1e-12, atol=1e-20)


@pytest.fixture(scope="module")
def orifice():
    return runpy.run_path(str(FOLDER / "orifice.py"))


def test_the_flow_is_that_of_the_published_solver_for_each_sample(orifice):
    result, flow = orifice["result"], orifice["flow"]
    values = result.values("y")
    assert [flow(result.inputs.sample(i)) for i in (0, 7, 4095)] == values[[0, 7, 4095]].tolist()


def test_the_handbook_rule_holds_for_small_errors(orifice):
    assert abs(orifice["by_derivatives"]() / orifice["result"].std("y") - 1.0) < 0.01
    assert abs(orifice["indices"].first["y"].sum() - 1.0) < 0.06


def test_the_orifice_reports_and_draws(orifice, tmp_path, capsys):
    orifice["report"]()
    assert "nominal flow          7.6883 kg/s" in capsys.readouterr().out
    orifice["draw"](tmp_path / "orifice.png")
    assert (tmp_path / "orifice.png").stat().st_size > 30_000


@pytest.fixture(scope="module")
def plate():
    return runpy.run_path(str(FOLDER / "plate.py"))


@pytest.mark.slow
def test_a_sample_of_the_plate_solves_the_equations_of_scikit_fem(plate):
    """The same conductivity by element through scikit-fem's assembly and SciPy's direct solver."""
    import skfem
    from skfem.helpers import dot, grad

    result, i = plate["result"], 11
    x = result.inputs.take([i])
    basis = skfem.Basis(plate["mesh"], skfem.ElementTriP1())
    kappa = x.conductivity(plate["centres"]).samples[:, :1]
    K = skfem.BilinearForm(lambda u, v, w: w.kappa * dot(grad(u), grad(v))).assemble(basis, kappa=kappa)
    held = np.zeros(len(plate["nodes"]))
    held[plate["left"]] = x.side.samples[0]
    exact = skfem.solve(*skfem.condense(K, plate["rim_load"] * x.flux.samples[0], x=held, D=plate["left"]))
    np.testing.assert_allclose(result.values("T")[:, i], exact, rtol=1e-8)


def test_heat_that_enters_at_the_hole_is_the_flux_times_its_edge(plate):
    perimeter = 48 * plate["lengths"].mean()
    assert plate["rim"].shape == (2, 48) and abs(plate["rim_load"].sum() - perimeter) < 1e-12
    assert abs(plate["area"].sum() - (1.0 - 12 * np.sin(np.pi / 12) * plate["RADIUS"] ** 2)) < 1e-12


def test_the_side_matters_at_the_side_alone(plate):
    indices, names = plate["indices"].first["T"], list(plate["indices"].inputs)
    side = indices[names.index("side")]
    assert np.all(np.abs(side[plate["left"]] - 1.0) < 0.1)
    assert np.all(np.abs(side[plate["nodes"][:, 0] > 0.3]) < 0.1)


def test_the_plate_reports_and_draws(plate, tmp_path, capsys):
    plate["report"]()
    assert "1016 nodes, 1856 triangles" in capsys.readouterr().out
    plate["draw"](tmp_path / "plate.png")
    assert (tmp_path / "plate.png").stat().st_size > 50_000


@pytest.mark.slow  # the kill tests of the store run in every suite
def test_a_killed_study_ends_with_every_bit_of_one_that_was_not():
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parents[1])}
    command = [sys.executable, str(FOLDER / "long_study.py")]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert 96 <= int(re.search(r"killed with (\d+) of 512", out)[1]) < 512
    assert "resumed on Dask: 512 samples" in out and "extended: 2048 samples" in out
    assert "every bit: True" in out


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_names_its_extra_and_writes_into_the_current_folder(name):
    text = (FOLDER / f"{name}.py").read_text()
    assert re.search(r"pip install 'ensemble-arrays\[(plots|tutorials|dask)\]'", text)
    assert "HERE.parent" not in text and "docs/images" not in text
