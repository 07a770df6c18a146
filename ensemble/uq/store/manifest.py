"""The manifest of a store: what a study is, and whether another study is the same."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ensemble import _check
from ensemble._check import warn_caller
from ensemble._files import Replacements
from ensemble._version import __version__
from ensemble.uq.store import widths
from ensemble.uq.store.axes import AXES, require_axes
from ensemble.uq.store.descriptions import MOST_SAMPLES, RESERVED, Output, described_output

__all__ = [
    "CHECKSUM", "FORMAT", "WIDTH", "by_lines", "checked", "current_versions", "identified", "identity_of", "merged",
    "outputs_of", "read", "sealed", "text_of", "unsealed", "write",
]  # fmt: skip

FORMAT, NEWEST = 2, 3
"""Version of the store's format, which incompatible changes increment; 3 are stores with wider chunks."""

WIDTH = "chunk_samples"
"""Key of the largest number of samples per chunk; only where that is above `MAX_SAMPLES`."""

ABSENT = "nothing"
CHECKED_APART = ("n", "outputs", "versions", "later_versions", "format", WIDTH, "identity")

CHECKSUM = "crc32"
"""Key of the checksum of all other keys, in a file of JSON."""

RESTORE = "Restore the file from a copy."


def current_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that outputs depend on."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        # Reading the metadata takes milliseconds; inputs have imported SciPy.
        "scipy": sys.modules["scipy"].__version__ if "scipy" in sys.modules else importlib.metadata.version("scipy"),
        "ensemble": __version__,
    }


def checked(function: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `manifest` as its JSON reads back, with the format and the versions."""
    _check.require_type(manifest, Mapping, function, "manifest", "be a dict")
    try:
        copy: dict[str, Any] = json.loads(json.dumps(dict(manifest)))
    except (TypeError, ValueError) as error:
        text = _check.message(function, "manifest", "hold numbers, text, lists and dicts only", f"{error}")
        raise TypeError(text) from None
    _check.require("n" in copy, function, "manifest", "have the key 'n', the number of samples", sorted(copy))
    copy["n"] = _check.integer(manifest["n"], function, "manifest['n']", minimum=0)
    _check.require(
        copy["n"] <= MOST_SAMPLES, function, "manifest['n']", f"be at most {MOST_SAMPLES:,}", f"{copy['n']:,}"
    )
    copy.setdefault("versions", current_versions())
    width = widths.chunk_samples_for(copy["n"])
    return {"format": FORMAT, **copy} if width == widths.MAX_SAMPLES else {"format": NEWEST, **copy, WIDTH: width}


def identified(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a new study with its identity: equal studies have equal ones, and extending keeps it."""
    return {**manifest, "identity": zlib.crc32(json.dumps(apart(manifest), sort_keys=True).encode())}


def identity_of(manifest: Mapping[str, Any]) -> int:
    """The identity of a study, which its other files repeat; 0 of one that has none."""
    return int(manifest.get("identity", 0))


def text_of(manifest: Mapping[str, Any]) -> bytes:
    """The bytes of the file ``manifest.json``."""
    return sealed(manifest)


def by_lines(contents: Mapping[str, Any]) -> bytes:
    """JSON with each key on a line of its own; `json` with an indent is Python code, ten times as slow."""
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in contents.items())
    return f"{{\n{lines}\n}}\n".encode()


def sealed(contents: Mapping[str, Any]) -> bytes:
    """JSON as of `by_lines` that ends with its own checksum."""
    return by_lines({**contents, CHECKSUM: [zlib.crc32(by_lines(contents))]})


def unsealed(text: bytes) -> dict[str, Any]:
    """The contents of a file of `sealed`; ValueError where they are not what was written, or no JSON."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"it must be a JSON object; got {_check.kind_of(found)}")
    if CHECKSUM in found and found.pop(CHECKSUM) != [zlib.crc32(by_lines(found))]:
        raise ValueError("it does not match its checksum")
    return found


def read(function: str, path: Path) -> dict[str, Any]:
    """The manifest in the file `path`; its number of samples and its outputs are such as a study can have."""
    try:
        found = unsealed(path.read_bytes())
        version = int(found["format"])
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        text = _check.message(
            function, "path", "have a readable manifest", f"{str(error)[:80]!r} in the damaged {path}", RESTORE
        )
        raise ValueError(text) from None
    if not FORMAT <= version <= NEWEST:
        older = "Run the study again, or read it with the version of ensemble that wrote it."
        advice = "Use a newer version of ensemble." if version > NEWEST else older
        wanted = f"be a store of format version {FORMAT} or {NEWEST}"
        raise ValueError(_check.message(function, "path", wanted, version, advice))
    require_possible(function, path, found)
    return found


def require_possible(function: str, path: Path, manifest: dict[str, Any]) -> None:
    """Raise ValueError for a manifest that no study can have: what is read from it sizes arrays and names folders."""
    n, identity, outputs = manifest.get("n"), manifest.get("identity", 0), manifest.get("outputs") or {}
    later, width = manifest.get("later_versions", []), manifest.get(WIDTH, widths.MAX_SAMPLES)
    wanted = {
        f"have n from 0 to {MOST_SAMPLES:,}": type(n) is int and 0 <= n <= MOST_SAMPLES,
        "have an identity of 32 bits": type(identity) is int and 0 <= identity < 2**32,
        "have a number of samples per chunk": type(width) is int
        and widths.MAX_SAMPLES <= width <= MOST_SAMPLES
        and width & (width - 1) == 0,
        "have a table of versions": isinstance(manifest.get("versions"), dict),
        "have a list of later versions": isinstance(later, list) and all(isinstance(one, dict) for one in later),
        "have a table for each output": isinstance(outputs, dict)
        and all(isinstance(o, dict) for o in outputs.values()),
    }
    for requirement, holds in wanted.items():
        seen = f"a damaged manifest, {path}, with n = {str(n)[:40]}"
        _check.require(holds, function, "the manifest", requirement, seen, RESTORE)
    if AXES in manifest:
        require_axes(function, str(path), manifest[AXES])
    for name, kind in outputs.items():
        output, dims = (
            described_output(function, str(path), name, kind.get("dtype"), kind.get("shape")),
            kind.get("dims"),
        )
        seen = f"{name!r} in {path}, which is damaged"
        _check.require(name not in RESERVED, function, "outputs", f"be none of {', '.join(RESERVED)}", seen, RESTORE)
        named = isinstance(dims, list) and all(isinstance(dim, str) for dim in dims)
        good = dims is None or (named and len(dims) == len(output.shape))
        seen = f"{str(dims)[:80]} in {path}, which is damaged"
        _check.require(good, function, f"dims of {name!r}", "name each axis", seen, RESTORE)


def write(private: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the file ``manifest.json`` in the folder `private`."""
    with Replacements(durable=True) as files:
        files.write(private / "manifest.json", lambda file: file.write(text_of(manifest)))


def outputs_of(manifest: Mapping[str, Any], path: Path) -> dict[str, Output]:
    """The outputs that the manifest in the file `path` describes, by name."""
    described = (manifest.get("outputs") or {}).items()
    return {
        name: described_output("Store", str(path), name, kind["dtype"], list(kind["shape"])) for name, kind in described
    }


def merged(function: str, stored: dict[str, Any], given: dict[str, Any], *, force: bool) -> dict[str, Any]:
    """The manifest of the continued study; raises ValueError if `given` is another study than `stored`."""
    differing = list(differences(apart(stored), apart(given)))
    if given["n"] < stored["n"]:
        differing.append(("n", str(stored["n"]), f"{given['n']} (it may only grow)"))
    if stored.get("outputs") and given.get("outputs"):
        differing += differences({"outputs": stored["outputs"]}, {"outputs": given["outputs"]})
    only_source = [key for key, *_ in differing] == ["source_digest"]
    if differing and not (force and only_source):
        seen = "; ".join(f"{key}: stored {was}, given {now}" for key, was, now in differing)
        advice = "Give the stored study's values, or another path for a new study."
        if only_source:
            advice = "The model's source has changed: pass force=True if its outputs have not, or give another path."
        raise ValueError(_check.message(function, "manifest", "equal the stored one", seen, advice))
    result = {**stored, "n": given["n"]}
    if differing:
        result["source_digest"] = given.get("source_digest")
    if "outputs" in given:
        result.setdefault("outputs", given["outputs"])
    return with_versions(function, result, given["versions"])


def apart(manifest: dict[str, Any]) -> dict[str, Any]:
    """What of a manifest must be equal in two studies that are one."""
    return {key: value for key, value in manifest.items() if key not in CHECKED_APART}


def with_versions(function: str, manifest: dict[str, Any], now: dict[str, str]) -> dict[str, Any]:
    """`manifest`, with the versions `now` listed if they are new; they warn if they are not those of the start."""
    changed = list(differences(manifest["versions"], now))
    if not changed:
        return manifest
    shown = ", ".join(f"{name} {was} before and {new} now" for name, was, new in changed)
    warn_caller(
        f"{function}: the stored samples were computed with other versions ({shown}). The study continues; "
        "its later samples may differ from one run's in the last digits.",
        RuntimeWarning,
    )
    later = manifest.get("later_versions", [])
    return manifest if now in later else {**manifest, "later_versions": [*later, now]}


def differences(stored: Any, given: Any, key: str = "") -> Iterator[tuple[str, str, str]]:
    """Key path, stored and given value of each leaf that differs."""
    if isinstance(stored, dict) and isinstance(given, dict):
        for name in dict.fromkeys([*stored, *given]):
            yield from differences(stored.get(name, ABSENT), given.get(name, ABSENT), f"{key}.{name}" if key else name)
        if key and list(stored) != list(given) and set(stored) == set(given):
            yield f"order in {key}", shown(list(stored)), shown(list(given))
    elif json.dumps(stored) != json.dumps(given):
        yield key, shown(stored), shown(given)


def shown(value: Any) -> str:
    """`value` in a message, cut to a line."""
    text = value if value is ABSENT else json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
