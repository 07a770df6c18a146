"""Imports go to lower layers, no group of files imports each other, and each library has one door."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import ensemble
from ensemble._compile.kernel_cache import CONTAINED

ROOT = Path(ensemble.__file__).parent

LAYERS = {
    "_version": 0, "_typing": 1, "_check": 1, "_files": 1, "_progress": 1, "_backend": 1, "_blas": 1, "_byte_code": 1,
    "_containers": 1, "_errors": 1, "_interrupts": 1, "_keywords": 1, "_names": 1, "_optional": 1,
    "_compile": 1, "_sample_numbers": 1, "_installed": 1,
    "_kernels": 2,
    "scalar": 3,
    "linalg": 4,
    "krylov": 5, "multigrid": 5, "ode": 5, "quadrature": 5, "uq": 5,
    "distributed": 6,
    "apps": 7, "gallery": 7,
    "_command": 8, "__init__": 8,
    "__main__": 9,
}  # fmt: skip

SOURCES = sorted(ROOT.rglob("*.py"))


def parts_of(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts


@cache
def text_of(path: Path) -> str:
    """What a file has about optional packages, or nothing."""
    text = path.read_text()
    return text if "optional(" in text else ""


@cache
def imports_of(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """The import statements of a file, also those in functions and under ``if TYPE_CHECKING``."""
    return tuple(
        node for node in statements(ast.parse(path.read_text()).body) if isinstance(node, ast.Import | ast.ImportFrom)
    )


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a body and of the bodies in it. Expressions, nine nodes of ten, hold no statement."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, name, None) or [])


@cache
def imported_names(path: Path) -> tuple[tuple[str, str], ...]:
    """The pairs (module, name) that `path` imports, late imports too; `name` is empty where a module is."""
    package = ["ensemble", *path.relative_to(ROOT).parts[:-1]]
    found = []
    for node in imports_of(path):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(module, alias.name) for alias in node.names]
    return tuple(found)


FILES = {("ensemble", *parts_of(path)): path for path in SOURCES if path != ROOT / "__init__.py"}


def files_imported(path: Path) -> set[tuple[str, ...]]:
    """The project's files that `path` imports from, by their parts."""
    targets = set()
    for module, name in imported_names(path):
        parts = tuple(module.split("."))
        if parts[0] == "ensemble":
            inner = (*parts, name)
            targets.add(inner if inner in FILES else parts)
    return targets


def layer_of(parts: tuple[str, ...]) -> int:
    return LAYERS[parts[0] if parts else "__init__"]


def goes_down(here: tuple[str, ...], there: tuple[str, ...]) -> bool:
    same = there[:1] == here[:1] or layer_of(here) == layer_of(there) == 1
    return same or layer_of(there) < layer_of(here)


def imports_where(is_wrong) -> list[str]:
    """The imports of one file of the project from another for which ``is_wrong(here, there)`` holds."""
    pairs = [(parts_of(path), tuple(there)) for path in SOURCES for _, *there in files_imported(path)]
    assert len(pairs) > 2000
    return [f"{'/'.join(here)} imports {'.'.join(there)}" for here, there in pairs if is_wrong(here, there)]


def test_imports_go_down():
    assert imports_where(lambda here, there: not goes_down(here, there)) == []


USERS = {
    "dense": {"linalg"},
    "direct": {"linalg"},
    "multigrid": {"multigrid", "linalg", "distributed"},
    "fem": {"apps/fem", "gallery"},
    "kalman": {"apps/kalman"},
    "gbees": {"apps/gbees"},
    "ode": {"ode"},
    "oscillator": {"apps/analyses"},
    "quadrature": {"quadrature", "uq"},
    "statistics": {"scalar", "uq"},
    "arrays": {"scalar"},
}
"""Which packages import from a folder of kernels; `sparse` and `krylov` are for all of them."""


def is_of_others(here: tuple[str, ...], there: tuple[str, ...]) -> bool:
    """Whether a file takes kernels that are not its package's, or an application another one."""
    if len(there) < 2 or not here:
        return False
    if there[0] == "apps" and here[0] == "apps" and len(here) > 1:
        return there[1] != here[1]
    if there[0] != "_kernels" or there[1] in ("sparse", "krylov") or here == ("_kernels", "all_kernels"):
        return False
    if here[0] == "_kernels":
        contained = [name.removeprefix("_kernels/") for name in CONTAINED.get("/".join(here[:2]), ())]
        return there[1] not in (here[1], *contained)
    return ("/".join(here[:2]) if here[0] == "apps" else here[0]) not in USERS[there[1]]


def test_packages_import_their_own_kernels_and_applications_not_each_other():
    assert imports_where(is_of_others) == []


@pytest.mark.parametrize(
    "here, there, right",
    [
        ("linalg.direct", "_kernels.direct.factor", True),
        ("krylov.cg", "_kernels.direct.factor", False),
        ("krylov.cg", "_kernels.sparse.crs", True),
        ("apps.fem.forms", "_kernels.fem.form_terms", True),
        ("apps.kalman.filters", "_kernels.fem.form_terms", False),
        ("apps.kalman.filters", "apps.fem.forms", False),
        ("_kernels.ode.step", "_kernels.direct.factor", True),
        ("_kernels.fem.forms", "_kernels.direct.factor", False),
    ],
)
def test_what_is_of_others(here, there, right):
    assert is_of_others(tuple(here.split(".")), tuple(there.split("."))) != right


def test_what_goes_down():
    assert goes_down(("krylov", "cg"), ("linalg", "crs")) and goes_down(("krylov", "cg"), ("krylov", "minres"))
    assert not goes_down(("linalg", "crs"), ("krylov", "cg")) and not goes_down(("ode",), ("krylov", "cg"))


def groups_of(edges: dict) -> list[list]:
    """The strongly connected groups of more than one file (Tarjan 1972)."""
    order, low, stack, groups = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in edges[node]:
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                groups.append(sorted(group))

    for node in edges:
        if node not in order:
            visit(node)
    return groups


def test_no_group_of_files_imports_each_other():
    """Imports within functions and those for types alone count: a reader has to follow them, too."""
    edges = {parts: files_imported(path) & set(FILES) - {parts} for parts, path in FILES.items()}
    assert [[".".join(parts) for parts in group] for group in groups_of(edges)] == []


def test_private_names_stay_in_their_module():
    crossing = [
        f"{path.relative_to(ROOT)}: {module}.{name}"
        for path in SOURCES
        for module, name in imported_names(path)
        if module.startswith("ensemble") and name.startswith("_") and not name.startswith("__")
        and (*module.split("."), name) not in FILES
    ]  # fmt: skip
    assert crossing == []


LLVM = {
    "_compile/c_functions.py", "_compile/plain_code.py", "_compile/plain_language.py", "_compile/plain_translation.py",
    "_compile/translator_blocks.py", "_compile/lanes/lane_blocks.py", "_compile/lanes/complex_numbers.py",
    *(f"_compile/loops/{name}.py" for name in ("arrays", "calls", "native_call", "reader", "scope")),
    *(f"_compile/loops/{name}.py" for name in ("statements", "translation", "values")),
    "_compile/machine_code.py", "_compile/instructions.py", "_compile/numba_private.py", "_compile/processor.py",
    "_compile/powers.py",
    *(f"_compile/lanes/{name}.py" for name in ("arithmetic", "inverse_root", "straight_line", "tables", "tiles")),
    *(f"_compile/lanes/{name}.py" for name in ("transpose", "types")),
}  # fmt: skip
"""The files that write instructions of their own, or ask LLVM for names."""

LLVM_ALONE = {
    "_compile/translator_blocks.py", "_compile/instructions.py", "_compile/lanes/complex_numbers.py",
    "_compile/lanes/tiles.py", "_compile/lanes/transpose.py", "_compile/loops/reader.py", "_compile/loops/scope.py",
    "_compile/machine_code.py", "_compile/numba_private.py", "_compile/plain_language.py",
    "_compile/plain_translation.py",
}  # fmt: skip
"""Those that import llvmlite, and Numba not."""

NUMBA = {
    "_compile/allocation.py", "_compile/kernel_cache.py", "_compile/lanes/library.py", "_compile/numba.py",
    "_compile/processor.py", "_compile/work_sharing.py",
}  # fmt: skip


@pytest.mark.parametrize(
    "module, users",
    [
        ("numba", {*NUMBA, *LLVM} - LLVM_ALONE),
        ("llvmlite", LLVM),
        ("cupy", {"_backend.py", "_compile/device.py", "_compile/device_messages.py", "_compile/streams.py"}),
        ("array_api_compat", {"_backend.py"}),
        ("meshio", {"apps/fem/mesh_files.py"}),
        ("skfem", {"apps/fem/interop.py"}),
        ("mpi4py", {"distributed/messages.py"}),
        ("pymetis", {"distributed/graph_partition.py"}),
        ("dis", {"_byte_code.py"}),
        ("opcode", set()),
    ],
)
def test_one_door_to_each_library(module, users):
    found = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if any(name.split(".")[0] == module for name, _ in imported_names(path))
        or re.search(rf'\boptional\("{module}[".]', text_of(path))
    }
    assert found == users


def test_names_of_numba_outside_its_public_interface_stand_in_one_module():
    public = {"numba", "numba.extending"}
    assert {
        (str(path.relative_to(ROOT)), module)
        for path in SOURCES
        for module, _ in imported_names(path)
        if module.split(".")[0] == "numba" and module not in public
    } == set()


KERNELS_AND_MODULES = [path for path in ROOT.rglob("*") if path.suffix in (".py", ".cu", ".cuh")]


def test_files_above_400_lines_say_why():
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in KERNELS_AND_MODULES}
    long = {name for name, text in texts.items() if text.count("\n") > 400}
    assert [name for name in sorted(long) if "Longer than 400 lines" not in texts[name][:1500]] == []


def long_functions(node, said=""):
    """Names of functions whose text, after signature and docstring, has more than 60 lines, unless a docstring around
    it, or its own, says why."""
    for child in ast.iter_child_nodes(node):
        reason = said
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            reason = said + (ast.get_docstring(child) or "")
        if isinstance(child, ast.FunctionDef):
            body = child.body[1:] if ast.get_docstring(child) else child.body
            if (
                body
                and child.end_lineno - body[0].lineno >= 60
                and "Longer than 60 lines:" not in " ".join(reason.split())
            ):
                yield child.name
        yield from long_functions(child, reason)


def test_functions_above_60_lines_say_why():
    found = {str(path.relative_to(ROOT)): list(long_functions(ast.parse(path.read_text()))) for path in SOURCES}
    assert {path: names for path, names in found.items() if names} == {
        "krylov/newton.py": ["newton"],  # its docstring is the user's; the loop of steps reads what was checked
    }


SHARED = {"launch", "result", "blocks", "generated", "memory", "utils", "helpers", "common"}
"""Names of files that tell nothing beside those of their folders; `krylov.result` is the path of a public error."""


def test_names_of_files_tell_them_apart():
    found = [str(path.relative_to(ROOT)) for path in SOURCES if path.stem in SHARED]
    assert found == ["krylov/result.py"]


HEAVY = ("array_api_compat.numpy", "llvmlite", "matplotlib", "mpi4py", "numba", "pandas", "scipy", "tqdm")


@pytest.mark.parametrize("arguments", [["-c", "import ensemble"], ["-m", "ensemble", "--help"]], ids=str)
def test_an_import_loads_no_library_that_is_not_used_yet(arguments):
    """Half the time of `import ensemble` was Numba's import, and a quarter SciPy's."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=True, cwd=ROOT.parent
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "ensemble.scalar" in loaded and loaded.isdisjoint(HEAVY)


def test_folders_of_tests_are_packages():
    """Without that pytest cannot collect two files of one name, of which every folder may have a conftest."""
    folders = {path.parent for name in ("test_*.py", "conftest.py") for path in Path(__file__).parent.rglob(name)}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_test_module_imports_from_another():
    """What several of them use stands in a helper module, so that a test module can be changed or deleted alone."""
    tests = Path(__file__).parent
    crossing = []
    maybe = re.compile(r"\btests(\.\w+)*\.test_|\bfrom tests\b[.\w]* import (\(|[^\n]*\btest_)")
    for path in sorted(tests.rglob("*.py")):
        for node in imports_of(path) if maybe.search(path.read_text()) else ():
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                names = [alias.name for alias in node.names]
            crossing += [
                f"{path.relative_to(tests)}: {name}" for name in names if re.search(r"^tests\.(\w+\.)*test_", name)
            ]
    assert crossing == []
