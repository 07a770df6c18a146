"""A package that is not installed is named in one line, with what to install; nothing else needs it."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import _optional
from ensemble.apps import fem, gbees
from ensemble.uq import adapters

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def study():
    return en.propagate(lambda x: {"y": 2.0 * x.a}, en.Inputs(a=stats.uniform()), 8, seed=1, progress=False)


CALLS = {
    "xarray": [
        lambda: en.Ensemble(np.arange(3.0)).to_xarray(),
        lambda: study().to_xarray(),
        lambda: study().save("never.nc"),
        lambda: study().save("never.csv"),
    ],
    "pandas": [lambda: study().to_pandas()],
    "matplotlib": [
        lambda: en.plot_histogram(en.Ensemble(np.arange(3.0))),
        lambda: study().plot.hist("y"),
        lambda: gbees.legend_handles((0.5,)),
    ],
    "meshio": [lambda: fem.TetMesh.read("never.msh")],
    "skfem": [lambda: fem.from_skfem(None)],
    "openturns": [lambda: adapters.to_openturns(lambda x: {"y": x.a}, en.Inputs(a=stats.uniform()))],
    "umbridge": [lambda: adapters.to_um_bridge(lambda x: {"y": x.a}, en.Inputs(a=stats.uniform()))],
}


@pytest.mark.parametrize("package", CALLS)
def test_a_missing_package_is_one_line_that_names_what_to_install(package, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    for call in CALLS[package]:
        with pytest.raises(ImportError) as caught:
            call()
        text = str(caught.value)
        assert "\n" not in text and text.endswith(_optional.advice_for(package))
        assert list(tmp_path.iterdir()) == []


def test_extras_that_messages_name_are_those_of_the_project():
    assert PROJECT["name"] == _optional.DISTRIBUTION
    for package, extra in _optional.EXTRAS.items():
        top = {"mpl_toolkits": "matplotlib", "skfem": "scikit-fem"}.get(package, package)
        assert any(one.startswith(top) for one in PROJECT["optional-dependencies"][extra]), package


ALONE = {"cupy", "torch", "jax"}
"""Reached with their own arrays alone, or after `prototype`."""

OTHERS = {"mpi4py", "dask", "cloudpickle", "fsspec", "pymetis", "sklearn"}
"""Reached with an object of theirs, guarded in place, or after `optional`."""

KNOWN = {*sys.stdlib_module_names, "ensemble", "numpy", "numba", "llvmlite", "scipy", "threadpoolctl"}
KNOWN |= {"array_api_compat", "tqdm", *ALONE, *OTHERS}

NAME = r"([a-z]\w*(?:\.\w+)*)"
FOR_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?: .*\n|\n)+", re.MULTILINE)

STATEMENT = re.compile(rf"^ *(?:import {NAME}(?: as \w+)?(?:  #.*)?$|from {NAME} import )", re.MULTILINE)


def test_packages_that_need_not_be_installed_are_imported_by_one_function():
    direct = set()
    for path in (ROOT / "ensemble").rglob("*.py"):  # by lines: parsing all sources takes ten seconds
        names = {one or other for one, other in STATEMENT.findall(FOR_TYPES.sub("", path.read_text()))}
        direct |= {(str(path.relative_to(ROOT)), n) for n in names if n.partition(".")[0] not in KNOWN}
    after_the_check = {"ensemble/_command/diffusion/plot.py", "ensemble/_command/gbees/plot.py"}
    after_the_check |= {"ensemble/_command/ode/command.py", "ensemble/apps/gbees/analysis/plots.py"}
    assert {path for path, _ in direct} >= {"ensemble/_command/gbees/plot.py"}, direct
    assert {path for path, _ in direct} <= after_the_check | {"ensemble/apps/kalman/interop/tables.py"}


def test_import_and_a_study_need_no_matplotlib():
    code = (
        "import sys; sys.modules['matplotlib'] = None; import ensemble as en; from scipy import stats\n"
        "r = en.propagate(lambda x: {'y': x.a}, en.Inputs(a=stats.uniform()), 8, seed=1, progress=False); print(r.n)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.returncode) == ("8\n", 0), done.stderr


def test_what_asks_for_torch_or_jax_is_found_by_their_names():
    """`make test-libraries-here` takes tests by these names: no other run has the two libraries."""
    unnamed = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        if re.search("torch|jax", path.name):
            continue
        for node in ast.parse(path.read_text()).body:
            asks = isinstance(node, ast.FunctionDef) and any(
                isinstance(each, ast.Call)
                and ast.unparse(each.func) == "pytest.importorskip"
                and re.match(r"'(torch|jax)", ast.unparse(each.args[0]))
                for each in ast.walk(node)
            )
            if asks and not re.search("torch|jax", node.name):
                values = " ".join(ast.unparse(each) for each in node.decorator_list)
                unnamed += [] if re.search("torch|jax", values) else [f"{path.name}::{node.name}"]
    assert unnamed == []
