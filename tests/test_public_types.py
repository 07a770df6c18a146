"""A user's type checker sees more than `Any` of public functions, and no change makes it see less."""

from tests.public_types import functions, untyped

RESULTS, ARGUMENTS = 346, 762
"""Annotations that tell nothing, at most: `python -m tests.public_types` lists them. Lower them with each that goes."""


def test_annotations_that_tell_nothing_become_fewer():
    found = [name for _, name, _ in untyped()]
    results = found.count("return")
    assert results <= RESULTS and len(found) - results <= ARGUMENTS, (results, len(found) - results)


TYPED = [
    *(f"Ensemble.{name}: return" for name in ("__add__", "__rsub__", "__lt__", "__neg__", "mean", "std", "sum", "max")),
    *(f"{name}: return" for name in ("sample_mean", "sample_var", "sample_quantile", "probability")),
    *(f"UqResult.{name}: return" for name in ("mean", "std", "quantile")),
    *(f"solve: {name}" for name in ("y0", "t", "p", "rtol", "step")),
    *(f"cg: {name}" for name in ("A", "b", "x0", "M")),
    *("propagate: executor", "kalman_filter: mask", "kalman_filter: comm", "Sampler.points: ids"),
    *("CrsMatrix.apply: x", "CrsMatrix.apply: out", "CrsMatrix.astype: dtype", "Ensemble.__add__: other"),
]


def test_operators_methods_statistics_and_solvers_are_typed():
    known = {path.removeprefix("ensemble.") for path, _ in functions()}
    ends = {f"{path.rpartition('.')[2]}: {name}" for path, name, _ in untyped()}
    ends |= {f"{'.'.join(path.split('.')[-2:])}: {name}" for path, name, _ in untyped()}
    for name in TYPED:
        assert any(path.endswith(name.partition(":")[0]) for path in known), name
        assert name not in ends, name
