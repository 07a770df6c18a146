"""Assembly on tetrahedra on a CUDA device: matrices of one and of many samples, and the eight of a time step.

`python -m benchmarks forms-device` checks each matrix against the CPU, then times what an assembly queues between CUDA
events, after a large buffer was read. The CPU assembles each form once, for one sample. Record:
`forms-h200` on an H200, `forms-cuda` elsewhere.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from benchmarks.bench_forms import SAMPLES, diffusion, diffusivities, laplace, mass
from benchmarks.common import cuda_device, of_device, save, show
from benchmarks.device_clock import milliseconds, peak_bandwidth
from benchmarks.mountain import NINE_OF_TEN, STEP_FORMS, mountain_mesh, step_fields
from benchmarks.papers.published_atmosphere import MATRICES
from ensemble import Ensemble
from ensemble.apps import fem

PUBLISHED = {name: device for name, (_, device) in MATRICES.items()}
"""Milliseconds of whole functional modules on an A100, Fluidity-Atmosphere (Li et al.), table 8."""


def on_device(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, copied."""
    import cupy

    copied = {}
    for name, value in fields.items():
        if isinstance(value, Ensemble):
            copied[name] = Ensemble(cupy.asarray(value.samples), value.sample_set)
        else:
            copied[name] = cupy.asarray(value) if isinstance(value, np.ndarray) else value
    return copied


def check(made: Any, expected: np.ndarray, sample: int = 0) -> None:
    """Raise where one sample of a matrix differs from the CPU's values by more than rounding."""
    import cupy

    error = float(abs(cupy.asnumpy(made.values[..., sample]) - expected[..., 0]).max() / abs(expected).max())
    if not error <= 2e-14:
        raise AssertionError(f"device and CPU differ by {error:.1e} in sample {sample}")


def launched(mesh: fem.TetMesh, forms: list[Any], made: list[Any], fields: dict[str, Any]) -> Any:
    """Queue the assembly into matrices that are there."""
    return fem.assemble(mesh, *forms, out=made, backend="cupy", check=False, **fields)


def timed(mesh: fem.TetMesh, forms: list[Any], made: list[Any], fields: dict[str, Any], repeats: int) -> float:
    """Milliseconds of assembling `forms` in place."""
    return milliseconds(lambda: launched(mesh, forms, made, fields), repeats)


def sample_rows(mesh: fem.TetMesh, repeats: int) -> list[dict[str, Any]]:
    """Forms with a bound: bytes of the values written and the coefficients read, and of the mesh.

    Of diffusion the first and the last sample are compared with runs of one sample on the CPU.
    """
    nnz = fem.LinearSpace(mesh).graph.nnz
    mesh_bytes = 24 * mesh.n_nodes + 16 * mesh.n_elements + 4 * nnz
    rows = []
    plain = {laplace: np.empty(0), mass: np.empty(0)}
    for form, matrix in zip(plain, fem.assemble(mesh, *plain), strict=True):
        plain[form] = matrix.values
    cases: list[tuple[str, list[Any], int]] = [("Laplace", [laplace], 0), ("mass", [mass], 0)]
    cases += [("Laplace and mass, one pass", [laplace, mass], 0)]
    cases += [(f"diffusion, {s} samples", [diffusion], s) for s in SAMPLES]
    for name, forms, n_samples in cases:
        fields = {"kappa": diffusivities(mesh, n_samples)} if n_samples else {}
        there = on_device(fields)
        made = fem.assemble(mesh, *forms, backend="cupy", **there)
        for form, matrix in zip(forms, made, strict=True):
            if form in plain:
                check(matrix, plain[form])
        for sample in sorted({0, n_samples - 1} if n_samples else ()):
            alone = diffusion.assemble(mesh, kappa=np.ascontiguousarray(fields["kappa"].samples[:, sample]))
            check(made[0], alone.values, sample)
        ms = timed(mesh, forms, made, there, repeats)
        moved = mesh_bytes + 8 * nnz * len(forms) * max(n_samples, 1) + 8 * mesh.n_elements * n_samples
        bound = 1e3 * moved / peak_bandwidth()
        rows.append({"assembled": name, "samples": max(n_samples, 1), "ms": ms, "ms per sample": ms / max(n_samples, 1),
                     "bound ms": bound, "fraction": bound / ms})  # fmt: skip
    return rows


def step_rows(mesh: fem.TetMesh, repeats: int) -> list[dict[str, Any]]:
    """The matrices of a time step one by one, and in one call, eight and the seven of nine in ten steps.

    Each has coefficients of its own; all are compared with one call on the CPU.
    """
    fields, rows = step_fields(mesh), []
    forms, there = list(STEP_FORMS.values()), on_device(fields)
    expected = [matrix.values for matrix in fem.assemble(mesh, *forms, **fields)]
    for (name, form), values in zip(STEP_FORMS.items(), expected, strict=True):
        scalar = "vector" not in form.components
        made = [form.assemble(mesh, backend="cupy", **there)]
        check(made[0], values)
        if scalar:
            ms = timed(mesh, [form], made, there, repeats)
        else:
            ms = milliseconds(partial(form.assemble, mesh, backend="cupy", check=False, **there), repeats)
        rows.append({"matrix": name, "ms": ms, "published ms": PUBLISHED[name], "x": PUBLISHED[name] / ms})
    total, published = sum(row["ms"] for row in rows), sum(PUBLISHED.values())
    rows.append({"matrix": "sum of the eight", "ms": total, "published ms": published, "x": published / total})
    for matrix, values in zip(fem.assemble(mesh, *forms, backend="cupy", **there), expected, strict=True):
        check(matrix, values)
    for title, names in (
        ("all eight in one call", tuple(STEP_FORMS)),
        ("the seven of nine in ten steps in one call", NINE_OF_TEN),
    ):
        some, published = [STEP_FORMS[name] for name in names], sum(PUBLISHED[name] for name in names)
        ms = milliseconds(partial(fem.assemble, mesh, *some, backend="cupy", check=False, **there), repeats)
        rows.append({"matrix": title, "ms": ms, "published ms": published, "x": published / ms})
    return rows


def main() -> None:
    """Print the tables and keep them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks forms-device", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    mesh = mountain_mesh()
    rows, steps = sample_rows(mesh, options.repeats), step_rows(mesh, options.repeats)
    about = cuda_device()
    show(f"{about['device']}: {mesh.n_elements} tetrahedra, {mesh.n_nodes} nodes", rows)
    show("Matrices of a time step, one sample", steps)
    name = of_device("forms", about["device"])
    save(name, rows, steps=steps, elements=mesh.n_elements, nodes=mesh.n_nodes, **about)


if __name__ == "__main__":
    main()
