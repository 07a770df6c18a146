"""Mesh files: what is written is read again, errors name the file, and nothing is left half written."""

import os
import sys

import numpy as np
import pytest

import ensemble as en
from ensemble.apps import fem
from tests.apps.fem.form_problems import mesh_of

meshio = pytest.importorskip("meshio")

FORMATS = [".vtu", ".msh", ".xdmf"]


@pytest.fixture(params=FORMATS)
def path(request, tmp_path):
    if request.param == ".xdmf":
        pytest.importorskip("h5py")  # meshio imports it for this format
    return tmp_path / f"mesh{request.param}"


@pytest.fixture(scope="module")
def mesh():
    return mesh_of((2, 3, 2))


# --- what is written is read again
def test_a_mesh_comes_back_to_the_bit(path, mesh):
    fem.write_mesh(path, mesh)
    again = fem.TetMesh.read(str(path))
    np.testing.assert_array_equal(again.points, mesh.points)
    np.testing.assert_array_equal(again.tets, mesh.tets)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_fields_come_back_to_the_bit(path, mesh, rng):
    scalar, vector = rng.normal(size=mesh.n_nodes), rng.normal(size=(mesh.n_elements, 3))
    tensor, number = rng.normal(size=(mesh.n_elements, 3, 3)), np.arange(mesh.n_nodes)
    points = {"p": scalar, "number": number, "low": mesh.points[:, 2] < 0.4, "single": scalar.astype(np.float32)}
    points["half"] = scalar.astype(np.float16)
    fem.write_mesh(path, mesh, points, {"wind": vector, "kappa": tensor})
    again = fem.TetMesh.read(path)
    for name, values in points.items():
        np.testing.assert_array_equal(again.point_data[name], values)
    np.testing.assert_array_equal(again.cell_data["wind"], vector)
    np.testing.assert_array_equal(again.cell_data["kappa"], tensor.reshape(-1, 9))


def test_tags_of_elements_are_written_again(path, mesh):
    tags = {"gmsh:physical": 3 + np.arange(mesh.n_elements) % 2, "gmsh:geometrical": 1 + np.arange(mesh.n_elements) % 5}
    fem.write_mesh(path, mesh, None, tags)
    for _ in range(2):  # also the tags of a file that was read
        again = fem.TetMesh.read(path)
        for name, values in tags.items():
            np.testing.assert_array_equal(again.cell_data[name], values)
        fem.write_mesh(path, again, again.point_data, again.cell_data)


def test_of_an_ensemble_the_weighted_mean_and_deviation_are_written(path, mesh, rng):
    weights = np.array([1.0, 2.0, 0.0, 5.0])
    drawn = en.SampleSet(weights=weights)
    u, k = rng.normal(size=(mesh.n_nodes, 4)), rng.normal(size=(mesh.n_elements, 3, 4))
    fem.write_mesh(path, mesh, {"u": en.Ensemble(u, drawn)}, {"k": en.Ensemble(k, drawn)})
    again = fem.TetMesh.read(path)
    for name, values, data in (("u", u, again.point_data), ("k", k, again.cell_data)):
        mean = values @ weights / 8.0
        np.testing.assert_allclose(data[f"{name}_mean"], mean, rtol=1e-13, atol=1e-14)
        spread = np.sqrt(((values - mean[..., None]) ** 2) @ weights / 8.0)
        np.testing.assert_allclose(data[f"{name}_std"], spread, rtol=1e-12)
        assert name not in data


# --- what others wrote
POINTS = np.array([[9.0, 9, 9], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])


def written_by_others(path):
    """Two tetrahedra, one inverted; three triangles, one of them inside; a line; a node that no tetrahedron has."""
    tets, triangles = [[1, 2, 3, 4], [5, 3, 4, 2]], [[1, 3, 2], [4, 2, 5], [2, 3, 4]]
    cells = [("line", [[0, 1]]), ("triangle", triangles), ("tetra", tets)]
    tags = {"gmsh:physical": [np.array([4]), np.array([7, 8, 9]), np.array([2, 3])]}
    tags |= {"gmsh:geometrical": [np.array([1]), np.array([1, 1, 1]), np.array([1, 1])]}
    made = meshio.Mesh(POINTS, cells, {"T": np.arange(6.0)}, tags)
    meshio.write(path, made, file_format="gmsh22")


def test_tags_of_gmsh_are_those_of_elements_and_boundary_facets(tmp_path, capfd):
    written_by_others(tmp_path / "two.msh")
    mesh = fem.TetMesh.read(tmp_path / "two.msh")
    np.testing.assert_array_equal(mesh.points, POINTS[1:])
    assert (mesh.volumes > 0).all()
    np.testing.assert_array_equal(np.sort(mesh.tets), [[0, 1, 2, 3], [1, 2, 3, 4]])
    np.testing.assert_array_equal(mesh.cell_data["gmsh:physical"], [2, 3])
    np.testing.assert_array_equal(mesh.point_data["T"], [1, 2, 3, 4, 5])
    tags = mesh.facet_data["gmsh:physical"]
    named = {tuple(sorted(facet)): tag for facet, tag in zip(mesh.boundary_facets.tolist(), tags, strict=True)}
    assert len(named) == 6
    assert (named.pop((0, 1, 2)), named.pop((1, 3, 4))) == (7, 8)
    assert set(named.values()) == {0}  # the triangle with tag 9 lies inside
    space = fem.BoundarySpace(mesh, np.flatnonzero(tags == 7))
    np.testing.assert_allclose(space.normals, [[0.0, 0.0, -1.0]])
    assert capfd.readouterr() == ("", "")


def test_real_values_of_triangles_are_nan_elsewhere(tmp_path):
    path = tmp_path / "flux.vtu"
    cells = [("tetra", [[1, 2, 3, 4]]), ("triangle", [[1, 2, 3]])]
    meshio.Mesh(POINTS[:5], cells, cell_data={"q": [np.array([1.5]), np.array([2.5])]}).write(path)
    mesh = fem.TetMesh.read(path)
    assert mesh.cell_data["q"].tolist() == [1.5]
    np.testing.assert_array_equal(np.sort(mesh.facet_data["q"]), [2.5, np.nan, np.nan, np.nan])
    assert mesh.refined().facet_data == mesh.refined().cell_data == {}


# --- what cannot be read
def test_a_mesh_of_meshio_is_taken_as_its_file(tmp_path, mesh):
    kept = np.r_[0, 0, np.arange(mesh.n_nodes)]  # two nodes that belong to no tetrahedron
    flipped = mesh.tets[:, [0, 1, 3, 2]] + 2
    cells = [("triangle", mesh.boundary_facets[:3] + 2), ("tetra", flipped[:5]), ("tetra", flipped[5:])]
    tags = {"tag": [np.array([7, 8, 9]), np.arange(5), np.arange(5, mesh.n_elements)]}
    given = meshio.Mesh(mesh.points[kept], cells, {"u": kept * 1.0}, tags)
    given.write(tmp_path / "a.vtu")
    made, read = fem.TetMesh.from_meshio(given), fem.TetMesh.read(tmp_path / "a.vtu")
    for again in (made, read):
        np.testing.assert_array_equal(again.points, mesh.points)
        np.testing.assert_array_equal(again.tets, mesh.tets)
        np.testing.assert_array_equal(again.point_data["u"], np.arange(mesh.n_nodes))
        np.testing.assert_array_equal(again.cell_data["tag"], np.arange(mesh.n_elements))
        np.testing.assert_array_equal(again.facet_data["tag"][:4], [7, 8, 9, 0])
    with pytest.raises(
        ValueError, match=r"TetMesh.from_meshio: cells of the mesh must hold linear tetrahedra, .*; got"
    ):
        fem.TetMesh.from_meshio(meshio.Mesh(POINTS, [("triangle", [[0, 1, 2]])]))
    with pytest.raises(TypeError, match=r"TetMesh.from_meshio: mesh must be a meshio.Mesh; got a TetMesh"):
        fem.TetMesh.from_meshio(mesh)


def test_files_without_tetrahedra_name_their_cells(tmp_path):
    path = tmp_path / "flat.vtu"
    meshio.Mesh(POINTS, [("triangle", [[0, 1, 2], [1, 2, 3]]), ("line", [[0, 1]])]).write(path)
    with pytest.raises(ValueError, match=r"flat.vtu must hold linear tetrahedra, .*; got 2 of 'triangle', 1 of 'line'"):
        fem.TetMesh.read(path)
    meshio.Mesh(np.random.default_rng(1).normal(size=(10, 3)), [("tetra10", [np.arange(10)])]).write(path)
    with pytest.raises(ValueError, match="got 1 of 'tetra10'"):
        fem.TetMesh.read(path)


@pytest.mark.parametrize("name", ["broken.vtu", "broken.msh", "broken.vtk", "broken.xyz"])
def test_files_that_are_none_are_one_error(tmp_path, name, capfd):
    (tmp_path / name).write_text("no mesh\n")
    with pytest.raises(
        ValueError, match=rf"TetMesh.read: path must be a mesh in a format of meshio; got .*{name} \(\w+"
    ):
        fem.TetMesh.read(tmp_path / name)
    assert capfd.readouterr() == ("", "")


def test_absent_files_and_folders_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"TetMesh.read: path must be a file to read; got .*none.vtu \(No such"):
        fem.TetMesh.read(tmp_path / "none.vtu")
    with pytest.raises(IsADirectoryError, match="path must be a file to read"):
        fem.TetMesh.read(tmp_path)


def test_tetrahedra_of_nodes_that_do_not_exist_are_an_error(tmp_path, monkeypatch):
    (tmp_path / "bad.vtu").touch()
    monkeypatch.setattr(meshio, "read", lambda path: meshio.Mesh(POINTS, [("tetra", [[1, 2, 3, 7]])]))
    with pytest.raises(ValueError, match="TetMesh: tets must be nodes from 0 to 5; got others in 1 element"):
        fem.TetMesh.read(tmp_path / "bad.vtu")


@pytest.mark.parametrize("node", [-1, 36, 99])
def test_triangles_of_nodes_that_do_not_exist_are_an_error(mesh, node):
    given = meshio.Mesh(mesh.points, [("tetra", mesh.tets), ("triangle", [[0, 1, node]])])
    with pytest.raises(ValueError, match="triangles must be nodes from 0 to 35; got others in 1 of 1"):
        fem.TetMesh.from_meshio(given)


# --- nothing is left half written
def contents(folder):
    return {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("error", [RuntimeError("in the middle"), OSError(28, "No space left"), SystemExit(1)])
def test_an_error_within_meshio_leaves_the_earlier_file(tmp_path, mesh, monkeypatch, error):
    path = tmp_path / "u.vtu"
    fem.write_mesh(path, mesh)
    before = contents(tmp_path)

    def write(self, file, **options):
        file.write_text("half")
        raise error

    monkeypatch.setattr(meshio.Mesh, "write", write)
    with pytest.raises(OSError, match=r"write_mesh: path must be written; .*u.vtu was not changed; got \w+ \("):
        fem.write_mesh(path, mesh, {"u": np.zeros(mesh.n_nodes)})
    assert contents(tmp_path) == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_symbolic_link_stays(tmp_path, mesh):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "u.vtu"
    link.symlink_to(tmp_path / "folder" / "first.vtu")
    for _ in range(2):
        fem.write_mesh(link, mesh)
        assert link.is_symlink() and fem.TetMesh.read(link).n_nodes == mesh.n_nodes
    assert sorted(contents(tmp_path / "folder")) == ["first.vtu"]


def test_an_interrupt_leaves_nothing(tmp_path, mesh, monkeypatch):
    def write(self, file, **options):
        file.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(meshio.Mesh, "write", write)
    with pytest.raises(KeyboardInterrupt):
        fem.write_mesh(tmp_path / "u.vtu", mesh)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_take_no_file_are_errors(tmp_path, mesh):
    with pytest.raises(FileNotFoundError, match=r"u.vtu was not changed; got FileNotFoundError \(No such file"):
        fem.write_mesh(tmp_path / "none" / "u.vtu", mesh)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="was not changed"):
        fem.write_mesh(tmp_path / "file" / "u.vtu", mesh)
    (tmp_path / "folder.vtu").mkdir()
    with pytest.raises(OSError, match="was not changed"):
        fem.write_mesh(tmp_path / "folder.vtu", mesh)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["file", "folder.vtu"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_without_permission_is_an_error(tmp_path, mesh):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="was not changed"):
            fem.write_mesh(tmp_path / "u.vtu", mesh)
    finally:
        tmp_path.chmod(0o700)
    assert list(tmp_path.iterdir()) == []


# --- what is refused
@pytest.mark.parametrize(
    ("name", "points", "error", "expected"),
    [
        ("u.stl", {}, ValueError, r"write_mesh: path must end in one of .vtu, .xdmf, .msh; got 'u.stl'"),
        ("u.vtu", {"u": np.zeros(7)}, ValueError, r"point_data\['u'\] must have shape \(36, ...\); got \(7,\)"),
        ("u.vtu", {"u": 1.0}, ValueError, r"point_data\['u'\] must have shape \(36, ...\); got \(\)"),
        ("u.xdmf", {"u": np.zeros((36, 4))}, ValueError, r"\['u'\] must have 1, 2, 3, 6, 9 numbers in .xdmf; got 4"),
        ("u.msh", {"u": np.zeros((36, 2))}, ValueError, r"point_data\['u'\] must have 1, 3, 9 numbers in .msh; got 2"),
        ("u.vtu", {"u": np.zeros((36, 0))}, ValueError, r"point_data\['u'\] must have one or more numbers; got 0"),
        ("u.vtu", {"u": np.zeros(36, complex)}, TypeError, "be real numbers; got dtype complex128"),
        ("u.vtu", {"u": np.zeros(36, str)}, TypeError, "be real numbers; got dtype <U1"),
        (
            "u.vtu", {"u_std": np.zeros(36), "u": en.Ensemble(np.zeros((36, 2)))}, ValueError,
            "point_data must have different names; got 'u_std' twice",
        ),
    ],
)  # fmt: skip
def test_fields_and_endings_that_do_not_fit_are_refused(tmp_path, mesh, name, points, error, expected):
    with pytest.raises(error, match=expected):
        fem.write_mesh(tmp_path / name, mesh, points)
    assert list(tmp_path.iterdir()) == []


def test_without_meshio_the_message_says_what_to_install(tmp_path, mesh, monkeypatch):
    monkeypatch.setitem(sys.modules, "meshio", None)
    for call in (lambda: fem.TetMesh.read(tmp_path / "u.vtu"), lambda: fem.write_mesh(tmp_path / "u.vtu", mesh)):
        with pytest.raises(ImportError, match=r"meshio must be installed; .*pip install 'ensemble-arrays\[fem\]'."):
            call()


def test_without_h5py_the_message_says_what_to_install(tmp_path, mesh, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"\.xdmf must have its library; .*pip install 'ensemble-arrays\[fem\]'."):
        fem.write_mesh(tmp_path / "u.xdmf", mesh)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ['a"b', "a<b", "a&b", "a\nb", 3])
def test_names_that_a_file_cannot_hold_are_refused(tmp_path, name):
    mesh = fem.TetMesh.box(1)
    with pytest.raises(ValueError, match="write_mesh: point_data must have names without"):
        fem.write_mesh(tmp_path / "a.vtu", mesh, {name: np.ones(mesh.n_nodes)})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["vtu", "xdmf", "msh"])
@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, np.uint8, np.int16])
def test_numbers_of_other_lengths_are_written(tmp_path, ending, dtype):
    mesh = fem.TetMesh.box(1)
    fem.write_mesh(tmp_path / f"a.{ending}", mesh, {"u of x": np.arange(mesh.n_nodes, dtype=dtype)})
    found = fem.TetMesh.read(tmp_path / f"a.{ending}").point_data["u of x"]
    np.testing.assert_array_equal(found, np.arange(mesh.n_nodes))


def test_what_is_no_mesh_or_no_dict_is_refused(tmp_path):
    with pytest.raises(TypeError, match="write_mesh: mesh must be a TetMesh; got None"):
        fem.write_mesh(tmp_path / "a.vtu", None)
    with pytest.raises(TypeError, match="write_mesh: mesh must be a TetMesh; got a TetArrays"):
        fem.write_mesh(tmp_path / "a.vtu", fem.TetArrays(np.zeros((4, 3)), np.arange(4)[None]))
    with pytest.raises(TypeError, match="write_mesh: cell_data must be a dict of fields by name; got a list"):
        fem.write_mesh(tmp_path / "a.vtu", fem.TetMesh.box(1), None, [1.0])


# --- cells that are no tetrahedra
VOLUMES = {"hexahedron": 8, "wedge": 6, "pyramid": 5, "tetra10": 10, "hexahedron20": 20}


@pytest.mark.parametrize("kind", VOLUMES)
def test_cells_of_other_volumes_are_refused_by_name(tmp_path, kind):
    points = np.random.default_rng(31207).random((24, 3))
    points[:4] = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    nodes = np.arange(VOLUMES[kind])
    cells = [("line", [[0, 1]]), (kind, [nodes, nodes + 1]), ("tetra", [[0, 1, 2, 3]]), (kind, [nodes + 2]),
             ("quad", [[0, 1, 2, 3]])]  # fmt: skip
    given = meshio.Mesh(points, cells)
    wanted = rf"fill no volume but by linear tetrahedra, 'tetra'; got 3 of '{kind}' beside 1 of 'tetra'. Split them"
    with pytest.raises(ValueError, match=rf"TetMesh.from_meshio: cells of the mesh must {wanted}"):
        fem.TetMesh.from_meshio(given)
    given.write(tmp_path / "mixed.vtu")
    with pytest.raises(ValueError, match=f"TetMesh.read: cells of .*mixed.vtu must {wanted}"):
        fem.TetMesh.read(tmp_path / "mixed.vtu")
    given.cells = [block for block in given.cells if block.type != kind]
    assert fem.TetMesh.from_meshio(given).n_elements == 1
