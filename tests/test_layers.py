"""The house has one-way stairs: every import goes to a lower layer."""

import ast
from pathlib import Path

import pytest

import ensemble

ROOT = Path(ensemble.__file__).parent

LAYERS = {
    "_version": 0, "_typing": 1, "_check": 1, "_backend": 1,
    "_kernels": 2,
    "scalar": 3,
    "linalg": 4,
    "krylov": 5, "multigrid": 5,
    "apps": 6, "gallery": 6,
    "_command": 7, "__init__": 7,
    "__main__": 8,
}  # fmt: skip


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_modules(path: Path):
    """Every module that `path` imports, wherever in the file."""
    package = ["ensemble", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "ensemble":
                yield from (f"ensemble.{alias.name}" for alias in node.names)
            else:
                yield module


WITH_LLVM = (
    "_c_functions", "_lanes", "_lane_arithmetic", "_lane_tables", "_lane_tiles", "_lane_transpose",
    "_plain_code", "_straight_line", "_work_sharing",
)  # fmt: skip
LLVM = {f"_kernels/{name}.py" for name in WITH_LLVM}
"""The files that write instructions of their own."""

SOURCES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path):
    room = room_of(path)
    assert room in LAYERS, f"{room} has no layer"
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] != "ensemble":
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        below = LAYERS[target] < LAYERS[room] or (LAYERS[room] == 1 and LAYERS[target] == 1)
        assert target == room or below, f"{path.relative_to(ROOT)} imports {module}: not downwards"


@pytest.mark.parametrize(
    "module, only",
    [
        ("numba", {"_compile/numba.py", *LLVM}),
        ("llvmlite", LLVM),
        ("cupy", {"_backend.py", "_compile/device.py", "_compile/streams.py"}),
        ("array_api_compat", {"_backend.py"}),
    ],
)
def test_one_door_to_each_library(module, only):
    users = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if any(name.split(".")[0] == module for name in imported_modules(path))
    }
    assert users <= only


def test_folders_of_tests_are_packages():
    """Without that pytest cannot collect two files of one name, of which every folder may have a conftest."""
    folders = {path.parent for name in ("test_*.py", "conftest.py") for path in Path(__file__).parent.rglob(name)}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
