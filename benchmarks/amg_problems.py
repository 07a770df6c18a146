"""Sixty-six matrices for multigrid: PyAMG's gallery and examples, and the kinds that are known to be hard.

Each problem says what its user knows of it: a near-nullspace, unknowns per node, symmetry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

SEED = 41387


@dataclass(frozen=True)
class Problem:
    """A matrix and what is known of it."""

    A: Any
    near_nullspace: np.ndarray | None = None
    block_size: int = 1
    symmetric: bool = True
    singular: bool = False

    def right_hand_side(self) -> np.ndarray:
        """A random vector of norm one; in the range of a singular matrix."""
        b = np.random.default_rng(SEED).standard_normal(self.A.shape[0])
        if self.singular:
            b = self.A @ b
        return b / np.linalg.norm(b)


# --- scalar diffusion on grids
def poisson(*shape: int) -> Problem:
    """Second differences, Dirichlet."""
    from pyamg.gallery import poisson as matrix

    return Problem(sp.csr_array(matrix(shape, format="csr")))


def nine_points(n: int) -> Problem:
    """Bilinear elements on squares."""
    from pyamg.gallery import stencil_grid

    stencil = np.full((3, 3), -1.0)
    stencil[1, 1] = 8.0
    return Problem(sp.csr_array(stencil_grid(stencil, (n, n), format="csr")))


def twenty_seven_points(n: int) -> Problem:
    """The 27-point stencil of -1 and 26."""
    from pyamg.gallery import stencil_grid

    stencil = np.full((3, 3, 3), -1.0)
    stencil[1, 1, 1] = 26.0
    return Problem(sp.csr_array(stencil_grid(stencil, (n, n, n), format="csr")))


def anisotropic(epsilon: float, degrees: float, kind: str = "FE", n: int = 100) -> Problem:
    """Diffusion with `epsilon` across a direction turned by `degrees`."""
    from pyamg.gallery import diffusion_stencil_2d, stencil_grid

    stencil = diffusion_stencil_2d(epsilon=epsilon, theta=np.deg2rad(degrees), type=kind)
    return Problem(sp.csr_array(stencil_grid(stencil, (n, n), format="csr")))


def anisotropic_3d(weights: tuple[float, float, float], n: int = 24) -> Problem:
    """Second differences with a weight for each axis."""
    second = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    eye = sp.eye_array(n)
    terms = [
        sp.kron(sp.kron(second, eye), eye),
        sp.kron(sp.kron(eye, second), eye),
        sp.kron(sp.kron(eye, eye), second),
    ]
    return Problem(sp.csr_array(sum(w * t for w, t in zip(weights, terms, strict=True))))


# --- graphs with weights
def laplacian(n: int, i: Any, j: Any, weights: Any, shift: Any = 0.0) -> Any:
    """The Laplacian of a graph with edges (i, j), plus a diagonal."""
    adjacency = sp.coo_array((np.concatenate([weights, weights]), (np.r_[i, j], np.r_[j, i])), shape=(n, n)).tocsr()
    degrees = np.asarray(adjacency.sum(axis=1)).ravel() + shift
    return sp.csr_array(sp.diags_array(degrees) - adjacency)


def grid_edges(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges of an n x n grid."""
    nodes = np.arange(n * n).reshape(n, n)
    i = np.concatenate([nodes[:, :-1].ravel(), nodes[:-1].ravel()])
    j = np.concatenate([nodes[:, 1:].ravel(), nodes[1:].ravel()])
    return i, j


def variable(n: int, kappa: np.ndarray) -> Problem:
    """Finite volumes for the coefficient `kappa` of each cell, harmonic means on faces, Dirichlet all round."""
    i, j = grid_edges(n)
    kappa = kappa.ravel()
    weights = 2.0 * kappa[i] * kappa[j] / (kappa[i] + kappa[j])
    rim = np.zeros((n, n))
    for side in (rim[0], rim[-1], rim[:, 0], rim[:, -1]):
        side += 1.0
    return Problem(laplacian(n * n, i, j, weights, 2.0 * kappa * rim.ravel()))


def jump(contrast: float, n: int = 100, cells: int = 5) -> Problem:
    """A checkerboard of coefficients 1 and `contrast`."""
    place = np.arange(n) * cells // n
    return variable(n, np.where((place[:, None] + place) % 2, contrast, 1.0))


def inclusions(contrast: float, n: int = 100) -> Problem:
    """Square inclusions of coefficient `contrast` in a matrix of 1."""
    place = (np.arange(n) // 5) % 4 == 1
    return variable(n, np.where(place[:, None] & place, contrast, 1.0))


def lognormal(variance: float, n: int = 100) -> Problem:
    """The exponential of smoothed noise."""
    from scipy.ndimage import gaussian_filter

    noise = gaussian_filter(np.random.default_rng(SEED).standard_normal((n, n)), 2.0)
    return variable(n, np.exp(np.sqrt(variance) * noise / noise.std()))


def neumann(n: int, dimensions: int = 2) -> Problem:
    """Second differences without a boundary: singular."""
    ones = np.ones(n)
    second = sp.diags_array([-ones[1:], 2.0 * ones, -ones[1:]], offsets=[-1, 0, 1]).tolil()
    second[0, 0] = second[-1, -1] = 1.0
    A = second = sp.csr_array(second)
    for _ in range(dimensions - 1):
        A = sp.kron(A, sp.eye_array(n)) + sp.kron(sp.eye_array(A.shape[0]), second)
    return Problem(sp.csr_array(A), singular=True)


def scaled(decades: float, n: int = 100, known: bool = False) -> Problem:
    """D A D with D spread over `decades`; `known`: the near-nullspace D^-1 1 is given."""
    d = 10.0 ** np.random.default_rng(SEED).uniform(-decades / 2, decades / 2, n * n)
    D = sp.diags_array(d)
    return Problem(sp.csr_array(D @ poisson(n, n).A @ D), near_nullspace=1.0 / d if known else None)


def random_graph(n: int, degree: int, spread: float = 0.0) -> Problem:
    """A graph with random edges, weights over `spread` decades, and a shift that makes it definite."""
    generator = np.random.default_rng(SEED)
    i, j = generator.integers(0, n, (2, n * degree // 2))
    keep = i != j
    weights = 10.0 ** generator.uniform(-spread / 2, spread / 2, keep.sum())
    return Problem(laplacian(n, i[keep], j[keep], weights, 1e-3))


def small_world(n: int = 10_000, rewired: float = 0.02) -> Problem:
    """A ring of four neighbours each, of which a few lead elsewhere."""
    generator = np.random.default_rng(SEED)
    i = np.repeat(np.arange(n), 2)
    j = (i + np.tile([1, 2], n)) % n
    j = np.where(generator.random(i.size) < rewired, generator.integers(0, n, i.size), j)
    keep = i != j
    return Problem(laplacian(n, i[keep], j[keep], np.ones(keep.sum()), 1e-4))


def geometric_graph(n: int = 10_000, neighbours: int = 6, spread: float = 0.0) -> Problem:
    """Nearest neighbours of random points of the unit square."""
    from scipy.spatial import cKDTree

    generator = np.random.default_rng(SEED)
    points = generator.random((n, 2))
    near = cKDTree(points).query(points, neighbours + 1)[1][:, 1:]
    i, j = np.repeat(np.arange(n), neighbours), near.ravel()
    return Problem(laplacian(n, i, j, 10.0 ** generator.uniform(-spread / 2, spread / 2, i.size), 1e-4))


# --- elements
def elasticity(n: int, modes: bool = True) -> Problem:
    """Plane elasticity; `modes`: the rigid body modes are given."""
    from pyamg.gallery import linear_elasticity

    A, B = linear_elasticity((n, n))
    return Problem(sp.csr_array(A), B if modes else None, 2)


def example(name: str) -> Problem:
    """A problem that comes with PyAMG, with the near-nullspace that comes with it."""
    from pyamg.gallery import load_example

    data = load_example(name)
    A = sp.csr_array(data["A"]).astype(np.float64)
    B = data.get("B")
    B = None if B is None or np.shape(B)[0] != A.shape[0] else np.asarray(B, np.float64)
    block_size = 3 if name == "bar" else 1
    symmetric = abs(A - A.T).max() <= 1e-10 * abs(A).max()
    return Problem(A, B, block_size, bool(symmetric), singular=name == "unit_square")


def triangles(kind: str, refinements: int) -> Problem:
    """Linear elements on an L-shaped mesh, refined near its corner, or on a disc."""
    import skfem
    from skfem.models.poisson import laplace

    if kind == "disc":
        mesh = skfem.MeshTri.init_circle(refinements)
    else:
        mesh = skfem.MeshTri.init_lshaped().refined(3)
        for _ in range(refinements):
            near = np.flatnonzero(np.linalg.norm(mesh.p[:, mesh.t].mean(axis=1), axis=0) < 0.5)
            mesh = mesh.refined(near)
    A = laplace.assemble(skfem.Basis(mesh, skfem.ElementTriP1()))
    inside = mesh.interior_nodes()
    return Problem(sp.csr_array(A[inside][:, inside]))


def tetrahedra(refinements: int) -> Problem:
    """Linear elements on a cube of tetrahedra."""
    import skfem
    from skfem.models.poisson import laplace

    mesh = skfem.MeshTet().refined(refinements)
    A = laplace.assemble(skfem.Basis(mesh, skfem.ElementTetP1()))
    inside = mesh.interior_nodes()
    return Problem(sp.csr_array(A[inside][:, inside]))


# --- convection
def convection(peclet: float, degrees: float, n: int = 100) -> Problem:
    """Diffusion of one and first-order upwind convection of strength `peclet` across the domain."""
    h = 1.0 / n
    eye = sp.eye_array(n)
    second = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)) / h**2
    back = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(n, n)) / h
    along, across = peclet * np.cos(np.deg2rad(degrees)), peclet * np.sin(np.deg2rad(degrees))
    A = sp.kron(second, eye) + sp.kron(eye, second) + along * sp.kron(eye, back) + across * sp.kron(back, eye)
    return Problem(sp.csr_array(A), symmetric=False)


def advection(degrees: float, n: int = 100) -> Problem:
    """PyAMG's pure advection, upwind."""
    from pyamg.gallery import advection_2d

    A = advection_2d((n, n), theta=np.deg2rad(degrees))
    A = A[0] if isinstance(A, tuple) else A
    return Problem(sp.csr_array(A), symmetric=False)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "poisson 1-D 1000": partial(poisson, 1000),
    "poisson 2-D 50": partial(poisson, 50, 50),
    "poisson 2-D 100": partial(poisson, 100, 100),
    "poisson 2-D 300": partial(poisson, 300, 300),
    "poisson 2-D 1000 x 20": partial(poisson, 1000, 20),
    "poisson 3-D 20": partial(poisson, 20, 20, 20),
    "poisson 3-D 40": partial(poisson, 40, 40, 40),
    "9-point 100": partial(nine_points, 100),
    "27-point 24": partial(twenty_seven_points, 24),
    **{
        f"anisotropy {eps:g}, {angle} degrees, FE": partial(anisotropic, eps, angle)
        for eps in (1e-1, 1e-2, 1e-3)
        for angle in (0, 15, 30, 45)
    },
    **{f"anisotropy 0.001, {angle} degrees, FD": partial(anisotropic, 1e-3, angle, "FD") for angle in (0, 30, 45, 60)},
    "anisotropy 3-D (1, 1, 0.001)": partial(anisotropic_3d, (1.0, 1.0, 1e-3)),
    "anisotropy 3-D (1, 0.01, 0.0001)": partial(anisotropic_3d, (1.0, 1e-2, 1e-4)),
    **{f"checkerboard {c:g}": partial(jump, c) for c in (1e2, 1e4, 1e6)},
    **{f"inclusions {c:g}": partial(inclusions, c) for c in (1e6, 1e-6)},
    **{f"lognormal, variance {v:g}": partial(lognormal, v) for v in (1.0, 4.0, 16.0)},
    "Neumann 2-D 100": partial(neumann, 100),
    "Neumann 3-D 20": partial(neumann, 20, 3),
    "D A D over 2 decades": partial(scaled, 2.0),
    "D A D over 6 decades": partial(scaled, 6.0),
    "D A D over 2 decades, D known": partial(scaled, 2.0, known=True),
    "D A D over 6 decades, D known": partial(scaled, 6.0, known=True),
    "random graph, degree 4": partial(random_graph, 10_000, 4),
    "random graph, degree 8, 4 decades": partial(random_graph, 5_000, 8, 4.0),
    "small world": partial(small_world),
    "geometric graph": partial(geometric_graph),
    "geometric graph, 4 decades": partial(geometric_graph, spread=4.0),
    "elasticity 50": partial(elasticity, 50),
    "elasticity 100": partial(elasticity, 100),
    "elasticity 50 without modes": partial(elasticity, 50, modes=False),
    "example airfoil": partial(example, "airfoil"),
    "example bar": partial(example, "bar"),
    "example knot": partial(example, "knot"),
    "example local_disc_galerkin_diffusion": partial(example, "local_disc_galerkin_diffusion"),
    "example unit_cube": partial(example, "unit_cube"),
    "example unit_square": partial(example, "unit_square"),
    "L shape, refined": partial(triangles, "L", 3),
    "disc": partial(triangles, "disc", 6),
    "cube of tetrahedra": partial(tetrahedra, 4),
    "example recirc_flow": partial(example, "recirc_flow"),
    **{f"convection {p:g}, 30 degrees": partial(convection, p, 30) for p in (1e1, 1e3, 1e5)},
    "convection 1e+08, 70 degrees": partial(convection, 1e8, 70),
    **{f"advection {angle} degrees": partial(advection, angle) for angle in (20, 45, 70)},
}
"""Name to maker."""
