"""How far a grid's run is: a bar on a terminal, now and then a line elsewhere. Everything goes to stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from tqdm import tqdm

__all__ = ["GridProgress"]

SECONDS_BETWEEN_LINES = 5.0


class GridProgress:
    """Show the time reached, the cells stored and the rate; a context manager whose `report` a run calls.

    Parameters
    ----------
    until : float
        The run's end.
    start : float
        Where it begins, or goes on.
    quiet : bool
        Say nothing at all.
    """

    def __init__(self, until: float, *, start: float = 0.0, quiet: bool = False) -> None:
        self.until, self.now, self.quiet = until, start, quiet
        self.cell_steps = self.first_cell_steps = 0
        self.started = self.last_line = time.perf_counter()
        form = "{percentage:3.0f}% |{bar}| t = {n:.4g} of {total:.4g} [{elapsed}{postfix}]"
        on_terminal = sys.stderr.isatty() and not quiet
        self.bar = (
            tqdm(total=until, initial=start, file=sys.stderr, dynamic_ncols=True, bar_format=form)
            if on_terminal
            else None
        )

    def restart(self, cell_steps: int) -> None:
        """Start the clock: what was done before does not count for the rate."""
        self.started = self.last_line = time.perf_counter()
        self.first_cell_steps = cell_steps

    def say(self, text: str) -> None:
        """Print one line beside the bar."""
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

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

    def __enter__(self) -> GridProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()
