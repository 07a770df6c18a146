"""Lists and arrays that are none of what a public function takes: one error, in the library's words."""

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import gallery, krylov, linalg, multigrid, ode, quadrature, uq
from ensemble.apps import fem, gbees
from ensemble.scalar import Ensemble, SampleSet
from tests.walked import every

A = gallery.poisson((6,), 3)
MESH = fem.TetMesh.box(1)
X = Ensemble(np.arange(12.0).reshape(4, 3))
INPUTS = en.Inputs(a=stats.norm(), b=stats.uniform())
DRAWN = INPUTS.samples(8, seed=1)
CELLS = gbees.Cells(np.array([[0, 0], [1, 0]]), np.array([0.5, 0.5]), np.zeros(2), np.ones(2))
TABLES = {
    "unknowns": MESH.tets, "n_unknowns": 8, "shape": np.ones((4, 1)), "gradients": np.ones((6, 4, 1, 3)),
    "dx": np.ones((6, 1)), "x": np.ones((6, 1, 3)),
}  # fmt: skip


def still(t, y, p, xp):
    return [0.0 * v for v in y]


def tabulated(name):
    return lambda v: fem.TabulatedSpace(**{**TABLES, name: v})


def noise(v):
    start, options = Ensemble(np.ones((1, 2))), {"method": "euler-maruyama", "step": 0.5, "noise": still}
    return ode.solve(still, start, (0.0, 1.0), noise_samples=v, **options)


def written(argument):
    return lambda v: fem.write_mesh("never.vtu", MESH, **{argument: {"a": v}})


VECTORS = {
    "from_coo: rows": lambda v: linalg.CrsMatrix.from_coo(v, [0, 1], [1.0, 1.0], (6, 6)),
    "from_coo: cols": lambda v: linalg.CrsMatrix.from_coo([0, 1], v, [1.0, 1.0], (6, 6)),
    "CrsGraph: indptr": lambda v: linalg.CrsGraph(v, [0], (1, 1)),
    "CrsGraph: indices": lambda v: linalg.CrsGraph([0, 2], v, (1, 6)),
    "apply_dirichlet: rows": lambda v: linalg.apply_dirichlet(A, np.ones(6), v),
    "submatrix: rows": lambda v: A.submatrix(v, None),
    "submatrix: columns": lambda v: A.submatrix(slice(None), v),
    "CrsMatrix[rows, columns]": lambda v: A[v, [0, 1]],
    "CrsMatrix.take_samples": A.take_samples,
    "Factorization: ordering": lambda v: linalg.Factorization(A, ordering=v),
    "IncompleteFactorization: ordering": lambda v: linalg.IncompleteFactorization(A, ordering=v),
    "renumbered: order": MESH.renumbered,
    "BoundarySpace: facets": lambda v: fem.BoundarySpace(MESH, v),
    "BoundarySpace: numbers": lambda v: fem.BoundarySpace(MESH, None, v),
    "LinearSpace: numbers": lambda v: fem.LinearSpace(MESH, v),
    "solve: noise_samples": noise,
    "Ensemble.take_samples": X.take_samples,
    "SampleSet: ids": lambda v: SampleSet(ids=v),
    "SampleSet.take": SampleSet(n_samples=3).take,
    "Inputs.samples: ids": lambda v: INPUTS.samples(8, sampler="monte_carlo", seed=1, ids=v),
    "InputSamples.take": DRAWN.take,
    "Sobol.points: ids": lambda v: uq.Sobol().points(v, 2, 1),
    "Plan.group": lambda v: uq.plan(INPUTS, 8, seed=1, sampler="monte_carlo").group(v),
}
"""Functions of a vector of integers."""

PAIRS = {
    "ElementAssembly: dofs": lambda v: linalg.ElementAssembly(v, 6),
    "add_elements: dofs": lambda v: linalg.add_elements(v, np.ones((1, 2)), 6),
    "CrsMatrix.from_elements: dofs": lambda v: linalg.CrsMatrix.from_elements(v, np.ones((1, 2, 2)), (6, 6)),
    "BcrsMatrix.from_elements: dofs": lambda v: linalg.BcrsMatrix.from_elements(v, np.ones((1, 2, 2, 2, 2)), (12, 12)),
    "TetMesh: tets": lambda v: fem.TetMesh(MESH.points, v),
    "TetMesh.oriented: tets": lambda v: fem.TetMesh.oriented(MESH.points, v),
    "TetArrays: tets": lambda v: fem.edge_lengths(fem.TetArrays(MESH.points, v)),
    "merge_nodes: pairs": lambda v: fem.merge_nodes(MESH, v),
    "TabulatedSpace: unknowns": tabulated("unknowns"),
}
"""Functions of rows of integers."""

NUMBERS = {
    "from_coo: values": lambda v: linalg.CrsMatrix.from_coo([0, 1], [0, 1], v, (6, 6)),
    "from_elements: matrices": lambda v: linalg.CrsMatrix.from_elements([[0, 1]], v, (6, 6)),
    "add_elements: vectors": lambda v: linalg.add_elements([[0, 1]], v, 6),
    "CrsMatrix: values": lambda v: linalg.CrsMatrix(A.graph, v),
    "SymmetricCrsMatrix: values": lambda v: linalg.SymmetricCrsMatrix(A.graph, v),
    "BcrsMatrix: values": lambda v: linalg.BcrsMatrix(A.graph, v),
    "AffineMatrix: terms": lambda v: linalg.AffineMatrix(A.graph, v, np.ones(1)),
    "AffineMatrix: coefficients": lambda v: linalg.AffineMatrix(A.graph, np.ones((A.nnz, 3)), v),
    "Diagonal: entries": linalg.Diagonal,
    "apply_dirichlet: b": lambda v: linalg.apply_dirichlet(A, v, [0]),
    "CrsMatrix @": lambda v: A @ v,
    "@ CrsMatrix": lambda v: v @ A,
    "Factorization.solve: b": lambda v: linalg.Factorization(A).solve(A, v),
    "cg: b": lambda v: krylov.cg(A, v),
    "cg: x0": lambda v: krylov.cg(A, np.ones(6), x0=v),
    "cg: rtol": lambda v: krylov.cg(A, np.ones(6), rtol=v),
    "direct: b": lambda v: krylov.direct(A, v),
    "group_samples: key": lambda v: krylov.group_samples(v, 2),
    "anisotropy: coefficients": krylov.anisotropy,
    "predict_iterations: points": lambda v: krylov.predict_iterations(v, np.ones((2, 3)), np.ones(3)),
    "WarmStart.guess: points": krylov.WarmStart().guess,
    "WarmStart.add: x": lambda v: krylov.WarmStart().add(np.ones((2,)), v),
    "smoothed_aggregation: near_nullspace": lambda v: multigrid.smoothed_aggregation(A, near_nullspace=v),
    "rigid_body_modes: points": multigrid.rigid_body_modes,
    "TetMesh: points": lambda v: fem.TetMesh(v, MESH.tets),
    "TetMesh.box: lengths": lambda v: fem.TetMesh.box(1, lengths=v),
    "HexMesh.box: cells": lambda v: fem.HexMesh.box(v),
    **{f"TabulatedSpace: {name}": tabulated(name) for name in ("shape", "gradients", "dx", "x")},
    "facets_where: condition": lambda v: MESH.facets_where(lambda x, y, z: v),
    "stiffness_matrix: diffusivity": lambda v: fem.stiffness_matrix(MESH, v),
    "mass_matrix: density": lambda v: fem.mass_matrix(MESH, fem.at_nodes(v)),
    "write_mesh: point_data": written("point_data"),
    "solve: y0": lambda v: ode.solve(still, v, (0.0, 1.0)),
    "solve: p": lambda v: ode.solve(still, [1.0], (0.0, 1.0), p=v),
    "solve: t_eval": lambda v: ode.solve(still, [1.0], (0.0, 1.0), t_eval=v),
    "solve: atol": lambda v: ode.solve(still, [1.0], (0.0, 1.0), atol=v),
    "gauss: bounds": lambda v: quadrature.gauss(lambda q, xp: q[0], 1, 3, "legendre", bounds=v),
    "gauss: p": lambda v: quadrature.gauss(lambda q, p, xp: q[0], 1, 3, p=v),
    "shared": en.shared,
    "from_samples": en.from_samples,
    "all_samples": en.all_samples,
    "sample_quantile: q": lambda v: en.sample_quantile(X, v),
    "SampleSet: points": lambda v: SampleSet(points=v),
    "SampleSet: weights": lambda v: SampleSet(weights=v),
    "Points: points": uq.Points,
    "Mixture: weights": lambda v: uq.Mixture([stats.norm(), stats.norm(1.0)], v),
    "Inputs: correlation": lambda v: en.Inputs(a=stats.norm(), b=stats.norm(), correlation=v),
    "Inputs.from_uniform": INPUTS.from_uniform,
    "InputSamples.fail": DRAWN.fail,
    "KarhunenLoeve.from_matrix": lambda v: uq.fields.KarhunenLoeve.from_matrix(v, 1),
    "KarhunenLoeve.from_points": lambda v: uq.fields.KarhunenLoeve.from_points(v, "exponential", 1, length=1.0),
    "highest_density_regions: masses": lambda v: gbees.highest_density_regions(CELLS, v),
    "convection_diffusion: velocity": lambda v: gallery.convection_diffusion((3, 3), v),
}
"""Functions of numbers."""

RAGGED = [[0, 1], [1]]
ERRORS = (TypeError, ValueError, IndexError)
TEMPLATE = r"^[^;]+: [^;]+ (must|should) .+; got .+"


@every("function", [*VECTORS.values(), *PAIRS.values(), *NUMBERS.values()])  # fmt: skip
def test_parts_of_different_shapes_are_named(function):
    with pytest.raises(ERRORS, match=TEMPLATE) as caught:
        function(RAGGED)
    assert "inhomogeneous" not in str(caught.value)


NO_INTEGERS = {
    "strings": ["a", "b"], "None": [None, None], "floats": [0.5, 1.5], "whole floats": [0.0, 1.0], "nan": [np.nan, 0.0],
    "too many bits": [2**70, 0], "complex": [1j, 0.0], "too large": [0, 999],
}  # fmt: skip

ANY_SIZE = ("SampleSet: ids", "solve: noise_samples", "Sobol.points: ids", "TetArrays: tets")
"""Numbers of samples that have no end."""


def kinds_that_name_nothing(name):
    """Numbers that no place in an array has; some functions take any integer that is not negative."""
    return [kind for kind in NO_INTEGERS if kind != "too large" or name not in ANY_SIZE]


@every("name, kind", [(name, kind) for name in VECTORS for kind in kinds_that_name_nothing(name)])
def test_a_vector_that_names_nothing_is_refused(name, kind):
    """None is cut to an integer."""
    with pytest.raises(ERRORS, match=TEMPLATE):
        VECTORS[name](NO_INTEGERS[kind])


@every("name, kind", [(name, kind) for name in PAIRS for kind in kinds_that_name_nothing(name)])
def test_rows_that_name_nothing_are_refused(name, kind):
    width = 4 if "tets" in name or "unknowns" in name else 2
    row = NO_INTEGERS[kind] * (width // 2)
    with pytest.raises(ERRORS, match=TEMPLATE):
        PAIRS[name](np.array([row]) if name == "TetArrays: tets" else [row])


@every("kind", ["strings", "None", "too many bits"])
@every("name", [name for name in NUMBERS if name != "SampleSet: points"])
def test_what_is_no_number_is_refused(name, kind):
    with pytest.raises(ERRORS, match=TEMPLATE):
        NUMBERS[name](NO_INTEGERS[kind])


def test_single_things_where_several_are_taken_are_refused():
    for call in (lambda: en.from_samples(None), lambda: en.from_samples(3), lambda: en.Categorical(None),
                 lambda: gbees.project(CELLS, 1), lambda: gallery.poisson(3), lambda: MESH.facets_where(None),
                 lambda: multigrid.approximate_ideal_restriction(A, sweeps=2.0),
                 lambda: ode.sensitivities(still, [1.0], (0.0, 1.0), directions=1.0),
                 lambda: ode.sensitivities(still, [1.0], (0.0, 1.0), wrt=[["y0"], "p"])):  # fmt: skip
        with pytest.raises(ERRORS, match=TEMPLATE):
            call()


def test_places_count_from_the_end_and_may_be_bools():
    assert SampleSet(ids=[10, 11, 12]).take([-1, 0]).ids.tolist() == [12, 10]
    assert SampleSet(ids=[10, 11, 12]).take([True, False, True]).ids.tolist() == [10, 12]
    assert DRAWN.take(np.arange(8) > 5).ids.tolist() == [6, 7]
    with pytest.raises(IndexError, match=r"SampleSet.take: indices must be from -3 to 2; got 0 ... 3"):
        SampleSet(n_samples=3).take([0, 3])
    with pytest.raises(
        ValueError, match=r"ElementAssembly: dofs must be integers of shape .*; got a list with parts of"
    ):
        linalg.ElementAssembly(RAGGED, 3)


def test_stored_samples_are_named_by_integers(tmp_path):
    study = en.propagate(lambda x: x.a, INPUTS, 8, seed=1, store=tmp_path / "s", progress=False, sampler="monte_carlo")
    assert study.n_done == 8
    store = uq.Store.open(tmp_path / "s")
    for bad in ([0.5, 1.5], RAGGED, ["a"], [None]):
        with pytest.raises(ERRORS, match=r"^Store.read: ids must .*; got"):
            store.read("y", bad)
    assert store.read("y", [1]).shape == (1,)
