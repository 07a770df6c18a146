"""Ensembles and arrays of two libraries refuse each other, by one error that names both and the remedy."""

import importlib.util
import itertools

import array_api_strict
import numpy as np
import pytest

from ensemble.scalar import (
    Ensemble,
    cond,
    divide,
    dot,
    from_samples,
    sample_corr,
    sample_cov,
    where,
)
from tests.walked import every

VALUES = np.random.default_rng(61813).uniform(1.0, 2.0, size=(3, 3, 4))
MIDDLE = float(np.median(VALUES[0, 0]))


def array_of(library, values):
    """`values` as an array of the library of that name."""
    match library:
        case "numpy":
            return values.copy()
        case "strict":
            return array_api_strict.asarray(values)
        case "torch":
            return importlib.import_module("torch").as_tensor(values.copy())
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray(values)


def assigned(a, b):
    a[0, :] = b[0, :]


def added(a, b):
    a += b


def xp(a):
    return a.__array_namespace__()


OF_BOTH = {
    "+": lambda a, b: a + b,
    "reversed": lambda a, b: b + a,
    "**": lambda a, b: a**b,
    "<": lambda a, b: a < b,
    "@": lambda a, b: a @ b,
    "in place": added,
    "assignment": assigned,
    "where": lambda a, b: where(a > 1.5, b, 0.0),
    "where of both": lambda a, b: where(a > 1.5, a, b),
    "divide": lambda a, b: divide(a, b, where=a > 1.0, fill=0.0),
    "maximum": lambda a, b: xp(a).maximum(a, b),
    "clip": lambda a, b: xp(a).clip(a, b),
    "sin": lambda a, b: xp(a).sin(b),
    "sum": lambda a, b: xp(a).sum(b),
    "concat": lambda a, b: xp(a).concat([a, b]),
    "stack": lambda a, b: xp(a).stack([a, b]),
    "matmul": lambda a, b: xp(a).matmul(a, b),
    "tensordot": lambda a, b: xp(a).tensordot(a, b),
    "solve": lambda a, b: xp(a).linalg.solve(a, b),
    "inv": lambda a, b: xp(a).linalg.inv(b),
    "fft": lambda a, b: xp(a).fft.fft(b),
    "searchsorted": lambda a, b: xp(a).searchsorted(a[0, :], b[0, :]),
    "np.add": lambda a, b: np.add(a, b),
    "np.where": lambda a, b: np.where(a > 1.5, a, b),
    "np.concatenate": lambda a, b: np.concatenate([a, b]),
    "np.outer": lambda a, b: np.outer(a, b),
    "np.einsum": lambda a, b: np.einsum("ij,jk->ik", a, b),
}
OF_ENSEMBLES = {
    "divide by mask": lambda a, b: divide(a, 2.0, where=b > 1.0, fill=0.0),
    "index": lambda a, b: a[b > 1.5],
    "dot": lambda a, b: dot(a[0, :], b[0, :]),
    "sample_cov": lambda a, b: sample_cov(a[0, :], b[0, :]),
    "sample_corr": lambda a, b: sample_corr(a[0, 0], b[0, 0]),
    "cond": lambda a, b: cond(a[0, 0] > MIDDLE, lambda x, y: x, lambda x, y: y, a, b),
    "from_samples": lambda a, b: from_samples([a.sample(0), b.sample(1)]),
}
OPTIONAL = ("torch", "jax")
INSTALLED = ["numpy", "strict", *(name for name in OPTIONAL if importlib.util.find_spec(name))]
PAIRS = list(itertools.permutations(INSTALLED, 2))


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_library_is_among_the_pairs(name):
    pytest.importorskip(name)
    assert name in INSTALLED


@every("first, second", PAIRS)
@every("name", [*OF_BOTH, *OF_ENSEMBLES])
def test_ensembles_of_two_libraries_refuse_each_other(name, first, second):
    call = (OF_BOTH | OF_ENSEMBLES)[name]
    a, b = (Ensemble(array_of(library, VALUES)) for library in (first, second))
    names = sorted(name if name != "strict" else "array_api_strict" for name in (first, second))
    with pytest.raises(TypeError, match=f"must come from one array library; got {'|'.join(names)}.* Convert") as error:
        call(a, b)
    assert all(library in str(error.value) for library in names)


@every("first, second", PAIRS)
@every("name", OF_BOTH)
def test_an_ensemble_and_an_array_of_another_library_refuse_each_other(name, first, second):
    a, b = Ensemble(array_of(first, VALUES)), array_of(second, VALUES[..., 0])
    plain_left = name == "reversed" and second == "strict"  # whose operators refuse by an error of their own
    with pytest.raises(TypeError, match="." if plain_left else "must come from one array library"):
        OF_BOTH[name](a, b)
