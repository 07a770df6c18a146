"""One long series on the GPUs of a machine: Kalman filter and smoother over ranks, beside those of one GPU alone."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.bench_kalman import random_model
from benchmarks.distributed_problem import seconds
from ensemble.apps.kalman import LinearGaussianModel, kalman_filter, two_filter_smoother
from ensemble.apps.kalman import time_range as steps_of_rank  # asv takes names with "time_" for benchmarks

drawn_model = functools.cache(random_model)

DRAWN = 250_000
"""Steps of the model that is drawn; longer series repeat it."""

STEPS = ("F", "Q", "H", "R", "u", "d", "y")


def drawn_on_rank(xp: Any, n_steps: int, comm: Any, drawn: int = DRAWN) -> tuple[LinearGaussianModel, Any]:
    """Model and observations of a rank's steps, in float32, made where they are needed."""
    parts, y = drawn_model(min(drawn, n_steps))
    whole = {**parts, "y": y}
    steps = steps_of_rank(n_steps, comm)
    at = xp.arange(steps.start, steps.stop) % y.shape[0]
    own = {}
    for name, a in whole.items():
        placed = xp.asarray(a.astype(np.float32))
        own[name] = placed[at] if name in STEPS else placed
    observed = own.pop("y")
    return LinearGaussianModel(**own), observed


def digest(xp: Any, arrays: list[Any], n_steps: int, comm: Any) -> str:
    """A sum over the bits of all steps that does not depend on which rank has them."""
    first, total = steps_of_rank(n_steps, comm).start, 0
    for k, a in enumerate(arrays):
        rows = a.reshape(a.shape[0], -1).view(np.int32).astype(np.int64)
        weights = 2 * (xp.arange(first, first + a.shape[0]) * 31 + k) + 1
        columns = 2 * xp.arange(rows.shape[1]) + 1
        total += int((rows * weights[:, None] * columns).sum())  # modulo 2^64
    return f"{sum(comm.allgather(total)) % 2**64:016x}"


def series_row(xp: Any, comm: Any, n_steps: int, repeats: int = 7) -> dict[str, Any]:
    """Milliseconds of filter and smoother over ranks, digests, and on one rank those without ranks."""
    model, y = drawn_on_rank(xp, n_steps, comm)
    found: list[Any] = [None, None]

    def filters() -> None:
        found[0] = kalman_filter(model, y, comm=comm)

    def smooths() -> None:
        found[1] = two_filter_smoother(model, y, comm=comm)

    row = {"T": n_steps, "filter ms": 1e3 * seconds(filters, y, comm, repeats)}
    row["filter bits"] = digest(xp, [found[0].mean, found[0].covariance], n_steps, comm)
    row["log-likelihood"] = float(found[0].log_likelihood)
    found[0] = None
    row["smoother ms"] = 1e3 * seconds(smooths, y, comm, repeats)
    smooth = found[1]
    row["smoother bits"] = digest(xp, [smooth.mean, smooth.covariance], n_steps, comm)
    row["finite"] = bool(all(comm.allgather(bool(xp.isfinite(smooth.mean).all()))))
    if comm.size == 1:
        plain = [None]

        def alone() -> None:
            plain[0] = two_filter_smoother(model, y)

        row["alone, filter ms"] = 1e3 * seconds(lambda: kalman_filter(model, y), y, comm, repeats)
        row["alone, smoother ms"] = 1e3 * seconds(alone, y, comm, repeats)
        deviation = xp.sqrt(xp.einsum("kii->ki", plain[0].covariance))
        row["difference / deviation"] = float(xp.abs((plain[0].mean - smooth.mean) / deviation).max())
    return row
