"""Progress of a grid's run: time reached, cells, rate."""

from __future__ import annotations

import time

from ensemble._progress import SECONDS_BETWEEN_LINES, Display

__all__ = ["GridProgress"]


class GridProgress(Display):
    """Show the time reached, the cells stored and the rate: a run calls `report`.

    Parameters
    ----------
    until : float
        The run's end.
    start : float
        Start of the run or of its continuation.
    quiet : bool
        Print nothing.
    """

    def __init__(self, until: float, *, start: float = 0.0, quiet: bool = False) -> None:
        self.until, self.now = until, start
        self.cell_steps = self.first_cell_steps = 0
        form = "{percentage:3.0f}% |{bar}| t = {n:.4g} of {total:.4g} [{elapsed}{postfix}]"
        super().__init__(quiet=quiet, total=until, initial=start, bar_format=form)

    def restart(self, cell_steps: int) -> None:
        """Start the clock: what was done before does not count for the rate."""
        self.restart_clock()
        self.first_cell_steps = cell_steps

    def report(self, now: float, cells: int, cell_steps: int) -> None:
        """The run has reached the time `now` with `cells` stored, after `cell_steps` in all."""
        self.cell_steps = cell_steps
        clock = time.perf_counter()
        seconds = max(clock - self.started, 1e-9)
        rate = f"{(cell_steps - self.first_cell_steps) / seconds / 1e6:.3g} M cell-steps/s"
        if self.bar is not None:
            self.bar.set_postfix_str(f"{cells:,} cells, {rate}", refresh=False)
            self.bar.update(min(now, self.until) - self.now)
            self.now = min(now, self.until)
        elif clock - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = clock
            self.say(f"t = {now:.6g} of {self.until:g}, {cells:,} cells, {rate}")
