"""A study and its store: the manifest, and what is taken over on resuming."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ensemble._check import integer, kind_of, message, require
from ensemble.uq.store.anywhere import create_store, manifest_at, open_store
from ensemble.uq.store.axes import AXES
from ensemble.uq.store.checks import has_groups, local_folder
from ensemble.uq.store.descriptions import GROUP_FILE
from ensemble.uq.store.remote import RemoteStore, is_url
from ensemble.uq.store.source_digest import source_digest
from ensemble.uq.store.store import PRIVATE, Store
from ensemble.uq.study.dataset import check_axes
from ensemble.uq.study.declared import Outputs
from ensemble.uq.study.intervals import is_independent

__all__ = [
    "checked_part",
    "declared_outputs",
    "discard",
    "has_study",
    "manifest_of",
    "opened",
    "stored_manifest",
]


def stored_manifest(store: str | PathLike[str] | None, resume: bool | str, function: str) -> dict[str, Any] | None:
    """The manifest of the study to be resumed; None of a new one, and of one killed while its store was made."""
    if store is None:
        require(not resume, function, "resume", "go with a store", f"store=None, resume={resume!r}")
        return None
    folder = None if is_url(store) else local_folder(function, store, "store")
    valid = isinstance(resume, bool) or resume == "force"
    require(valid, function, "resume", "be True, False or 'force'", repr(resume))
    if not resume or (folder is not None and killed_at_once(folder)):
        return None
    return manifest_at(store)


def most_attempts(retry_failed: Any, resumes: bool, function: str) -> float:
    """How many attempts a failed sample may have: 1 without reruns, infinity where `retry_failed` is True.

    `resumes` tells whether there may be failed samples: a study goes on, or is written by several jobs.
    """
    advice = "Failed samples are those of a store. on_failure='retry' runs each once more at once."
    if isinstance(retry_failed, bool | np.bool_):
        most = math.inf if retry_failed else 1.0
    else:
        wanted = "be True, False or a number of attempts"
        number = isinstance(retry_failed, int | np.integer)
        if not number:
            raise TypeError(message(function, "retry_failed", wanted, repr(retry_failed)))
        most = float(integer(retry_failed, function, "retry_failed", minimum=2))
    require(most == 1.0 or resumes, function, "retry_failed", "go with resume=True", "resume=False", advice)
    return most


def checked_part(part: Any, store: Any, function: str) -> tuple[int, int] | None:
    """The part of a study as its number, from 1, and the number of parts."""
    if part is None:
        return None
    wanted = "be (k, n_parts), or 'k/n_parts', with k from 1 to n_parts"
    try:
        numbers = part.split("/") if isinstance(part, str) else part
        k, n_parts = (
            integer(int(one) if isinstance(one, str) else one, function, "part", minimum=1) for one in numbers
        )
    except (TypeError, ValueError):
        raise ValueError(message(function, "part", wanted, repr(part))) from None
    require(k <= n_parts < 100_000, function, "part", wanted, repr(part))
    require(store is not None, function, "part", "go with a store", "store=None", "All parts write into one store.")
    advice = "Object stores have no claims that one job alone can make; let one driver with an executor write there."
    require(not is_url(store), function, "part", "go with a store in a folder that all jobs see", repr(store), advice)
    return k, n_parts


def has_study(store: Any) -> bool:
    """Whether there is a study in a store, to which a part is added."""
    return Store.exists(store)


def killed_at_once(folder: Path) -> bool:
    """Whether a study was killed while its store was made: no manifest yet, and nothing that a group has left."""
    private = folder / PRIVATE
    if not private.is_dir() or Store.exists(folder):
        return False
    return not (folder / GROUP_FILE).exists() and not has_groups(private / "journal")


def declared_outputs(outputs: Any, stored: dict[str, Any] | None, inputs: tuple[str, ...], function: str) -> Outputs:
    """What was said of the outputs; nothing said on resuming is what was said before."""
    if outputs is None:
        return Outputs.from_description(None if stored is None else stored.get(AXES))
    if not isinstance(outputs, Outputs):
        advice = "Outputs(t=times) says that an axis has the coordinates `times`."
        raise TypeError(message(function, "outputs", "be Outputs", kind_of(outputs), advice))
    check_axes(outputs, inputs, function)
    return outputs


def manifest_of(
    inputs: Any,
    sampler: Any,
    seed: int,
    n: int,
    model: Callable[..., Any] | None,
    stored: dict[str, Any] | None,
    declared: Outputs,
) -> dict[str, Any]:
    """What makes a study this study; without a model, as in `plan`, that of the stored study."""
    manifest = {"inputs": inputs.description(), "sampler": sampler.description(), "seed": seed, "n": n}
    manifest["statistics"] = {
        "sampler": repr(sampler),
        "n_replicates": sampler.n_replicates,
        "is_quadrature": bool(getattr(sampler, "is_quadrature", False)),
        "independent": is_independent(sampler),
        "weighted": sampler.weights(np.zeros(1, np.int64)) is not None,
    }
    if declared:
        manifest[AXES] = declared.description()
    if model is not None:
        module, name = getattr(model, "__module__", None), getattr(model, "__qualname__", type(model).__qualname__)
        manifest["model"] = name if module in (None, "__main__") else f"{module}.{name}"
        manifest["model"] = getattr(model, "command_text", manifest["model"])  # of a program
        manifest["source_digest"] = source_digest(model)
    else:
        manifest |= {key: stored[key] for key in ("model", "source_digest") if stored is not None and key in stored}
    if stored is not None and "model" in stored:
        manifest["model"] = stored["model"]  # for readers; the source decides
    return manifest


def opened(store: str | PathLike[str], manifest: dict[str, Any], resume: bool | str) -> Any:
    """The store of a new study, or of one that is resumed."""
    if not resume:
        return create_store(store, manifest)
    try:
        return open_store(store, manifest, force=resume == "force")
    except ValueError as error:
        raise ValueError(str(error).replace("force=True", "resume='force'")) from None


def discard(store: Any) -> None:
    """Take away the store of a study that ended before its first group: its model is yet to be mended."""
    if isinstance(store, RemoteStore):
        with suppress(OSError):
            store.discard()
        return
    with suppress(OSError):
        store.close()
        shutil.rmtree(Path(store.path) / PRIVATE)
        Path(store.path).rmdir()
