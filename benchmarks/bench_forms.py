"""Assembly on tetrahedra: Laplace and mass matrices, and diffusion for 32 samples, against scikit-fem, one thread.

One thread is timed by its processor time, which leaves out what other processes take. Records: `forms-1threads`, of the
matrices of a time step `forms-steps-1threads`. Bytes
that must move are stated in `ensemble/_kernels/fem/form_loops.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from benchmarks.common import SEED, EnsembleBenchmark, interleaved, median, ratio, save, show
from benchmarks.mountain import NINE_OF_TEN, STEP_FORMS, mountain_mesh, step_fields
from ensemble.apps import fem
from ensemble.krylov import cg
from ensemble.linalg import apply_dirichlet
from ensemble.multigrid import smoothed_aggregation
from ensemble.scalar import Ensemble

SAMPLES = (1, 2, 4, 8, 16, 32, 64)


@fem.bilinear_form
def laplace(u: Any, v: Any, w: Any) -> Any:
    """As a user writes it."""
    return fem.dot(fem.grad(u), fem.grad(v))


@fem.bilinear_form
def mass(u: Any, v: Any, w: Any) -> Any:
    """As a user writes it."""
    return u * v


@fem.bilinear_form
def diffusion(u: Any, v: Any, w: Any) -> Any:
    """As a user writes it."""
    return w.kappa * fem.dot(fem.grad(u), fem.grad(v))


def clock() -> Callable[[], float]:
    """Processor time of one thread, else time on the wall."""
    return time.process_time if numba.get_num_threads() == 1 else time.perf_counter


def diffusivities(mesh: fem.TetMesh, n_samples: int) -> Ensemble:
    """Samples per element."""
    return Ensemble(np.random.default_rng(SEED).uniform(0.5, 2.0, (mesh.n_elements, n_samples)))


class Forms(EnsembleBenchmark):
    """Diffusion on 6 * 12^3 tetrahedra."""

    def setup(self, backend: str, n_samples: int) -> None:
        super().setup(backend, n_samples)
        self.mesh = fem.TetMesh.box(12, jitter=0.1, seed=SEED)
        self.kappa = diffusivities(self.mesh, n_samples)
        diffusion.assemble(self.mesh, kappa=self.kappa, backend=self.library)

    def time_assemble(self, backend: str, n_samples: int) -> None:
        diffusion.assemble(self.mesh, kappa=self.kappa, backend=self.library)
        self.wait()


def scikit_fem(mesh: fem.TetMesh) -> tuple[Any, dict[str, Any]]:
    """(what makes the basis, the forms) of scikit-fem on the same mesh."""
    import skfem
    from skfem.helpers import dot

    points, tets = np.ascontiguousarray(mesh.points.T), np.ascontiguousarray(mesh.tets.T)

    def basis() -> Any:
        return skfem.Basis(skfem.MeshTet(points, tets, sort_t=False), skfem.ElementTetP1())

    forms = {
        "laplace": skfem.BilinearForm(lambda u, v, w: dot(u.grad, v.grad)),
        "mass": skfem.BilinearForm(lambda u, v, w: u * v),
        "diffusion": skfem.BilinearForm(lambda u, v, w: w.kappa * dot(u.grad, v.grad)),
    }
    return basis, forms


def table(mesh: fem.TetMesh, n_samples: int, rounds: int) -> list[dict[str, Any]]:
    """Seconds of both, in turn, and the ratio; setup counted on both sides, then left out on both sides."""
    make_basis, forms = scikit_fem(mesh)
    basis = make_basis()
    points, tets, one, many = mesh.points, mesh.tets, diffusivities(mesh, 1), diffusivities(mesh, n_samples)
    at_points = np.repeat(one.samples, basis.dx.shape[1], axis=1)

    def fresh() -> Any:
        return fem.assemble(fem.TetMesh(points, tets), laplace, mass)

    def theirs_fresh() -> Any:
        own = make_basis()
        return forms["laplace"].assemble(own), forms["mass"].assemble(own)

    pairs = {
        "Laplace and mass, with setup": (fresh, theirs_fresh, 1),
        "Laplace and mass, one pass": (
            lambda: fem.assemble(mesh, laplace, mass),
            lambda: (forms["laplace"].assemble(basis), forms["mass"].assemble(basis)),
            1,
        ),
        "Laplace": (lambda: laplace.assemble(mesh), lambda: forms["laplace"].assemble(basis), 1),
        "stiffness_matrix": (lambda: fem.stiffness_matrix(mesh), lambda: forms["laplace"].assemble(basis), 1),
        "mass": (lambda: mass.assemble(mesh), lambda: forms["mass"].assemble(basis), 1),
        "diffusion, 1 sample": (
            lambda: diffusion.assemble(mesh, kappa=one),
            lambda: forms["diffusion"].assemble(basis, kappa=at_points),
            1,
        ),
        f"diffusion, {n_samples} samples": (
            lambda: diffusion.assemble(mesh, kappa=many),
            lambda: forms["diffusion"].assemble(basis, kappa=at_points),
            n_samples,
        ),
    }
    rows = []
    for name, (ours, theirs, samples) in pairs.items():
        seconds = interleaved({"ours": ours, "scikit-fem": theirs}, rounds, clock())
        rows.append(
            {
                "assembled": name,
                "ms per sample": 1e3 * median(seconds["ours"]) / samples,
                "scikit-fem ms": 1e3 * median(seconds["scikit-fem"]),
                "x scikit-fem": ratio(seconds["scikit-fem"], seconds["ours"], samples),
            }
        )
    return rows


def step_table(mesh: fem.TetMesh, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of the eight matrices of a time step, each of its own coefficients, alone and in one call."""
    fields = step_fields(mesh)
    calls = {name: (lambda form=form: form.assemble(mesh, check=False, **fields)) for name, form in STEP_FORMS.items()}
    calls["all eight"] = lambda: fem.assemble(mesh, *STEP_FORMS.values(), check=False, **fields)
    seven = [STEP_FORMS[name] for name in NINE_OF_TEN]
    calls["the seven of nine in ten steps"] = lambda: fem.assemble(mesh, *seven, check=False, **fields)
    return [{"matrix": name, "ms": 1e3 * median(times)} for name, times in interleaved(calls, rounds, clock()).items()]


def script_table(levels: int, n_samples: int, rounds: int) -> list[dict[str, Any]]:
    """A whole script, quadratic triangles on a square: assembly, fixed values, solve; scikit-fem for one sample.

    Both solve to a relative residual of 1e-10 or better: scikit-fem by SciPy's direct solver.
    """
    import skfem
    from skfem.helpers import dot

    basis = skfem.Basis(skfem.MeshTri().refined(levels).with_defaults(), skfem.ElementTriP2())
    theirs = skfem.BilinearForm(lambda u, v, w: w.kappa * dot(u.grad, v.grad))
    fixed = basis.get_dofs({"left", "right"}).flatten()
    ends = np.zeros(basis.N)
    ends[basis.get_dofs("right").flatten()] = 1.0
    x, y = basis.doflocs
    modes = np.stack([np.cos(np.pi * (i * x + j * y)) for i, j in [(1, 0), (0, 1), (1, 1), (2, 1)]], axis=1)
    kappa = np.exp(modes @ np.random.default_rng(SEED).uniform(-0.5, 0.5, (4, n_samples)))
    space = fem.from_skfem(basis)

    def one() -> Any:
        A = theirs.assemble(basis, kappa=basis.interpolate(kappa[:, 0]))
        return skfem.solve(*skfem.condense(A, np.zeros(basis.N), x=ends, D=fixed))

    def many() -> Ensemble:
        A = diffusion.assemble(space, kappa=Ensemble(kappa))
        A, b = apply_dirichlet(A, np.zeros(basis.N), fixed, ends[fixed])
        return cg(A, b, M=smoothed_aggregation(A), rtol=1e-10).raise_if_failed().x

    error = float(abs(many().samples[:, 0] - one()).max())
    if not error < 1e-7:
        raise AssertionError(f"the solutions differ by {error:.1e}")
    seconds = interleaved({"ours": many, "scikit-fem": one}, rounds, clock())
    return [
        {"run": "scikit-fem, 1 sample", "unknowns": int(basis.N), "seconds": median(seconds["scikit-fem"])},
        {
            "run": f"ours, {n_samples} samples", "unknowns": int(basis.N), "seconds": median(seconds["ours"]),
            "ms per sample": 1e3 * median(seconds["ours"]) / n_samples,
            "x scikit-fem": ratio(seconds["scikit-fem"], seconds["ours"], n_samples),
        },
    ]  # fmt: skip


def samples() -> None:
    """Diffusion on tetrahedra against the number of samples."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks forms-samples", description=samples.__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    numba.set_num_threads(options.threads)
    mesh = mountain_mesh()
    given = {s: diffusivities(mesh, s) for s in SAMPLES}
    calls = {str(s): (lambda kappa=kappa: diffusion.assemble(mesh, kappa=kappa)) for s, kappa in given.items()}
    rows = []
    for n_samples, seconds in zip(SAMPLES, interleaved(calls, options.rounds, clock()).values(), strict=True):
        ms = 1e3 * median(seconds)
        rows.append({"samples": n_samples, "ms": ms, "ms per sample": ms / n_samples})
    show(f"Diffusion, {mesh.n_elements} tetrahedra, {mesh.n_nodes} nodes", rows)
    save(f"forms-samples-{options.threads}threads", rows, elements=mesh.n_elements, nodes=mesh.n_nodes)


def main() -> None:
    """Print the tables and keep them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks forms", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    numba.set_num_threads(options.threads)
    mesh = mountain_mesh()
    rows = table(mesh, options.samples, options.rounds)
    show(f"{mesh.n_elements} tetrahedra, {mesh.n_nodes} nodes", rows)
    steps = step_table(mesh, options.rounds)
    show("Matrices of a time step, one sample", steps)
    script = script_table(6, 256, options.rounds)
    show(
        "A script of scikit-fem, for one sample and for many",
        [{"ms per sample": "", "x scikit-fem": ""} | row for row in script],
    )
    about = {"elements": mesh.n_elements, "nodes": mesh.n_nodes}
    save(f"forms-{options.threads}threads", rows, script=script, **about)
    save(f"forms-steps-{options.threads}threads", steps, **about)


if __name__ == "__main__":
    main()
