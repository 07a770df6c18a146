"""A plume over a mountain: transport by an uncertain wind with uncertain mixing, all samples at once on tetrahedra.

Run it, from any folder: ``python mountain.py`` prints what it finds, draws ``mountain.png`` in the current folder, or
the file that its argument names, and writes mean and standard deviation of the concentration to ``plume.vtu``. It needs
``pip install 'ensemble-arrays[tutorials]'``.
"""

import sys
from pathlib import Path

import numpy as np
from tqdm import trange

import ensemble as en
from ensemble.apps import fem
from ensemble.krylov import bicgstab, cg
from ensemble.linalg import Diagonal, apply_dirichlet
from ensemble.multigrid import smoothed_aggregation

N_SAMPLES, N_STEPS, STEP, THETA = 32, 30, 60.0, 0.5
SIZE = 2.0e4  # of the domain along x and y, in m; it is 4 km high


# %% The domain: 20 x 20 x 4 km over a hill of 600 m, in tetrahedra.
def hill(x, y):
    return 600.0 / (1.0 + ((x - 0.5 * SIZE) ** 2 + (y - 0.5 * SIZE) ** 2) / 2.5e3**2) ** 1.5


mesh = fem.TetMesh.box((24, 24, 10), lengths=(SIZE, SIZE, 4.0e3), terrain=hill)

# %% The wind is a potential flow around the hill: one potential for a wind along x and one for a wind along y, with no
# flow through the ground. They are solved for once.
laplacian = fem.stiffness_matrix(mesh)
ends = [
    mesh.nodes_where(lambda x, y, z, a=a: (np.stack([x, y])[a] == 0.0) | (np.stack([x, y])[a] == SIZE)) for a in (0, 1)
]
potentials = []
for axis, rows in enumerate(ends):
    A, b = apply_dirichlet(laplacian, np.zeros(mesh.n_nodes), rows, mesh.points[rows, axis])
    potentials.append(cg(A, b, M=smoothed_aggregation(A), rtol=1e-10).raise_if_failed().x)

# %% What is uncertain: the speed and direction of the wind, and how strongly turbulence mixes. A form reads them as
# fields; here each is an Ensemble of one number per sample.
rng = np.random.default_rng(1850)
speed = en.Ensemble(8.0 + 1.5 * rng.standard_normal(N_SAMPLES))  # m/s
angle = en.Ensemble(np.deg2rad(8.0) * rng.standard_normal(N_SAMPLES))
mixing = en.Ensemble(np.exp(np.log(60.0) + 0.5 * rng.standard_normal(N_SAMPLES)))  # m2/s


# %% The equation dc/dt + wind . grad c - div(mixing grad c) = source, with streamline-upwind test functions (SUPG):
# on this mesh a cell is carried through far faster than it is mixed.
def wind(w):
    along, across = fem.grad(w.potential[0]), fem.grad(w.potential[1])
    return w.eastward * along + w.northward * across


def upwind(v, w):
    velocity = wind(w)
    return v + w.h / (2.0 * np.sqrt(fem.dot(velocity, velocity))) * fem.dot(velocity, fem.grad(v))


@fem.bilinear_form
def mass(u, v, w):
    return u * upwind(v, w)


@fem.bilinear_form
def transport(u, v, w):
    return fem.dot(wind(w), fem.grad(u)) * upwind(v, w) + w.mixing * fem.dot(fem.grad(u), fem.grad(v))


@fem.linear_form
def emission(v, w):
    return w.source * upwind(v, w)


# %% A chimney upwind of the hill: 1 kg/s, spread over 400 m around a point 200 m above the ground.
chimney = np.array([0.3 * SIZE, 0.5 * SIZE, hill(0.3 * SIZE, 0.5 * SIZE) + 200.0])
source = np.exp(-0.5 * np.sum((mesh.points - chimney) ** 2, axis=1) / 400.0**2)
source /= fem.mass_matrix(mesh).to_scipy(0).dot(source).sum()

# %% The theta method. The wind has gusts, so every step assembles its matrices anew, for all samples in one pass over
# the elements, and solves one system per sample. Clean air enters at x = 0.
potential = fem.at_nodes(np.stack(potentials, axis=1))
inflow = mesh.nodes_where(lambda x, y, z: x == 0.0)
concentration = en.Ensemble(np.zeros((mesh.n_nodes, N_SAMPLES)))
iterations = []
for step in trange(N_STEPS, desc="steps", disable=not sys.stderr.isatty()):
    gust = speed * (1.0 + 0.2 * np.sin(2.0 * np.pi * (step + THETA) * STEP / 900.0))
    fields = {"potential": potential, "eastward": gust * np.cos(angle), "northward": gust * np.sin(angle)}
    M, A, b = fem.assemble(mesh, mass, transport, emission, source=fem.at_nodes(source), mixing=mixing, **fields)
    right = M @ concentration - (1.0 - THETA) * STEP * (A @ concentration) + STEP * b
    left, right = apply_dirichlet(M + THETA * STEP * A, right, inflow, symmetric=False)
    solved = bicgstab(left, right, x0=concentration, M=Diagonal(1.0 / left.diagonal()), rtol=1e-8)
    concentration = solved.raise_if_failed().x
    iterations.append(solved.iterations)

# %% What is left in the domain, and what people on the lee side breathe, sample by sample.
emitted = N_STEPS * STEP
volume = fem.mass_matrix(mesh)
inside = en.xp.sum(volume @ concentration, axis=0)
lee = int(np.argmin(np.sum((mesh.points - [0.7 * SIZE, 0.5 * SIZE, hill(0.7 * SIZE, 0.5 * SIZE)]) ** 2, axis=1)))
at_lee = concentration[lee] * 1e9  # micrograms per cubic metre
mean, deviation = en.sample_mean(concentration), en.sample_std(concentration)


def report():
    """What was found, in words."""
    print(f"{mesh.n_elements:,} tetrahedra, {N_SAMPLES} samples, {N_STEPS} steps of {STEP:.0f} s")
    print(f"iterations per step and sample: {np.mean(iterations):.1f}")
    print(f"emitted {emitted:.0f} kg, inside {en.sample_mean(inside):.0f} kg +- {en.sample_std(inside):.1f}")
    low, high = en.sample_quantile(at_lee, [0.1, 0.9])
    print(f"behind the hill {en.sample_mean(at_lee):.2f} micrograms/m3, 80 % of samples in {low:.2f} to {high:.2f}")


def write(path):
    """Mean and standard deviation on the mesh, for ParaView."""
    fem.write_mesh(path, mesh, point_data={"concentration": concentration})


def draw(path):
    """Mean and spread on the ground."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ground = np.isclose(mesh.points[:, 2], hill(mesh.points[:, 0], mesh.points[:, 1]))
    x, y, z = mesh.points[ground].T / 1e3
    figure, axes = plt.subplots(2, 1, figsize=(6.4, 6.6), layout="constrained", sharex=True)
    for axis, values, title in zip(axes, (mean, deviation), ("mean", "standard deviation"), strict=True):
        micrograms = np.maximum(values[ground], 0.0) * 1e9
        levels = np.linspace(0.0, 1.02 * micrograms.max(), 13)[1:]
        drawn = axis.tricontourf(x, y, micrograms, levels=levels, cmap="cividis_r")
        height = axis.tricontour(x, y, z, levels=[0.1, 0.3, 0.5], colors="0.35", linewidths=0.8)
        axis.clabel(height, fmt="%.1f km", fontsize=9)
        axis.set(ylabel="y, km", ylim=(4.5, 15.5), aspect="equal")
        axis.set_title(f"{title} of the concentration\nat the ground after {emitted / 60:.0f} minutes", fontsize=10.5)
        axis.spines[["top", "right"]].set_visible(False)
        figure.colorbar(drawn, ax=axis, label="µg/m³", format="%.0f")
    axes[1].set_xlabel("x, km; lines: height of the ground")
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    report()
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "mountain.png"))
    try:
        write("plume.vtu")
    except ImportError as absent:
        print(absent)
