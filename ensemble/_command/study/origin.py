"""Where the model and the inputs of a store came from, so that ``ensemble resume`` finds them.

A store names files of Python code. They run without being named again only where this user's ``ensemble run`` has
written their names, and they are as they were then: a key in the user's own files signs both. A store that came from
elsewhere, or whose files have changed, runs nothing that the user does not name.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ensemble._command.shared.sources import python_files_of, toml_table
from ensemble._command.study.program import template_files
from ensemble._files import write_new, write_whole
from ensemble.uq.store.store import PRIVATE

__all__ = ["Origin", "maker_of"]

KEY_BYTES = 32


@dataclass(frozen=True)
class Origin:
    """The model as FILE.py:FUNCTION and the TOML file of the inputs, both with absolute paths, and options.

    The model is empty where it is a program: that of options, `program`, or of the TOML file.
    """

    model: str
    config: str | None
    target: tuple[str, float] | None = None
    coordinates: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    program: dict[str, Any] | None = None

    @classmethod
    def of(
        cls,
        model: str,
        config: Path | None,
        target: tuple[str, float] | None = None,
        coordinates: Sequence[str] = (),
        units: Sequence[str] = (),
        program: dict[str, Any] | None = None,
    ) -> Origin:
        """The origin that the command's arguments name."""
        path, _, name = model.partition(":")
        place = None if config is None else str(config.resolve())
        place_of_model = f"{Path(path).resolve()}:{name}" if model else ""
        return cls(place_of_model, place, target, tuple(coordinates), tuple(units), program)

    @classmethod
    def read(cls, store: Path) -> Origin | None:
        """The origin of a store; None where a program made it."""
        found = contents_of(store)
        if found is None:
            return None
        try:
            target = found.get("target")  # of version 0.1 on
            config = None if found["config"] is None else str(found["config"])
            goal = None if target is None else (str(target[0]), float(target[1]))
            coordinates, units = (tuple(map(str, found.get(key, ()))) for key in ("coordinates", "units"))
            program = found.get("program")
            if program is not None and not isinstance(program, dict):
                raise ValueError("program is no table")
            return cls(str(found["model"]), config, goal, coordinates, units, program)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file_of(store)} must hold a model and a config; got {error!r}.") from None

    def write(self, store: Path, *, once: bool = False) -> None:
        """Write it into the private folder of a store, which may yet have to be made.

        With `once` a file that is there stays: jobs of one study write it at the same time.
        """
        try:
            file_of(store).parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(f"--store must be a new folder; got the file {store}.") from None
        digests = {str(file): digest_of(file) for file in self.files()}
        contents = {**asdict(self), "digests": digests}
        contents["signature"] = signature(contents, key(make=True))
        text = json.dumps(contents, indent=1).encode() + b"\n"
        if once:
            write_new(file_of(store), text)
        else:
            write_whole(file_of(store), lambda file: file.write(text))

    def files(self) -> list[Path]:
        """The files that are run or read: of the model, of the inputs, and those of objects that the inputs name."""
        files = [Path(self.model.rpartition(":")[0])] if self.model else []
        if self.config is not None:
            path = Path(self.config)
            files += [path, *python_files_of(path)]
            table = toml_table(path).get("program")
            files += template_files(table, path.parent) if isinstance(table, dict) and not self.model else []
        files += template_files(self.program, Path()) if self.program is not None else []
        return list(dict.fromkeys(files))

    def is_own(self, store: Path) -> bool:
        """Whether this user's own command has written it into the store."""
        found, secret = contents_of(store) or {}, key(make=False)
        signed, expected = found.pop("signature", None), signature(found, secret)
        return expected is not None and isinstance(signed, str) and hmac.compare_digest(signed, expected)

    def changed(self, store: Path) -> list[str]:
        """The files that are not as they were when it was written into the store."""
        digests = (contents_of(store) or {}).get("digests") or {}
        found = {str(file): digest_of(file) for file in self.files()}
        return [file for file, digest in found.items() if digest is None or digests.get(file) != digest]


def maker_of(path: Any, manifest: Any) -> str:
    """What goes on with a study: a command, or a function of Python."""
    with contextlib.suppress(ValueError):  # of a damaged file, which `ensemble resume` names
        if Origin.read(path) is None:
            rows = {"pick_freeze": "sobol_indices", "permuted": "shapley_effects"}
            name = str((manifest.get("sampler") or {}).get("name"))
            return str(manifest.get("algorithm") or rows.get(name, "propagate"))
    return "ensemble run"


def contents_of(store: Path) -> dict[str, Any] | None:
    """What the file says; None where there is none."""
    try:
        found = json.loads(file_of(store).read_bytes())
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file_of(store)} must hold a model and a config; got {error!r}.") from None
    return found


def file_of(store: Path) -> Path:
    """The file beside the manifest."""
    return store / PRIVATE / "command.json"


def digest_of(file: Path) -> str | None:
    """The digest of the bytes of a file; None where it cannot be read."""
    with contextlib.suppress(OSError):
        return hashlib.sha256(file.read_bytes()).hexdigest()
    return None


def signature(contents: dict[str, Any], secret: bytes | None) -> str | None:
    """The signature of this user; None where there is no key."""
    if secret is None:
        return None
    return hmac.new(secret, json.dumps(contents, sort_keys=True).encode(), "sha256").hexdigest()


def key(*, make: bool) -> bytes | None:
    """The key of this user, which no other one may read; None where there is none, or none can be kept."""
    state = os.environ.get("XDG_STATE_HOME") or ""
    home = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    path = home / "ensemble" / "key"
    with contextlib.suppress(OSError, RuntimeError):
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_new(path, secrets.token_bytes(KEY_BYTES), 0o600)  # jobs of one study may do so at once
        status = path.stat()
        own = not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o077)
        found = path.read_bytes()
        return found if own and len(found) == KEY_BYTES else None
    return None
