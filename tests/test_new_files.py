"""What `tools.new` makes in a copy of this tree works as it is, and its made tests pass."""

import os
import re
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

from ensemble import Ensemble, gallery, ode
from ensemble.krylov import minres
from ensemble.ode.methods import METHODS
from tools import new

MADE = {"krylov": "richardson", "ode": "bosh3", "sampler": "lattice", "kernel": "halved"}


def test_every_kind_is_made():
    assert set(MADE) == set(new.KINDS)


@pytest.fixture
def made(tmp_path):
    """The files of every kind, made in a copy of the tree."""
    for folder in ("ensemble", "tools"):
        shutil.copytree(new.ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("tests/krylov", "tests/ode", "tests/uq/samplers"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(new.ROOT / "tests/cases.py", tmp_path / "tests/cases.py")
    shutil.copy(new.ROOT / "pyproject.toml", tmp_path)
    return [path for kind, name in MADE.items() for path in new.make(kind, name, root=tmp_path)]


def test_made_files_are_in_the_style_of_the_project(made, tmp_path):
    """Each name is written out, nothing is imported that is not used; each kind has a test."""
    checked = subprocess.run(["ruff", "check", *map(str, made)], capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert sum(path.name.startswith("test_") for path in made) == len(MADE)


@pytest.mark.slow
def test_made_methods_pass_their_made_tests(made, tmp_path):
    (tmp_path / "pyproject.toml").unlink()
    tests = [str(path) for path in made if path.name.startswith("test_")]
    pytest_alone = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *tests]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(pytest_alone, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pair_of_the_page_has_its_order_also_between_steps(monkeypatch):
    page = (new.ROOT / "docs/howto/add.md").read_text()
    names = {}
    exec("from ensemble.ode.methods.runge_kutta import Tableau, explicit_method, hermite_output", names)
    exec(re.search(r"```python\n(C = .*?)```", page, re.DOTALL)[1], names)
    monkeypatch.setitem(METHODS, "bosh3", names["BOSH3"])
    rates, times = np.array([1.0, 2.0]), np.array([0.0, 0.4, 1.0])

    def errors(**steps):
        result = ode.solve(
            lambda t, y, p, xp: [-p[0] * y[0]], [1.0], (0.0, 1.0), p=[Ensemble(rates)], method="bosh3", t_eval=times,
            **steps,
        )  # fmt: skip
        return np.abs(result.y.samples[1:, 0] - np.exp(-np.outer(times[1:], rates))).max(axis=-1)

    order = np.log2(errors(step=0.25) / errors(step=0.125))
    assert 2.5 < order[0] < 4.5 and 2.7 < order[1] < 3.3
    assert errors(rtol=1e-8, atol=1e-10).max() < 1e-7


def made_module(name, monkeypatch):
    """The made public module of a Krylov method, without files; that of its scalars is imported from there."""
    given = {"name": name, "Name": name.capitalize(), "NAME": name.upper(), "folder": "dense"}
    texts = new.made_files(new.KINDS["krylov"], given, new.ROOT)
    for path in (f"ensemble/krylov/host_scalars/{name}", f"ensemble/krylov/{name}"):
        module = types.ModuleType(path.replace("/", "."))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(texts[new.ROOT / f"{path}.py"], vars(module))
    return module


def test_the_iteration_of_the_page_is_what_a_made_krylov_method_runs(monkeypatch):
    """Conjugate residuals have the residuals of MINRES where A is definite; a model with a compiled loop of its own
    would run instead of what is written."""
    page = (new.ROOT / "docs/howto/add.md").read_text()
    made = made_module("residuals", monkeypatch)

    class ConjugateResiduals(made.ResidualsIteration):
        vectors, scratch, multiplied = ("b", "x", "r", "p", "q"), ("z", "w"), ("x", "z")

        def __init__(self, system):
            super().__init__(system)
            self.q, self.w = np.empty_like(self.b), np.empty_like(self.b)

    exec(re.search(r"```python\n(def iterate.*?)```", page, re.DOTALL)[1], vars(made))
    ConjugateResiduals.iterate = made.iterate
    made.ResidualsIteration = ConjugateResiduals
    A, b = gallery.poisson((9, 8)), np.random.default_rng(31910).normal(size=(72, 3))
    found, expected = made.residuals(A, Ensemble(b)), minres(A, Ensemble(b))
    np.testing.assert_allclose(found.residual_norms, expected.residual_norms, rtol=1e-5)


@pytest.mark.parametrize("name", ["Richardson", "two words", "class", "cg"])
def test_names_that_cannot_be_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match="NAME must be"):
        new.make("krylov", name)


def test_an_entry_comes_to_its_place_in_the_first_list_of_its_kind():
    text = "import b\nimport d\n\nimport a\n"
    assert new.with_entry(text, "import c", "import ") == "import b\nimport c\nimport d\n\nimport a\n"
    assert new.with_entry(text, "import a0", "import ", at_end=True) == "import b\nimport d\nimport a0\n\nimport a\n"
