"""Names of Numba that are not public may go: each is hidden in turn, and the results keep their bits."""

import functools
import json
import subprocess
import sys

import pytest

from ensemble._compile import numba_private, versions
from ensemble._compile.numba_private import PRIVATE, SYMBOLS

HIDE = """
import importlib, sys, types
from llvmlite import binding

def hide(module, path):
    original = importlib.import_module(module)
    first, *rest = path.split(".")

    class Without(types.ModuleType):
        def __getattr__(self, name):
            if name == first and sys._getframe(1).f_globals["__name__"].startswith("ensemble"):
                if not rest:
                    raise AttributeError(name)
                return types.SimpleNamespace()
            return getattr(original, name)

    sys.modules[module] = Without(module)

def rename(symbol):
    known = binding.address_of_symbol
    binding.address_of_symbol = lambda name: None if name == symbol else known(name)
"""

PROGRAM = """
import gc, hashlib, json
import numpy as np
import ensemble as en
from ensemble._compile.work_sharing import WorkSharing
from ensemble.apps import fem, gbees
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter
from ensemble.krylov import cg, direct
from ensemble.linalg import CrsMatrix
from ensemble.multigrid import smoothed_aggregation

laplacian = en.gallery.poisson((20, 20))
kappa = np.random.default_rng(7).lognormal(sigma=0.3, size=4)
found = {}

def solves():
    A = CrsMatrix(laplacian.graph, laplacian.values * kappa)
    return cg(A, np.ones(400), M=smoothed_aggregation(A), rtol=1e-8).x, direct(A, np.ones(400)).x

def filters():
    rng = np.random.default_rng(1)
    F = np.eye(2) + 0.1 * rng.normal(size=(2, 2))
    model = LinearGaussianModel(F=F, Q=0.1 * np.eye(2), H=[[1.0, 0.0]], R=np.eye(1), m0=np.zeros(2), P0=np.eye(2))
    state = kalman_filter(model, rng.normal(size=(50, 1)))
    return state.mean, state.covariance

def trajectories():
    p = en.Ensemble(np.linspace(1, 2, 4))
    oscillator = lambda t, y, p, xp: [y[1], -p[0] * xp.sin(y[0])]
    return tuple(en.ode.solve(oscillator, [p, 0.0], (0.0, 3.0), p=[p], method=m).y for m in ("tsit5", "rodas4"))

def forms():
    @fem.bilinear_form
    def diffusion(u, v, w):
        return w.kappa * fem.dot(fem.grad(u), fem.grad(v))

    return (diffusion.assemble(fem.TetMesh.box((4, 4, 4)), kappa=en.Ensemble(kappa)).values,)

def densities():
    run = gbees.Gbees(lambda x, t, xp: (x[1], -xp.sin(x[0])), mean=[1.0, 0.0], covariance=[0.04, 0.04], threshold=1e-5)
    run.advance(0.5)
    return run.mean(), run.covariance()

for run in (solves, filters, trajectories, forms, densities):
    digest = hashlib.sha256()
    for array in run():
        digest.update(np.ascontiguousarray(getattr(array, "samples", array)).tobytes())
    found[run.__name__] = digest.hexdigest()
loops = [each for each in gc.get_objects() if type(each) is WorkSharing]
print(json.dumps([found, sorted({each.__name__ for each in loops if each.by_numba})]))
"""


@functools.cache
def run(hidden=""):
    """Digests of the results of a solve, a filter, ODEs, a form and a density, and the loops that Numba compiled."""
    done = subprocess.run([sys.executable, "-c", f"{HIDE}\n{hidden}\n{PROGRAM}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow  # of kernels by themselves, tests/test_kernels.py says so always
def test_no_loop_of_the_library_falls_back_to_numba():
    assert run()[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
def test_results_keep_their_bits_without_a_private_name(name):
    got, _ = run(f"hide({PRIVATE[name].module!r}, {PRIVATE[name].name!r})")
    assert got == run()[0]


@pytest.mark.slow
@pytest.mark.parametrize("symbol", SYMBOLS)
def test_results_keep_their_bits_without_the_functions_of_threads(symbol):
    got, by_numba = run(f"rename({symbol!r})")
    assert got == run()[0]
    assert "prune" in by_numba


@pytest.mark.parametrize("name", PRIVATE)
def test_this_numba_has_the_private_names(name):
    assert numba_private.found(name) is not None


def test_a_name_that_is_gone_is_none(monkeypatch):
    gone = numba_private.Private("numba.core.registry", "cpu_target.gone", "")
    monkeypatch.setitem(PRIVATE, "gone", gone)
    assert numba_private.found("gone") is None


def test_versions_above_the_tested_ones_are_named_once(monkeypatch):
    monkeypatch.setattr(versions, "version", lambda name: "99.1.2" if name == "numba" else "0.1")
    with pytest.warns(UserWarning, match=r"numba 99\.1\.2 \(tested up to 0\.68\).* Compilation is slower"):
        versions.warn_of_newer()
    monkeypatch.setattr(versions, "version", lambda name: "99.1.2" if name == "scipy" else "0.1")
    with pytest.warns(UserWarning, match=r"scipy 99\.1\.2 \(tested up to 1\.18\).* in a checkout tells\.$") as caught:
        versions.warn_of_newer()
    assert caught[0].filename == __file__


def test_the_installed_versions_are_tested_ones():
    assert versions.newer_than_tested() == {}
