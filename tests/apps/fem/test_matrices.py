"""Ready-made matrices against their definitions in dense arithmetic."""

import numpy as np
import pytest

from ensemble.apps import fem
from tests.apps.fem.form_problems import mesh_of


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
