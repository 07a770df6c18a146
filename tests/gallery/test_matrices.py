"""Matrices of the gallery against their formulas."""

import numpy as np
import pytest
import scipy.sparse as sp

from ensemble.gallery import convection_diffusion


def test_convection_diffusion_is_the_sum_over_axes_of_differences_on_a_line():
    """Kronecker products of the upwind and the second difference, each axis with its own spacing."""
    shape, velocity, diffusion = (3, 1, 4), np.array([[0.5, -2.0], [1.0, 3.0], [-0.25, 0.0]]), np.array([0.0, 0.1])
    A = convection_diffusion(shape, velocity, diffusion)
    for s in range(2):
        expected = sp.csr_array((12, 12))
        for axis, n in enumerate(shape):
            w = velocity[axis, s]
            upwind = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(n, n)) * abs(w) * (n + 1)
            second = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)) * diffusion[s] * (n + 1) ** 2
            line = (upwind if w >= 0 else upwind.T) + second
            eyes = [sp.eye_array(m) for m in shape]
            eyes[axis] = line
            expected = expected + sp.kron(sp.kron(eyes[0], eyes[1]), eyes[2])
        np.testing.assert_allclose(A.to_scipy(s).toarray(), expected.toarray(), rtol=1e-14)


def test_velocities_may_vary_in_space():
    w = np.random.default_rng(50111).standard_normal((2, 4, 5, 3))
    A = convection_diffusion((4, 5), w, 0.3)
    for s in range(3):
        one = convection_diffusion((4, 5), w[..., s : s + 1], 0.3)
        np.testing.assert_array_equal(A.to_scipy(s).toarray(), one.to_scipy().toarray())
    row = A.to_scipy(2).toarray()[7].reshape(4, 5)  # at the point (1, 2)
    assert row[0, 2] == -(0.3 * 25 + 5 * max(w[0, 1, 2, 2], 0.0))
    assert row[1, 3] == -(0.3 * 36 + 6 * max(-w[1, 1, 2, 2], 0.0))


@pytest.mark.parametrize(
    "velocity, diffusion, text",
    [
        ([1.0, 0.0], 0.1, r"velocity must have shape \(2, n_samples\) or \(2, \*shape, n_samples\); got shape \(2,\)"),
        ([[1.0], [0.0]], [0.1, 0.2], "diffusion must be a number or 1 of them, zero or above"),
        ([[1.0], [0.0]], -1.0, "diffusion must be a number or 1 of them, zero or above"),
    ],
)
def test_bad_coefficients_are_refused(velocity, diffusion, text):
    with pytest.raises(ValueError, match=f"convection_diffusion: {text}"):
        convection_diffusion((3, 3), velocity, diffusion)
