"""`Template`: files with placeholders, and the values of a sample in their place."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ensemble._check import message, require
from ensemble.uq.inputs.samples import UnknownInputError

__all__ = ["SAMPLE", "Placeholder", "Template", "Text"]

SAMPLE = "sample"
"""The placeholder of the sample's number."""

HELD_BYTES = 2**20
"""Files without placeholders up to this size are held in memory, so that other machines need not read them."""


class Placeholder(NamedTuple):
    """A name with indices and a format, as in ``{{wind[0]:.6e}}``."""

    name: str
    indices: tuple[int, ...]
    form: str
    text: str


class Text:
    """A text with placeholders.

    Parameters
    ----------
    text : str
    delimiters : two str
        What stands before and after a placeholder.
    where : str
        What the text is, for messages.
    """

    def __init__(self, text: str, delimiters: Sequence[str], where: str) -> None:
        self.where = where
        before, after = map(re.escape, delimiters)
        signs = re.escape("".join(sign for sign in "".join(delimiters) if not sign.isalnum()))
        form = rf"(?:(\s*):([^\n{signs}]*?))?"
        self.parts: list[str | Placeholder] = []
        end = 0
        for found in re.finditer(rf"{before}\s*([A-Za-z_]\w*)((?:\[-?\d+\])*){form}\s*{after}", text):
            self.parts.append(text[end : found.start()])
            indices = tuple(map(int, re.findall(r"-?\d+", found[2])))
            # a blank that follows the colon at once is a sign or a filling, as in Python
            written = found[4] or ""
            self.parts.append(Placeholder(found[1], indices, written.lstrip() if found[3] else written, found[0]))
            end = found.end()
        self.parts.append(text[end:])
        more = rf"(?:[^\n]{{0,60}}?{after})"
        more += "?" if len(delimiters[0]) > 1 else ""  # a single sign alone may mean something else there
        begun = rf"{before}\s*([A-Za-z_]\w*){more}"
        literal = [part for part in self.parts if isinstance(part, str)]
        self.unread = [(found[1], found[0]) for part in literal for found in re.finditer(begun, part)]
        """Names after a delimiter that begin no placeholder, and what stands there."""

    @property
    def names(self) -> set[str]:
        """The names that it has placeholders for."""
        return {part.name for part in self.parts if isinstance(part, Placeholder)}

    def filled(self, values: Any, sample: int) -> str:
        """The text with the values of a sample."""
        return "".join(part if isinstance(part, str) else self._value(part, values, sample) for part in self.parts)

    def _value(self, part: Placeholder, values: Any, sample: int) -> str:
        value: Any = sample if part.name == SAMPLE and SAMPLE not in vars(values) else values[part.name]
        try:
            for index in part.indices:
                value = value[index]
        except (IndexError, TypeError):
            raise self._wrong(part, f"name an entry of the input, which is {shown(value)}") from None
        if callable(value):
            raise self._wrong(part, "be a number, a text or a vector; a field is written by prepare=")
        try:
            if isinstance(value, np.ndarray) and value.ndim:
                return " ".join(formatted(entry, part.form) for entry in value.reshape(-1).tolist())
            return formatted(value.item() if isinstance(value, np.ndarray | np.generic) else value, part.form)
        except (ValueError, TypeError) as error:
            raise self._wrong(part, f"have a format of {shown(value)} ({error})") from None

    def _wrong(self, part: Placeholder, requirement: str) -> UnknownInputError:
        return UnknownInputError(message("Program", f"{part.text} in {self.where}", requirement, repr(part.text)))


WHOLE = ("b", "c", "d", "o", "x", "X")
"""Ends of formats of whole numbers, which counts have although they are floats."""


def formatted(value: Any, form: str) -> str:
    """A number with all its digits, or as the format says."""
    if form:
        if form.endswith(WHOLE) and isinstance(value, float) and value.is_integer():
            value = int(value)
        return format(value, form)
    return repr(value) if isinstance(value, float) else str(value)


def shown(value: Any) -> str:
    """What a value is, for a message."""
    return f"of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


class File(NamedTuple):
    """A file of a template: text with placeholders, or bytes, or where they are."""

    path: str
    text: Text | None
    contents: bytes | None
    source: str
    mode: int
    digest: str


class Template:
    """The files of a folder, or one file, that each run folder gets.

    Parameters
    ----------
    path : path, or None
        Without one a run folder is empty.
    delimiters : two str
    links : sequence of str
        Names of files, or patterns as ``*.msh``, that are linked and not copied.
    """

    def __init__(self, path: Any, delimiters: Sequence[str], links: Iterable[str] = ()) -> None:
        self.files: list[File] = []
        self.links: list[tuple[str, str]] = []
        self.folders: list[str] = []
        if path is None:
            return
        root = Path(os.path.expanduser(path)).absolute()
        require(root.exists(), "Program", "template", "be a folder or a file", f"no {str(root)!r}")
        linked = {found for pattern in links for found in (root.glob(pattern) if root.is_dir() else [])}
        listed = sorted(root.rglob("*")) if root.is_dir() else [root]
        base = root if root.is_dir() else root.parent
        for one in listed:
            name = one.relative_to(base).as_posix()
            if one in linked:
                self.links.append((name, str(one)))
            elif one.is_dir():
                self.folders.append(name)
            elif not linked & set(one.parents):
                self.files.append(file_of(one, name, delimiters))

    @property
    def names(self) -> set[str]:
        """The names that its files have placeholders for."""
        return {name for file in self.files if file.text is not None for name in file.text.names}

    @property
    def unread(self) -> list[tuple[str, str, str]]:
        """Names after a delimiter that begin no placeholder, what stands there, and the file."""
        return [(*one, file.path) for file in self.files if file.text is not None for one in file.text.unread]

    def description(self) -> dict[str, Any]:
        """The files by what they hold."""
        links = {name: digest_of(Path(source)) for name, source in self.links if Path(source).is_file()}
        return {"files": {file.path: file.digest for file in self.files}, "links": links, "folders": self.folders}

    def write(self, folder: Path, values: Any, sample: int) -> None:
        """Write the files of a sample into an empty folder."""
        start = os.path.join(folder, "")
        for name in self.folders:
            os.mkdir(start + name)
        for file in self.files:
            place = start + file.path
            if file.text is None and file.contents is None:
                shutil.copyfile(file.source, place)
            else:
                contents = file.contents
                if file.text is not None:
                    contents = file.text.filled(values, sample).encode()
                descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
                try:
                    write_all(descriptor, contents or b"")
                finally:
                    os.close(descriptor)
            if file.mode & 0o111:
                os.chmod(place, file.mode)
        for name, source in self.links:
            os.symlink(source, start + name)


def write_all(descriptor: int, contents: bytes) -> None:
    """Write all bytes: the system writes fewer than it is given where the disk is nearly full."""
    written = 0
    while written < len(contents):
        written += os.write(descriptor, contents[written:])


def file_of(path: Path, name: str, delimiters: Sequence[str]) -> File:
    """One file, read once; a text is one that UTF-8 decodes and that has a placeholder."""
    mode = path.stat().st_mode & 0o777
    if path.stat().st_size > 16 * HELD_BYTES:
        return File(name, None, None, str(path), mode, digest_of(path))
    contents = path.read_bytes()
    digest = hashlib.sha256(contents).hexdigest()
    try:
        text = Text(contents.decode(), delimiters, name)
    except UnicodeDecodeError:
        text = None
    if text is not None and (text.names or text.unread):
        return File(name, text, None, str(path), mode, digest)
    return File(name, None, contents if len(contents) <= HELD_BYTES else None, str(path), mode, digest)


def digest_of(path: Path) -> str:
    """The digest of the contents of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
