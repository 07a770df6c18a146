"""The errors that end a run, one function each: every engine raises the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from ensemble.apps.gbees.errors import GridError
from ensemble.apps.gbees.problem import Problem

__all__ = ["drift_not_finite", "no_cell_left", "no_probability_left", "step_too_small"]


def drift_not_finite(problem: Problem, z: Sequence[float], value: float, i: int, time: float) -> GridError:
    """For component `i` of the drift, which is `value` at the point `z` of the grid's frame."""
    where = ", ".join(f"{float(part):.6g}" for part in problem.position(z))
    return GridError(
        f"Gbees: drift must be finite; got {value} in component {i} at x = ({where}), t = {float(time):.6g}. "
        "Keep the grid away from there with bounds, or make the function finite there."
    )


def no_probability_left(seen: str, n_cells: int) -> GridError:
    """For a total probability of zero, or one that is not finite."""
    return GridError(
        f"Gbees: some probability must stay on the grid; got {seen} over {n_cells} cells. "
        "All of it left over the boundary, or bounds exclude it: widen them or lower the threshold."
    )


def no_cell_left(problem: Problem, n_cells: int) -> GridError:
    """For a prune that would delete every cell."""
    return GridError(
        f"Gbees: threshold must leave some cells; got {problem.threshold:g}, and all {n_cells} cells hold less. "
        "Lower the threshold: it has to be well below one over the number of cells that matter."
    )


def step_too_small(seen: str, time: float) -> GridError:
    """For a time step that rounding adds to nothing."""
    return GridError(f"Gbees: time steps must move the time; got {seen} t = {time:.6g}.")
