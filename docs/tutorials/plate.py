"""A finite-element problem of one's own, from a random field to a map of sensitivities.

A square plate with a round hole is heated at the hole, held at an uncertain temperature along its left side, and
conducts heat with a random conductivity. The mesh is scikit-fem's, the element matrices are formulas of one's own, and
every solve carries many samples.

Run it, from any folder: ``python plate.py`` prints what it finds and draws ``plate.png`` in the current folder, or
the file that its argument names. It needs ``pip install 'ensemble-arrays[tutorials]'``.
"""

import sys
from pathlib import Path

import numpy as np
import skfem
from scipy import stats
from scipy.spatial import Delaunay

import ensemble as en
from ensemble.krylov import cg
from ensemble.linalg import CrsMatrix, apply_dirichlet
from ensemble.multigrid import smoothed_aggregation

RADIUS = 0.2

# %% The mesh: rings around the hole and a grid, triangulated, and refined by scikit-fem. Lengths in m.
grid = np.stack(np.meshgrid(np.linspace(-0.5, 0.5, 17), np.linspace(-0.5, 0.5, 17)), axis=-1).reshape(-1, 2)
angle = np.linspace(0.0, 2.0 * np.pi, 24, endpoint=False)
rings = [r * np.stack([np.cos(angle + k % 2 * np.pi / 24), np.sin(angle + k % 2 * np.pi / 24)], axis=-1)
         for k, r in enumerate((RADIUS, 0.24))]  # fmt: skip
points = np.concatenate([*rings, grid[np.hypot(*grid.T) > 0.27]])
triangles = Delaunay(points).simplices
triangles = triangles[np.hypot(*points[triangles].mean(axis=1).T) > RADIUS * np.cos(np.pi / 24)]
mesh = skfem.MeshTri(points.T.copy(), triangles.T.astype(np.int64)).refined(1)
nodes, triangles = mesh.p.T, mesh.t.T
left = np.flatnonzero(nodes[:, 0] < -0.5 + 1e-9)

# %% Element matrices: of a linear triangle, conductivity times area times the products of its gradients.
corners = nodes[triangles]
edges = np.stack([corners[:, 2] - corners[:, 1], corners[:, 0] - corners[:, 2], corners[:, 1] - corners[:, 0]], axis=1)
area = 0.5 * np.abs(edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0])
stiffness = np.einsum("eid,ejd->eij", edges, edges) / (4.0 * area[:, None, None])  # for a conductivity of 1 W/(m K)
centres = corners.mean(axis=1)

# %% Heat enters along the edges of the hole, the same flux everywhere: half of each edge's share goes to either end.
rim = mesh.facets[
    :, [f for f in mesh.boundary_facets() if np.hypot(*mesh.p[:, mesh.facets[:, f]]).max() < RADIUS + 1e-6]
]
lengths = np.hypot(*(mesh.p[:, rim[0]] - mesh.p[:, rim[1]]))
rim_load = np.bincount(rim.reshape(-1), np.tile(0.5 * lengths, 2), minlength=len(nodes))

# %% What is uncertain: the conductivity, a lognormal field of correlation length 0.4 m; the flux at the hole; the
# temperature of the left side. The expansion keeps 95 % of the field's variance.
inputs = en.Inputs(
    conductivity=en.fields.KarhunenLoeve.exponential(
        [(-0.5, 0.5), (-0.5, 0.5)], 0.4, 24, mean=np.log(15.0), std=0.4, transform="lognormal"
    ),
    flux=stats.norm(2000.0, 300.0),  # W/m^2
    side=stats.uniform(290.0, 10.0),  # K
)


# %% The model: one call for all samples of a group. They share the graph of the matrix; every number of it has a
# sample axis.
def temperature(x):
    kappa = x.conductivity(centres).samples  # (n_elements, n_samples)
    A = CrsMatrix.from_elements(triangles, stiffness[..., None] * kappa[:, None, None, :], (len(nodes), len(nodes)))
    b = en.Ensemble(rim_load[:, None] * x.flux.samples)
    A, b = apply_dirichlet(A, b, left, en.Ensemble(np.repeat(x.side.samples[None], left.size, axis=0)))
    solved = cg(A, b, M=smoothed_aggregation(A), rtol=1e-9)
    x.fail(~solved.converged, "not converged")
    return {"T": solved.x, "hottest": en.Ensemble(solved.x.samples.max(axis=0))}


# %% 256 rows of 5 samples each: the first and total Sobol' indices of the temperature at every node, in one pass.
indices = en.sobol_indices(temperature, inputs, 256, seed=4, ensemble_size=64, progress=False)

# %% The temperature itself: mean, deviation, and the chance that the plate exceeds 400 K somewhere.
result = en.propagate(temperature, inputs, 512, seed=5, ensemble_size=64, progress=False)
too_hot = result.probability("hottest", "> 400")
too_hot_range = result.confidence_interval("hottest", of="probability", condition="> 400")


def report():
    print(f"{len(nodes)} nodes, {len(triangles)} triangles, {inputs.n_germs} random numbers per sample")
    print(f"hottest place         {result.mean('hottest'):.1f} K, standard deviation {result.std('hottest'):.1f} K")
    print(
        f"hotter than 400 K     {too_hot.value:.3f}, 95 % interval {too_hot_range.low:.3f} to {too_hot_range.high:.3f}"
    )
    for name, first, total in zip(indices.inputs, indices.first["hottest"], indices.total["hottest"], strict=True):
        print(f"part of {name:<13} first {first:.2f}, total {total:.2f}")


def draw(path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 8.6), layout="constrained")
    parts = [
        ("temperature (K):\nmean", result.mean("T"), "inferno", None),
        ("temperature (K):\nstandard deviation", result.std("T"), "inferno", None),
    ]
    first = np.where(result.std("T") > 1e-9, indices.first["T"], np.nan)
    words = {"conductivity": "the conductivity", "flux": "the heat flux at the hole", "side": "the left side"}
    parts += [
        (f"share of the variance:\n{words[name]}", first[k], "cividis", (0.0, 1.0))
        for k, name in enumerate(indices.inputs)
    ]
    for ax, (title, values, colors, limits) in zip(figure.subplots(3, 2).flat, parts, strict=False):
        low, high = limits or (None, None)
        drawn = ax.tripcolor(*nodes.T, triangles, values, shading="gouraud", cmap=colors, vmin=low, vmax=high)
        figure.colorbar(drawn, ax=ax)
        ax.set(aspect="equal", xticks=[], yticks=[])
        ax.set_title(title, fontsize=10.5)
        ax.spines[:].set_visible(False)
    last = figure.axes[5]
    result.plot.hist("hottest", ax=last)
    last.legend(loc="upper center", bbox_to_anchor=(0.5, 1.45), frameon=False)
    last.set_xlabel("hottest place (K)")
    last.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    report()
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "plate.png"))
