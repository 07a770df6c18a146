"""Ready-made matrices against their definitions in dense arithmetic."""

import numpy as np
import pytest

from ensemble.apps import fem
from ensemble.scalar import Ensemble
from tests.apps.fem.form_problems import mesh_of, tensor_diffusion


def test_pressure_stabilisation_is_the_product_of_its_factors():
    mesh, theta = mesh_of(), 0.6
    corners = mesh.points[mesh.tets]
    i, j = np.triu_indices(4, 1)
    edges = corners[:, j] - corners[:, i]
    values, vectors = np.linalg.eigh(0.5 * np.einsum("eki,ekj->eij", edges, edges))
    lengths = np.einsum("eik,ek,ejk->eij", vectors, np.sqrt(values), vectors)
    inverse = np.linalg.inv(corners[:, 1:] - corners[:, :1])
    g = np.concatenate([-inverse.sum(axis=2)[:, None], np.swapaxes(inverse, 1, 2)], axis=1)
    element = 0.5 * mesh.volumes[:, None, None] * np.einsum("eai,eij,ebj->eab", g, lengths, g)
    K = np.zeros((mesh.n_nodes, mesh.n_nodes))
    lumped = np.zeros(mesh.n_nodes)
    for nodes, matrix, volume in zip(mesh.tets, element, mesh.volumes, strict=True):
        K[np.ix_(nodes, nodes)] += matrix
        lumped[nodes] += volume / 4.0
    expected = K.T @ np.diag(1.0 / lumped) @ K / theta
    made = fem.pressure_stabilisation(mesh, theta).to_scipy(0).toarray()
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-13 * abs(expected).max())
    assert np.linalg.eigvalsh(made).min() > -1e-12 * abs(made).max()


def test_theta_must_be_positive():
    with pytest.raises(ValueError, match=r"pressure_stabilisation: theta must be .*; got 0"):
        fem.pressure_stabilisation(mesh_of((1, 1, 1)), 0.0)


@pytest.mark.parametrize("function", [fem.mass_matrix, fem.stiffness_matrix, fem.pressure_stabilisation])
def test_arguments_of_another_name_are_refused(function):
    with pytest.raises(TypeError, match="unexpected keyword argument 'kappa'"):
        function(mesh_of((1, 1, 1)), kappa=2.0)


@pytest.mark.parametrize("function", [fem.mass_matrix, fem.stiffness_matrix])
def test_a_number_that_is_not_finite_is_told_where_the_matrix_is_asked_for(function):
    with pytest.warns(RuntimeWarning, match="should be finite; got NaN or infinity in sample 1") as caught:
        made = function(mesh_of((1, 1, 1)), Ensemble(np.array([2.0, np.nan])))
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(made.values[:, 0], function(mesh_of((1, 1, 1)), 2.0).values[:, 0])


def test_a_tensor_is_one_for_the_domain_whatever_the_number_of_elements(rng):
    points = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]])
    prism = fem.TetMesh.oriented(points, [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]])
    tensor = rng.normal(size=(3, 3))
    expected = fem.stiffness_matrix(prism, np.broadcast_to(tensor, (3, 3, 3))).values
    np.testing.assert_array_equal(fem.stiffness_matrix(prism, tensor).values, expected)
    with pytest.raises(ValueError, match=r"kappa must fit one place.* which fits number and element.*constant"):
        tensor_diffusion.assemble(prism, kappa=tensor)
    np.testing.assert_array_equal(tensor_diffusion.assemble(prism, kappa=fem.constant(tensor)).values, expected)


@pytest.mark.parametrize(
    ("shape", "seen"), [((3,), "a vector of 3"), ((2, 2), r"shape \(2, 2\)"), ((27, 3), "a vector of 3")]
)
def test_a_diffusivity_is_a_number_or_a_tensor(shape, seen):
    with pytest.raises(ValueError, match=rf"stiffness_matrix: diffusivity must be a number or \(3, 3\).* got {seen}"):
        fem.stiffness_matrix(fem.TetMesh.box(2), np.ones(shape))
