"""Files are replaced whole, several together, or not at all."""

import os

import numpy as np
import pytest

from ensemble import _files
from ensemble._files import Replacements, write_arrays, write_whole
from tests.uq.store.trees import tree


def test_a_file_that_is_replaced_is_old_until_the_commit(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with Replacements() as files:
        files.write(path, lambda file: file.write(b"new"))
        assert path.read_bytes() == b"old"
    assert tree(tmp_path) == {"x": b"new"}


def test_folders_are_made(tmp_path):
    write_whole(tmp_path / "a" / "b" / "x", lambda file: file.write(b"1"))
    assert tree(tmp_path) == {"a/b/x": b"1"}


def test_arrays_replace_a_file_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.npz"
    write_arrays(str(path), {"a": np.arange(3)})
    with pytest.raises(ValueError, match="allow_pickle"):
        write_arrays(path, {"a": np.zeros(1000), "b": np.array([None])})
    with np.load(path) as file:
        np.testing.assert_array_equal(file["a"], [0, 1, 2])
    assert [found.name for found in tmp_path.iterdir()] == ["x.npz"]


@pytest.mark.parametrize("durable", [False, True])
def test_an_error_leaves_all_files_as_they_were(tmp_path, durable):
    (tmp_path / "x").write_bytes(b"old")

    def refuse(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"), Replacements(durable=durable) as files:
        files.write(tmp_path / "x", lambda file: file.write(b"new"))
        files.write(tmp_path / "y", refuse)
    assert tree(tmp_path) == {"x": b"old"}


def test_files_are_renamed_in_the_order_in_which_they_were_written(tmp_path, monkeypatch):
    order = []
    replace = os.replace
    monkeypatch.setattr("pathlib.Path.replace", lambda a, b: (order.append(b.name), replace(a, b)))
    with Replacements() as files:
        for name in ("masks", "data", "again"):
            files.write(tmp_path / name, lambda file: file.write(b""))
    assert order == ["masks", "data", "again"]


def test_contents_are_on_the_disk_before_the_names_and_both_before_the_end(tmp_path, monkeypatch):
    events = []
    replace = os.replace
    monkeypatch.setattr(_files, "sync", lambda paths: events.extend(sorted(f"sync {p.name}" for p in paths)))
    monkeypatch.setattr("pathlib.Path.replace", lambda a, b: (events.append(f"rename {b.name}"), replace(a, b)))
    with Replacements(durable=True) as files:
        files.write(tmp_path / "new" / "x", lambda file: file.write(b"1"))
        files.write(tmp_path / "y", lambda file: file.write(b"2"))
    folders = sorted([f"sync {tmp_path.name}", "sync new"])
    assert events == ["sync .x.part", "sync .y.part", "rename x", "rename y", *folders]


def test_a_folder_can_be_added_to_what_is_synced(tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(_files, "sync", lambda paths: events.append({p.name for p in paths}))
    with Replacements(durable=True) as files:
        files.write(tmp_path / "x", lambda file: file.write(b"1"))
        files.sync_folder(tmp_path.parent)
    assert events == [{".x.part"}, {tmp_path.name, tmp_path.parent.name}]


def test_a_commit_can_be_followed_by_others(tmp_path):
    with Replacements() as files:
        files.write(tmp_path / "x", lambda file: file.write(b"1"))
        files.commit()
        assert tree(tmp_path) == {"x": b"1"}
        files.write(tmp_path / "x", lambda file: file.write(b"2"))
    assert tree(tmp_path) == {"x": b"2"}


def test_folders_that_cannot_be_synced_are_left(tmp_path, monkeypatch):
    fsync = os.fsync
    refuse = OSError(22, "Invalid argument")

    def of_files_only(descriptor):
        if not os.path.isfile(f"/proc/self/fd/{descriptor}"):
            raise refuse
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files_only)
    with Replacements(durable=True) as files:
        files.write(tmp_path / "x", lambda file: file.write(b"1"))
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(refuse))
    with pytest.raises(OSError, match="Invalid argument"), Replacements(durable=True) as files:
        files.write(tmp_path / "x", lambda file: file.write(b"2"))
    assert tree(tmp_path) == {"x": b"1"}


def test_many_files_are_synced_in_threads(tmp_path):
    with Replacements(durable=True) as files:
        for k in range(20):
            files.write(tmp_path / str(k), lambda file: file.write(b"1"))
    assert len(tree(tmp_path)) == 20


def test_a_pipe_is_written_into_and_a_mode_is_kept(tmp_path):
    pipe, file = tmp_path / "pipe", tmp_path / "x"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, lambda stream: stream.write(b"numbers"))
        assert os.read(reader, 100) == b"numbers" and pipe.is_fifo()
    finally:
        os.close(reader)
    file.write_bytes(b"old")
    file.chmod(0o600)
    write_whole(file, lambda stream: stream.write(b"new"))
    assert file.read_bytes() == b"new" and file.stat().st_mode & 0o777 == 0o600
