"""``ensemble status``: the progress of the study of a store."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from ensemble import uq

__all__ = ["run"]


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
        "reasons": {str(k): text for k, text in list(store.reasons().items())[:20]},
    }
    options.output.print(json.dumps(found) if options.json else as_text(found))
    return 1 if found["pending"] or found["failed"] else 0


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
    if found["pending"]:
        lines.append(f"  {found['pending']:,} pending: ensemble resume {found['store']}")
    return "\n".join(lines)
