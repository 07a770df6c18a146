"""Weak scaling by `ensemble.distributed.cost_model`, from measured kernels and exchanges and a stated network."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from benchmarks.common import median
from benchmarks.simulated_domains import simulate
from ensemble.distributed.cost_model import (
    KernelTime,
    LevelLoad,
    MessageTime,
    Network,
    fit_kernel,
    fit_messages,
    iteration_time,
)

__all__ = ["Model", "fitted", "loads_of", "predictions", "simulated_levels"]

WIRE_LATENCY, RANK_BANDWIDTH, EAGER_BYTES = 2e-6, 1e9, 16384.0
"""The stated network: seconds of a message between nodes; bytes per second of a rank while all ranks send; the longest
message that is sent before the receiver asks for it, which costs two more latencies beyond."""

SAMPLES = (1, 8, 16, 32)
RANKS = (1, 8, 64, 512, 4096, 32_768, 131_072)


@dataclass(frozen=True)
class Model:
    """Kernels by the number of samples, networks by their names, and how well the fits fit.

    Attributes
    ----------
    kernels : dict
        For each number of samples `product`, `level`, `vectors` and `coarse`, each a `KernelTime`.
    networks : dict of Network
    errors : dict
        The largest relative error of each fit.
    """

    kernels: dict[int, dict[str, KernelTime]]
    networks: dict[str, Network]
    errors: dict[str, float]

    def described(self) -> dict[str, Any]:
        """All numbers, for a record."""
        kernels = {str(S): {name: asdict(time) for name, time in of.items()} for S, of in self.kernels.items()}
        return {
            "kernels": kernels,
            "networks": {name: asdict(network) for name, network in self.networks.items()},
            "errors": self.errors,
            "stated": {"latency": WIRE_LATENCY, "bytes/s of a rank": RANK_BANDWIDTH, "eager bytes": EAGER_BYTES},
        }

    def iteration(self, loads: list[LevelLoad], network: str, n_samples: int, **options: Any) -> Any:
        """The time of an iteration on levels of these loads."""
        return iteration_time(loads, self.networks[network], n_samples, **self.kernels[n_samples], **options)


def fitted(exchanges: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> Model:
    """The model of the records of `bench_distributed`."""
    networks, errors = {}, {}
    for way in dict.fromkeys(row["way"] for row in exchanges):
        networks[way], errors[f"exchange, {way}"] = _network([row for row in exchanges if row["way"] == way])
    own = networks["shared memory"]
    limit, wire = EAGER_BYTES, 1.0 / RANK_BANDWIDTH + own.message.per_byte
    stated = MessageTime(
        WIRE_LATENCY, wire, limit, 3.0 * WIRE_LATENCY, 1.0 / RANK_BANDWIDTH + own.message.long_per_byte
    )
    networks["cluster"] = Network(stated, own.per_message, own.per_call + own.message.latency)
    by_samples = {}
    for S in sorted({row["samples"] for row in kernels}):
        by_samples[S], found = _kernels([row for row in kernels if row["samples"] == S])
        errors |= {f"{name}, {S} samples": error for name, error in found.items()}
    return Model(by_samples, networks, errors)


def _network(rows: list[dict[str, Any]]) -> tuple[Network, float]:
    """A network fitted to exchanges between two ranks: the calls around a message count to its latency."""
    whole = [row for row in rows if row["what"] == "exchange"]
    sizes, times = [8.0 * r["rows"] * r["samples"] for r in whole], [1e-6 * r["least us"] for r in whole]
    message = fit_messages(sizes, times)
    error = max(abs(message(n) / t - 1.0) for n, t in zip(sizes, times, strict=True))
    pieces = [row for row in rows if row["what"] == "pieces"]
    alone = next(row["least us"] for row in pieces if row["messages"] == 1)
    each = 1e-6 * median([(r["least us"] - alone) / (r["messages"] - 1) for r in pieces if r["messages"] > 1])
    each = min(max(each, 0.0), message.latency)
    short = MessageTime(message.latency - each, message.per_byte, message.limit,
                        max(message.long_latency - each, 0.0), message.long_per_byte)  # fmt: skip
    return Network(short, each), error


def _kernels(rows: list[dict[str, Any]]) -> tuple[dict[str, KernelTime], dict[str, float]]:
    """Product, levels, vectors and coarsest level, of one number of samples."""
    found, errors = {}, {}

    def fit(name: str, chosen: list[tuple[float, float, float]]) -> None:
        r, e, t = (np.array(column, float) for column in zip(*chosen, strict=True))
        found[name] = fit_kernel(r, e, 1e-6 * t)
        errors[name] = float(max(abs(1e6 * found[name](a, b) / c - 1.0) for a, b, c in zip(r, e, t, strict=True)))

    def of(what: str) -> dict[Any, dict[str, Any]]:
        return {row["cells"]: row for row in rows if row["what"] == what}

    def measured(what: str) -> list[tuple[float, float, float]]:
        return [(row["rows"], row["entries"], row["us"]) for row in rows if row["what"] == what and row["us"] > 0.0]

    fit("product", measured("product"))
    fit("level", measured("level"))
    fit("coarse", [(n, n * n, t) for n, _, t in measured("coarse")])
    products, whole = of("product"), of("iteration")
    rest = []
    for cells, row in whole.items():
        cycle = sum(r["us"] for r in rows if r["cells"] == cells and r["what"] in ("level", "coarse"))
        rest.append((row["rows"], 0.0, row["us"] - products[cells]["us"] - cycle))
    fit("vectors", [part for part in rest if part[2] > 0.0])
    return found, errors


# --- predictions
VARIANTS: dict[str, dict[str, int]] = {
    "32^3 rows a rank": {"edge": 32},
    "32^3 rows a rank, coarse domains of 512": {"edge": 32, "smallest": 512},
    "13^3 rows a rank": {"edge": 13},
    "13^3 rows a rank, coarse domains of 512": {"edge": 13, "smallest": 512},
}
"""One domain a rank; a node of eight ranks of 32^3 rows has the 64^3 of the paper."""


def simulated_levels() -> list[dict[str, Any]]:
    """The levels of all variants on all numbers of ranks, as rows of a record."""
    return [
        {"variant": name, "of ranks": ranks, "level": k, **asdict(level.load), "domains": level.domains,
         "rows of a domain": level.rows_per_domain, "most neighbours": level.most_neighbours,
         "mean neighbours": level.mean_neighbours}
        for name, options in VARIANTS.items() for ranks in RANKS
        for k, level in enumerate(simulate(ranks=ranks, **options))
    ]  # fmt: skip


def loads_of(rows: list[dict[str, Any]]) -> list[LevelLoad]:
    """The loads in rows of a record."""
    return [LevelLoad(**{field.name: row[field.name] for field in fields(LevelLoad)}) for row in rows]


def predictions(model: Model, levels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of predicted times per iteration."""
    rows = []
    for name in VARIANTS:
        first: dict[int, float] = {}
        for ranks in RANKS:
            loads = loads_of([row for row in levels if (row["variant"], row["of ranks"]) == (name, ranks)])
            scalar = 0.0
            for S in SAMPLES:
                time = model.iteration(loads, "cluster", S, ranks=ranks)
                first.setdefault(S, time.total)
                scalar = time.total if S == 1 else scalar
                rows.append({
                    "variant": name, "ranks": ranks, "samples": S, "ms": 1e3 * time.total,
                    "ms a sample": 1e3 * time.total / S, "efficiency": first[S] / time.total,
                    "x one sample": S * scalar / time.total, "kernels": time.kernels / time.total,
                    "messages": time.messages / time.total, "reductions": time.reductions / time.total,
                    "coarsest": time.coarse / time.total, "us of levels": [round(1e6 * t, 1) for t in time.of_levels],
                })  # fmt: skip
    return rows
