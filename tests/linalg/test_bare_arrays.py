"""Methods of operators on bare arrays refuse Ensembles, by one error that names the argument."""

import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest

import ensemble
from ensemble.gallery import poisson
from ensemble.linalg import Diagonal, Identity, SymmetricCrsMatrix
from ensemble.linalg.linear_operator import BARE, LinearOperator
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble

ROOT = Path(ensemble.__file__).parent


def classes_below(kind):
    return {kind}.union(*(classes_below(each) for each in kind.__subclasses__()))


def operator_classes():
    """The library's operators: those of every module that defines a product."""
    for path in sorted(ROOT.rglob("*.py")):
        if any(f"    def {name}(self" in path.read_text() for name in BARE):
            importlib.import_module(".".join(["ensemble", *path.relative_to(ROOT).with_suffix("").parts]))
    found = {kind for kind in classes_below(LinearOperator) if kind.__module__.startswith("ensemble.")}
    return sorted(found, key=lambda kind: f"{kind.__module__}.{kind.__name__}")


def test_every_operator_names_the_argument_that_is_an_ensemble():
    """Refused before anything is read of the operator: one without contents does."""
    x, bare, seen = Ensemble(np.ones((4, 3))), np.ones((4, 3)), 0
    for kind in operator_classes():
        for name in BARE:
            if not hasattr(kind, name) or inspect.isabstract(kind):
                continue
            method, empty = getattr(kind, name), object.__new__(kind)
            arguments = [each for each in inspect.signature(method).parameters if each != "self"]
            for wrong in arguments:
                given = [x if each == wrong else bare for each in arguments]
                for positional in (given, given[:1], []):
                    named = dict(zip(arguments[len(positional) :], given[len(positional) :], strict=True))
                    with pytest.raises(TypeError) as caught:
                        method(empty, *positional, **named)
                    assert f"{name}: {wrong} must be a bare array of shape (n, n_samples); got an " in str(caught.value)
                    assert kind.__name__ in str(caught.value) and "A @ x" in str(caught.value)
                    seen += 1
    assert seen > 500


MADE = {
    "CrsMatrix": lambda: poisson((4, 4), n_samples=3),
    "transposed": lambda: poisson((4, 4), n_samples=3).T,
    "Diagonal": lambda: Diagonal(poisson((4, 4), n_samples=3).diagonal()),
    "SymmetricCrsMatrix": lambda: SymmetricCrsMatrix.from_crs(poisson((4, 4), n_samples=3)),
    "Identity": Identity,
    "hierarchy": lambda: smoothed_aggregation(poisson((4, 4), n_samples=3)),
}


@pytest.mark.parametrize("name", MADE)
def test_an_operator_is_as_it_was_after_an_error(name):
    A, x, out = MADE[name](), np.random.default_rng(7).standard_normal((16, 3)), np.full((16, 3), 7.0)
    expected = A.apply(x).copy()
    for given, argument in (((Ensemble(x), out), r"[xr]"), ((x, Ensemble(out)), "out")):
        with pytest.raises(TypeError, match=rf"apply: {argument} must be a bare array .*; got an Ensemble"):
            A.apply(*given)
    assert np.all(out == 7.0)
    assert A.apply(x, out) is out and np.array_equal(out, expected)
    assert np.array_equal((A @ Ensemble(x)).samples, expected)
