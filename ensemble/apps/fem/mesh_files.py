"""Files of meshes and of fields on them, read and written by meshio."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ensemble._check import host_array, kind_of, message, require, require_type, require_unmasked, unread
from ensemble._optional import advice_for, optional
from ensemble.scalar import Ensemble, sample_mean, sample_std

__all__ = ["FileContents", "facet_values", "read_tets", "tets_of", "write_mesh"]

FORMATS: Mapping[str, Mapping[str, Any]] = {
    ".vtu": {"file_format": "vtu"},
    ".xdmf": {"file_format": "xdmf", "data_format": "XML"},
    ".msh": {"file_format": "gmsh22"},
}
"""What is written, with options of meshio: its first choice for .msh is Ansys, its Gmsh 4.1 writes one tag for all,
and XDMF is two files unless in XML."""

WIDTHS: Mapping[str, tuple[int, ...]] = {".xdmf": (1, 2, 3, 6, 9), ".msh": (1, 3, 9)}
"""Numbers that a field may have at a place; any in .vtu."""


class FileContents(NamedTuple):
    """The linear tetrahedra and triangles of a file, with their values by name; points of tetrahedra alone."""

    points: np.ndarray
    tets: np.ndarray
    triangles: np.ndarray
    point_data: dict[str, np.ndarray]
    cell_data: dict[str, np.ndarray]
    triangle_data: dict[str, np.ndarray]


def read_tets(path: str | Path) -> FileContents:
    """The contents of a file; errors are those of `TetMesh.read`."""
    function, path = "TetMesh.read", Path(path)
    meshio = _meshio(function)
    try:
        path.open("rb").close()
    except OSError as error:
        raise unread(error, function, path) from None
    with _quiet() as said:
        try:
            mesh = meshio.read(path)
        except ImportError as error:
            raise ImportError(message(function, path.suffix, "have its library", error, INSTALL)) from error
        except (Exception, SystemExit) as error:  # meshio ends the process where no reader takes the file
            reason = " ".join([type(error).__name__, str(error), said.getvalue()]).split()
            wanted = "be a mesh in a format of meshio"
            raise ValueError(message(function, "path", wanted, f"{path} ({' '.join(reason)})")) from error
    return _contents(mesh, function, f"cells of {path}")


def tets_of(mesh: Any) -> FileContents:
    """The contents of a mesh of meshio; errors are those of `TetMesh.from_meshio`."""
    function = "TetMesh.from_meshio"
    require_type(mesh, _meshio(function).Mesh, function, "mesh", "be a meshio.Mesh")
    return _contents(mesh, function, "cells of the mesh")


def _contents(mesh: Any, function: str, cells_text: str) -> FileContents:
    """The tetrahedra and triangles of a mesh of meshio, and the nodes of the former."""
    blocks = {kind: [i for i, cells in enumerate(mesh.cells) if cells.type == kind] for kind in ("tetra", "triangle")}
    tets, triangles = (_cells(mesh, blocks[kind], width) for kind, width in (("tetra", 4), ("triangle", 3)))
    if not len(tets):
        kinds = ", ".join(f"{len(cells.data)} of {cells.type!r}" for cells in mesh.cells) or "none"
        raise ValueError(message(function, cells_text, "hold linear tetrahedra, 'tetra'", kinds))
    others = {cells.type: 0 for cells in mesh.cells if cells.dim == 3 and cells.type != "tetra"}
    for cells in mesh.cells:
        if cells.type in others:
            others[cells.type] += len(cells.data)
    if any(others.values()):
        kinds = ", ".join(f"{count} of {kind!r}" for kind, count in others.items() if count)
        advice = "Split them into tetrahedra in the mesh generator, or remove them from the mesh."
        wanted = "fill no volume but by linear tetrahedra, 'tetra'"
        raise ValueError(message(function, cells_text, wanted, f"{kinds} beside {len(tets)} of 'tetra'", advice))
    points, point_data = mesh.points, {name: np.asarray(values) for name, values in mesh.point_data.items()}
    outside = ((triangles < 0) | (triangles >= len(points))).any(axis=1)
    wanted, seen = f"be nodes from 0 to {len(points) - 1}", f"others in {outside.sum()} of {outside.size}"
    require(not outside.any(), function, "triangles", wanted, seen)
    used = np.unique(tets)
    if used.size < len(points) and used[0] >= 0 and used[-1] < len(points):
        new = np.full(len(points), -1)
        new[used] = np.arange(used.size)
        points, tets, triangles = points[used], new[tets], new[triangles]
        point_data = {name: values[used] for name, values in point_data.items()}
    data = [_cell_data(mesh, blocks[kind]) for kind in ("tetra", "triangle")]
    return FileContents(points, tets, triangles, point_data, *data)


def facet_values(facets: np.ndarray, triangles: np.ndarray, data: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values of triangles on the facets with the same nodes; 0 or NaN on the others."""
    both = np.sort(np.concatenate([facets, triangles]), axis=1)
    _, number = np.unique(both, axis=0, return_inverse=True)
    number = number.reshape(-1)
    facet = np.full(len(both), -1)
    facet[number[: len(facets)]] = np.arange(len(facets))
    target = facet[number[len(facets) :]]
    found = {}
    for name, values in data.items():
        fill = np.nan if values.dtype.kind == "f" else 0
        found[name] = np.full((len(facets), *values.shape[1:]), fill, dtype=values.dtype)
        found[name][target[target >= 0]] = values[target >= 0]
    return found


def write_mesh(
    path: str | Path, mesh: Any, point_data: Mapping[str, Any] | None = None, cell_data: Mapping[str, Any] | None = None
) -> None:
    """Write a mesh and fields on it to one file, in whole or not at all.

    The file is written under another name and then renamed: an earlier file stays as it is until the new one is
    complete, and after an error.

    Parameters
    ----------
    path : str or Path
        Its ending is the format: ``.vtu`` (ParaView), ``.xdmf`` (numbers as text) or ``.msh`` (Gmsh 2.2).
    mesh : TetMesh
    point_data, cell_data : dict, optional
        Fields by name, of shape (n_nodes, ...) and (n_elements, ...), the rest () or (k,) or (3, 3); tensors are
        written as nine numbers. k is 1, 2, 3, 6 or 9 in ``.xdmf``, 1, 3 or 9 in ``.msh``. Values of arrays come
        back as they are.
        Of an Ensemble ``<name>_mean`` and ``<name>_std`` are written, its `sample_mean` and `sample_std` with the
        weights of its samples.

    Raises
    ------
    ImportError
        If meshio is not installed: ``pip install 'ensemble-arrays[fem]'``.
    TypeError
        If `mesh` is no mesh, or a field holds no real numbers.
    ValueError
        If the ending is another, the shape of a field does not fit, two fields have one name, or a name has characters
        that files cannot hold.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import ensemble as en
    >>> from ensemble.apps import fem
    >>> mesh = fem.TetMesh.box(2)
    >>> u = en.Ensemble(np.random.default_rng(3).normal(size=(mesh.n_nodes, 8)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fem.write_mesh(f"{folder}/u.vtu", mesh, {"u": u}, {"volume": mesh.volumes})
    ...     again = fem.TetMesh.read(f"{folder}/u.vtu")
    >>> sorted(again.point_data), list(again.cell_data), bool((again.point_data["u_mean"] == en.sample_mean(u)).all())
    (['u_mean', 'u_std'], ['volume'], True)
    """
    if not (hasattr(mesh, "n_nodes") and hasattr(mesh, "tets")):
        raise TypeError(message("write_mesh", "mesh", "be a TetMesh", kind_of(mesh)))
    path = Path(path)
    endings = ", ".join(FORMATS)
    require(path.suffix in FORMATS, "write_mesh", "path", f"end in one of {endings}", repr(path.name))
    meshio = _meshio("write_mesh")
    points = _arrays("point_data", point_data or {}, mesh.n_nodes, path.suffix)
    cells = _arrays("cell_data", cell_data or {}, mesh.n_elements, path.suffix)
    made = meshio.Mesh(mesh.points, [("tetra", mesh.tets)], points, {name: [array] for name, array in cells.items()})
    _replace(path, made)


def _replace(path: Path, made: Any) -> None:
    """Write a mesh of meshio into a folder beside `path`, which may be a symbolic link, and move the file there."""
    folder, target = None, path.resolve()
    try:
        folder = tempfile.mkdtemp(dir=target.parent, prefix=".ensemble-")
        draft = Path(folder) / path.name
        with _quiet():
            made.write(draft, **FORMATS[path.suffix])
        os.replace(draft, target)
    except ImportError as error:
        raise ImportError(message("write_mesh", path.suffix, "have its library", error, INSTALL)) from error
    except (Exception, SystemExit) as error:
        kind = type(error) if isinstance(error, OSError) else OSError
        reason = f"{type(error).__name__} ({getattr(error, 'strerror', None) or error})"
        raise kind(message("write_mesh", "path", f"be written; {path} was not changed", reason)) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


INSTALL = advice_for("meshio")


def _meshio(function: str) -> Any:
    return optional("meshio", function)


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    """Keep what meshio prints: it says as text what went wrong."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        yield said


def _cells(mesh: Any, blocks: list[int], width: int) -> np.ndarray:
    """The nodes of the cells of some blocks, shape (n, width)."""
    return np.concatenate([np.zeros((0, width), np.int64), *(np.asarray(mesh.cells[i].data, np.int64) for i in blocks)])


def _cell_data(mesh: Any, blocks: list[int]) -> dict[str, np.ndarray]:
    """The values on the cells of some blocks, by name."""
    if not blocks:
        return {}
    return {name: np.concatenate([np.asarray(arrays[i]) for i in blocks]) for name, arrays in mesh.cell_data.items()}


def _arrays(argument: str, fields: Mapping[str, Any], count: int, ending: str) -> dict[str, np.ndarray]:
    """Plain arrays by name, of shape (count,) or (count, k)."""
    found: dict[str, np.ndarray] = {}
    if not isinstance(fields, Mapping):
        raise TypeError(message("write_mesh", argument, "be a dict of fields by name", kind_of(fields)))
    for name, value in fields.items():
        plain = isinstance(name, str) and name.isprintable() and not set(name) & set('"<&')
        wanted = 'have names without ", <, & and control characters, which files cannot hold'
        require(plain, "write_mesh", argument, wanted, repr(name))
        parts = {name: value}
        if isinstance(value, Ensemble):
            parts = {f"{name}_mean": sample_mean(value), f"{name}_std": sample_std(value)}
        for own, part in parts.items():
            where = f"{argument}[{name!r}]"
            require_unmasked(part, "write_mesh", where)
            array = host_array(part, "write_mesh", where, "be real numbers")
            if array.dtype.kind not in "biuf":
                raise TypeError(message("write_mesh", where, "be real numbers", f"dtype {array.dtype}"))
            shaped = 1 <= array.ndim <= 3 and array.shape[0] == count
            require(shaped, "write_mesh", where, f"have shape ({count}, ...)", array.shape)
            width = array[0].size
            widths = WIDTHS.get(ending, ())
            wanted = f"have {', '.join(map(str, widths))} numbers in {ending}" if widths else "have one or more numbers"
            require(width in widths if widths else width > 0, "write_mesh", where, wanted, width)
            require(own not in found, "write_mesh", argument, "have different names", f"{own!r} twice")
            if array.dtype.kind == "b" or (ending == ".xdmf" and array.dtype.itemsize < 4 and array.dtype.kind in "iu"):
                array = array.astype(np.int32)
            elif array.dtype.kind == "f" and (ending == ".xdmf" or array.dtype.itemsize not in (4, 8)):
                # no format has others, and the text of a float32 in .xdmf is one digit short
                single = array.dtype.itemsize == 2 and ending != ".xdmf"
                array = array.astype(np.float32 if single else np.float64, copy=False)
            found[own] = np.ascontiguousarray(array.reshape(count, -1) if array.ndim == 3 else array)
    return found
