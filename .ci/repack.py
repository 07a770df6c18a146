"""Write an sdist again with one date, one owner and sorted names: equal sources give equal bytes."""

import gzip
import io
import sys
import tarfile
from pathlib import Path


def main() -> None:
    path, date = Path(sys.argv[1]), int(sys.argv[2])
    contents = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=contents, mode="w", format=tarfile.PAX_FORMAT) as new:
        for entry in sorted(old.getmembers(), key=lambda each: each.name):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname, entry.pax_headers = date, 0, 0, "", "", {}
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            new.addfile(entry, old.extractfile(entry) if entry.isreg() else None)
    with path.open("wb") as file, gzip.GzipFile("", "wb", mtime=date, fileobj=file) as packed:
        packed.write(contents.getvalue())


if __name__ == "__main__":
    main()
