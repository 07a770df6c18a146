"""A conda channel of wheels and of the interpreter that runs this: the recipe builds where conda-forge is out of reach.

``python -m tools.local_channel WHEELS CHANNEL`` makes a package of each wheel in the folder WHEELS, and one of Python
itself, for this machine. `make conda` builds the recipe with it. What it makes is for a trial of the recipe alone.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import platform
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SUBDIR = "linux-64" if platform.machine() == "x86_64" else "linux-aarch64"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
NOT_NEEDED = ("site-packages", "__pycache__", "/test/", "idlelib", f"config-{VERSION}")
Files = list[tuple[str, Path]]


def entry(name: str, path: Path, archive: tarfile.TarFile) -> dict[str, Any]:
    """Add a file to the archive; what the list of its paths says of it."""
    if path.is_symlink():
        member = tarfile.TarInfo(name)
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
        archive.addfile(member)
        return {"_path": name, "path_type": "softlink", "sha256": hashlib.sha256(b"").hexdigest(), "size_in_bytes": 0}
    content = path.read_bytes()
    add(name, content, archive, path.stat().st_mode & 0o777)
    digest = hashlib.sha256(content).hexdigest()
    return {"_path": name, "path_type": "hardlink", "sha256": digest, "size_in_bytes": len(content)}


def add(name: str, content: bytes, archive: tarfile.TarFile, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def package(channel: Path, name: str, version: str, files: Files, depends: list[str]) -> dict[str, dict[str, Any]]:
    """Write one package; its record, by the name of its file."""
    path = channel / SUBDIR / f"{name}-{version}-0.tar.bz2"
    index = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": depends, "subdir": SUBDIR}
    with tarfile.open(path, "w:bz2", compresslevel=1) as archive:
        paths = [entry(where, source, archive) for where, source in files]
        add("info/index.json", json.dumps(index).encode(), archive)
        add("info/paths.json", json.dumps({"paths": paths, "paths_version": 1}).encode(), archive)
        add("info/files", "\n".join(one["_path"] for one in paths).encode(), archive)
    content = path.read_bytes()
    return {path.name: index | {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}}


def files_of_python() -> Files:
    """The interpreter and its library, without packages."""
    base = Path(sys.base_prefix)
    programs = {f"python{VERSION}", "python3", "python"}
    found = [path for top in ("bin", "lib", "include") for path in sorted((base / top).rglob("*"))]
    named = [(str(path.relative_to(base)), path) for path in found if path.is_file() or path.is_symlink()]
    return [
        (name, path)
        for name, path in named
        if not any(part in name for part in NOT_NEEDED) and (not name.startswith("bin/") or path.name in programs)
    ]


def write_channel(wheels: Iterable[Path], channel: Path) -> None:
    """Write all packages, and the lists of them that a solver reads."""
    records: dict[str, dict[str, Any]] = {}
    for subdir in (SUBDIR, "noarch"):
        (channel / subdir).mkdir(parents=True, exist_ok=True)
    records |= package(channel, "python", platform.python_version(), files_of_python(), [])
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as content:
            content.extractall(folder)
            found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            place = f"lib/python{VERSION}/site-packages"
            files = [(f"{place}/{path.relative_to(folder)}", path) for path in found]
            records |= package(channel, name.lower().replace("_", "-"), version, files, [f"python {VERSION}.*"])
    for subdir, packages in ((SUBDIR, records), ("noarch", {})):
        content_list = {"info": {"subdir": subdir}, "packages": packages, "packages.conda": {}, "repodata_version": 1}
        (channel / subdir / "repodata.json").write_text(json.dumps(content_list))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheels", type=Path, help="a folder of wheels")
    parser.add_argument("channel", type=Path, help="where the channel is written")
    options = parser.parse_args()
    write_channel(sorted(options.wheels.glob("*.whl")), options.channel)


if __name__ == "__main__":
    main()
