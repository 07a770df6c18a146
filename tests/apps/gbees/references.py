"""The public program's outputs, and the problems that they are outputs of."""

from pathlib import Path

import numpy as np

from ensemble._backend import to_numpy
from ensemble.apps.gbees.problem import Problem
from ensemble.apps.gbees.systems.lorenz import lorenz63, lorenz96

DATA = Path(__file__).parents[2] / "data" / "gbees"


def reference(name):
    """The arrays of one file."""
    with np.load(DATA / f"{name}.npz") as file:
        return dict(file)


def start(name, **options):
    """Problem, multi-indices and probabilities at the start, written down from the definition."""
    data = reference(name)
    drift, half, sigma = (lorenz63, 6, 1.0) if name.startswith("l63") else (lorenz96(4.0), 3, 0.2)
    origin, widths = data["mu"], data["dx"]
    problem = Problem(drift, origin, widths, float(data["thresh"]), **options)
    axes = [np.arange(-half, half + 1)] * len(origin)
    indices = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(origin))
    p = np.exp(-0.5 * np.sum((widths * indices / sigma) ** 2, axis=1))
    return problem, indices, p / p.sum()


def assert_same(engine, data, record, rtol):
    """The active cells are those of the record, and their probabilities agree to `rtol`."""
    indices, p = (to_numpy(part) for part in engine.cells())
    active = p >= float(data["thresh"])
    np.testing.assert_array_equal(indices[active], data[f"{record}_s"])
    np.testing.assert_allclose(p[active], data[f"{record}_p"], rtol=rtol)


def distance(engine, data, record):
    """L1 distance to a record over its active cells."""
    indices, p = (to_numpy(part) for part in engine.cells())
    mine = {tuple(s): float(q) for s, q in zip(indices.tolist(), p, strict=True)}
    theirs = zip(data[f"{record}_s"].tolist(), data[f"{record}_p"], strict=True)
    return sum(abs(mine.get(tuple(s), 0.0) - q) for s, q in theirs)


def run_lorenz63(engine, name="l63_p5e-6", n_records=4, **options):
    """The paper's run, the measurement x3 = -8 in the middle: yields the run at each record, and the record."""
    problem, indices, p = start(name, **options)
    data, run = reference(name), engine(problem, indices, p)
    steps, cell_steps = 0, 0
    for interval in (0, 1):
        yield run, data, f"P{interval}_pdf_0", (steps, cell_steps)
        for record in range(1, n_records + 1):
            taken = run.advance(0.0, 1.0 / n_records)
            steps, cell_steps = steps + len(taken.lengths), cell_steps + int(taken.cells.sum())
            assert taken.masses.min() > 0.999 and taken.masses.max() < 1.001
            yield run, data, f"P{interval}_pdf_{record}", (steps, cell_steps)
        if interval == 0:
            x3 = problem.widths[2] * to_numpy(run.cells()[0])[:, 2] + problem.origin[2]
            run.reweight(-0.5 * (x3 + 8.0) ** 2)
