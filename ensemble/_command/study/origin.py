"""Where the model and the inputs of a store came from, so that ``ensemble resume`` finds them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ensemble._files import write_whole
from ensemble.uq.store.store import PRIVATE

__all__ = ["Origin"]


@dataclass(frozen=True)
class Origin:
    """The model as FILE.py:FUNCTION and the TOML file of the inputs, both with absolute paths, and the target."""

    model: str
    config: str | None
    target: tuple[str, float] | None = None

    @classmethod
    def of(cls, model: str, config: Path | None, target: tuple[str, float] | None = None) -> Origin:
        """The origin that the command's arguments name."""
        path, _, name = model.partition(":")
        return cls(f"{Path(path).resolve()}:{name}", None if config is None else str(config.resolve()), target)

    @classmethod
    def read(cls, store: Path) -> Origin | None:
        """The origin of a store; None where a program made it."""
        try:
            found = json.loads(file_of(store).read_bytes())
            target = found.get("target")  # of version 0.1 on
            config = None if found["config"] is None else str(found["config"])
            return cls(str(found["model"]), config, None if target is None else (str(target[0]), float(target[1])))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file_of(store)} must hold a model and a config; got {error!r}.") from None

    def write(self, store: Path) -> None:
        """Write it into the private folder of a store, which may yet have to be made."""
        file_of(store).parent.mkdir(parents=True, exist_ok=True)
        write_whole(file_of(store), lambda file: file.write(json.dumps(asdict(self), indent=1).encode() + b"\n"))


def file_of(store: Path) -> Path:
    """The file beside the manifest."""
    return store / PRIVATE / "command.json"
