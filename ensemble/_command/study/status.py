"""``ensemble status``: the progress of the study of a store."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

import numpy as np

from ensemble import uq
from ensemble._command.study.origin import maker_of
from ensemble.uq.store.checks import local_folder
from ensemble.uq.store.claims import PARTS, states
from ensemble.uq.store.parts import ids_of_part
from ensemble.uq.store.store import PRIVATE
from ensemble.uq.study.failures import NO_REASON, Failures, failures_by_reason
from ensemble.uq.study.table import failure_lines

__all__ = ["run"]

ALGORITHMS = ("mcmc", "kalman_inversion", "subset_simulation", "multilevel")
"""Functions without `retry_failed`: what a point gave decides the next ones."""

MOST_PARTS = 20
"""Parts that are listed."""


def run(options: argparse.Namespace) -> int:
    """Carry out ``ensemble status``: 0 for a finished study, 1 for one that is not or has failed samples."""
    store = uq.Store.open(options.store)
    done, failed = store.done(), store.failed()
    algorithm = store.manifest.get("algorithm")  # whose evaluations are as many as it has asked for
    n = int(np.count_nonzero(done)) if algorithm else store.n
    found: dict[str, Any] = {
        "store": str(options.store),
        "n": n,
        "done": int(np.count_nonzero(done)),
        "failed": int(np.count_nonzero(failed)),
        "pending": int(n - np.count_nonzero(done)),
        "journal_bytes": store.journal_bytes,
        "model": store.manifest.get("model"),
        "sampler": {"name": algorithm} if algorithm else store.manifest.get("sampler"),
        "seed": store.manifest.get("seed"),
        "outputs": {name: described(store, name) for name in store.outputs},
        "reasons": {str(k): text or NO_REASON for k, text in list(store.reasons().items())[:20]},
        "failures": {reason: counts._asdict() for reason, counts in failures_of(store, failed).items()},
        "run_again": len(store.earlier_reasons()),
        "made_by": maker_of(options.store, store.manifest),
        "parts": parts_of(options.store, done),
    }
    options.output.print(json.dumps(found) if options.json else as_text(found))
    return 1 if found["pending"] or found["failed"] else 0


def parts_of(store: Any, done: np.ndarray) -> list[dict[str, Any]]:
    """The parts that jobs have begun: who ran them, whether they still do, and how many samples are done."""
    found = []
    last = {(one.n_parts, one.part): one for one in states(local_folder("status", store) / PRIVATE / PARTS)}
    for one in last.values():
        mine = ids_of_part(one.part, one.n_parts, done.size)
        counts = {"done": int(np.count_nonzero(done & mine)), "n": int(np.count_nonzero(mine))}
        found.append(one._asdict() | counts)
    return found


def calls_of(found: dict[str, Any]) -> tuple[str, str]:
    """What runs the failed samples of a study again, empty for algorithms, and what goes on with the study."""
    if found["made_by"] == "ensemble run":
        return f"ensemble resume --failed {found['store']}", f"ensemble resume {found['store']}"
    call = f"{found['made_by']}(..., store={found['store']!r}, resume=True"
    return "" if found["made_by"] in ALGORITHMS else f"{call}, retry_failed=True)", f"{call})"


def part_lines(parts: list[dict[str, Any]]) -> list[str]:
    """A line on all parts, and one for each that runs or was lost."""
    if not parts:
        return []
    by_state = Counter(part["state"] for part in parts)
    text = ", ".join(f"{count} {state}" for state, count in by_state.items())
    lines = [f"  parts     {text}, {max(part['n_parts'] for part in parts)} in all"]
    for part in [part for part in parts if part["state"] != "ended"][:MOST_PARTS]:
        who = f"process {part['process']} on {part['host']}, last sign {part['seconds']:.0f} s ago"
        lines.append(f"    {part['part']}/{part['n_parts']} {part['state']}: {part['done']} of {part['n']} done, {who}")
    return lines


def failures_of(store: uq.Store, failed: np.ndarray) -> dict[str, Failures]:
    """How many samples failed by reason, and how many of those succeeded when they were run again."""
    reasons = store.reasons()
    return failures_by_reason(
        {int(i): reasons.get(int(i), "") for i in np.flatnonzero(failed)}, store.earlier_reasons()
    )


def described(store: uq.Store, name: str) -> dict[str, Any]:
    """Shape and type of an output; the names of its axes and its unit, where they were given."""
    output, said = store.outputs[name], store.manifest["outputs"].get(name, {})
    unit = store.manifest.get("axes", {}).get("units", {}).get(name)
    found: dict[str, Any] = {"shape": list(output.shape), "dtype": str(output.dtype)}
    return found | ({"dims": said["dims"]} if "dims" in said else {}) | ({"units": unit} if unit else {})


def as_text(found: dict[str, Any]) -> str:
    """One fact per line."""
    lines = [f"{found['store']}: {found['done']:,} of {found['n']:,} samples done, {found['failed']:,} failed"]
    lines += [f"  model     {found['model']}"] if found["model"] else []
    sampler = found["sampler"] or {}
    lines.append(f"  sampler   {sampler.get('name', 'unknown')}, seed {found['seed']}")
    for name, o in found["outputs"].items():
        over = f" ({', '.join(o['dims'])})" if o.get("dims") else ""
        unit = f", {o['units']}" if "units" in o else ""
        lines.append(f"  output    {name}, shape {tuple(o['shape'])}{over}, {o['dtype']}{unit}")
    lines += [f"  sample {k} failed: {text}" for k, text in list(found["reasons"].items())[:3]]
    lines += part_lines(found["parts"])
    if found["failures"]:
        lines.append("  failures by reason:")
        counted = {reason: Failures(**counts) for reason, counts in found["failures"].items()}
        lines += [f"    {line}" for line in failure_lines(counted)]
    again, further = calls_of(found)
    lines += [f"  run the failed samples again: {again}"] if found["failed"] and again else []
    lines += [f"  {found['pending']:,} pending: {further}"] if found["pending"] else []
    return "\n".join(lines)
