"""Files of compiled code: damaged, foreign and missing ones are compiled anew; no folder is a reason to fail."""

import errno
import os
import random
import shutil
import stat
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest

import ensemble
from ensemble._compile import cache_folder
from ensemble._compile.cache_folder import keep_file, kept_file, pruned, stored_file
from ensemble._compile.sealed_files import DRAFT, may_be_trusted, read_sealed, write_sealed

ROOT = Path(ensemble.__file__).parents[1]
posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives files to other users")

CONTENT = bytes(range(200))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of compiled code of this test; nothing was said yet."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache_folder, "_said", set())
    monkeypatch.delenv("ENSEMBLE_CACHE_MB", raising=False)
    return tmp_path / "cache" / "ensemble"


def damages(data):
    """Every way in which one file may differ from what was written."""
    yield b""
    for length in (1, 16, 24, 55, 56, 57, len(data) - 1):
        yield data[:length]
    yield data + b"\0"
    for place in range(len(data)):
        yield data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :]


def test_a_file_that_differs_in_any_byte_is_made_anew(folder):
    assert kept_file("a.o", lambda: CONTENT) == CONTENT
    data = (folder / "a.o").read_bytes()
    for damaged in damages(data):
        (folder / "a.o").write_bytes(damaged)
        assert stored_file("a.o") is None
    assert kept_file("a.o", lambda: CONTENT) == CONTENT
    assert (folder / "a.o").read_bytes() == data


def test_the_content_of_another_file_is_not_taken(folder):
    keep_file("a.o", CONTENT)
    shutil.copy(folder / "a.o", folder / "b.o")
    assert stored_file("b.o") is None


def test_a_full_disk_leaves_no_drafts_and_is_said_once(folder, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="not kept on disk: .* cannot be written .No space left") as seen:
        for name in ("a.o", "b.o"):
            assert kept_file(name, lambda: CONTENT) == CONTENT
    assert len(seen) == 1
    assert list(folder.iterdir()) == []


def test_an_interrupt_while_a_file_is_written_leaves_no_draft(folder, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        keep_file("a.o", CONTENT)
    assert list(folder.iterdir()) == []


@posix
def test_folder_and_files_belong_to_the_user_alone(folder):
    keep_file("a.o", CONTENT)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "a.o").stat().st_mode) == 0o600


@posix
@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_refused_once_and_a_private_one_used(folder, tmp_path, mode):
    keep_file("a.o", CONTENT)
    folder.chmod(mode)
    cache_folder._folders.cache_clear()
    with pytest.warns(RuntimeWarning, match=rf"{folder} is not used: .*mode {mode:o}") as seen:
        assert stored_file("a.o") is None
        keep_file("b.o", CONTENT)
        assert stored_file("b.o") == CONTENT
    assert len(seen) == 1
    assert not (folder / "b.o").exists()


@posix
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_loaded(folder, mode):
    keep_file("a.o", CONTENT)
    (folder / "a.o").chmod(mode)
    assert stored_file("a.o") is None


@as_root
def test_a_file_of_another_user_is_not_loaded(folder):
    keep_file("a.o", CONTENT)
    os.chown(folder / "a.o", 54321, 54321)
    assert stored_file("a.o") is None


@posix
def test_whom_files_may_belong_to():
    def about(user, mode):
        return types.SimpleNamespace(st_uid=user, st_mode=mode)

    me = os.geteuid()
    assert may_be_trusted(about(me, 0o100600)) and may_be_trusted(about(0, 0o100644))
    assert not may_be_trusted(about(me + 1, 0o100600))
    assert not may_be_trusted(about(me, 0o100660)) and not may_be_trusted(about(0, 0o100606))


@as_root
def test_two_users_of_one_folder_do_not_shut_each_other_out(folder, monkeypatch):
    """The folder of the one who came first is left alone, and nobody is warned."""
    keep_file("a.o", CONTENT)
    os.chown(folder, 54321, 54321)
    os.chown(folder / "a.o", 54321, 54321)
    cache_folder._folders.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stored_file("a.o") is None
        keep_file("a.o", CONTENT)
        assert stored_file("a.o") == CONTENT
    assert (folder.parent / "ensemble-0" / "a.o").exists()


def test_a_limit_of_zero_keeps_nothing(folder, monkeypatch):
    monkeypatch.setenv("ENSEMBLE_CACHE_MB", "0")
    assert kept_file("a.o", lambda: CONTENT) == CONTENT
    assert not folder.exists()


@pytest.mark.parametrize("given", ["-1", "much", "nan"])
def test_a_limit_that_is_no_size_is_refused(folder, monkeypatch, given):
    monkeypatch.setenv("ENSEMBLE_CACHE_MB", given)
    with pytest.raises(ValueError, match="ENSEMBLE_CACHE_MB must be a number of megabytes"):
        stored_file("a.o")


def test_files_that_were_used_longest_ago_go_first(tmp_path):
    for k in range(10):
        write_sealed(tmp_path / f"{k}.o", bytes(1000))
        os.utime(tmp_path / f"{k}.o", (k, k))
    assert read_sealed(tmp_path / "0.o") == bytes(1000)  # used now
    size = (tmp_path / "0.o").stat().st_size
    assert pruned(tmp_path, 20 * size) == 0
    pruned(tmp_path, 5 * size)
    assert {path.name for path in tmp_path.iterdir()} == {"0.o", "7.o", "8.o", "9.o"}


def test_a_process_that_writes_keeps_the_folder_below_its_limit(folder, monkeypatch):
    monkeypatch.setenv("ENSEMBLE_CACHE_MB", "0.1")
    monkeypatch.setattr(cache_folder, "BETWEEN", 4)
    for k in range(60):
        keep_file(f"{k}.o", bytes(10_000))
    assert sum(path.stat().st_size for path in folder.iterdir()) < 0.1 * 2**20 + 4 * 10_100
    assert stored_file("59.o") is not None


def test_drafts_that_a_killed_process_left_are_removed_and_those_in_work_stay(tmp_path):
    for name, age in ((f".old{DRAFT}", 1e5), (f".new{DRAFT}", 0.0)):
        (tmp_path / name).write_bytes(b"half")
        when = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (when, when))
    pruned(tmp_path, 1e9)
    assert [path.name for path in tmp_path.iterdir()] == [f".new{DRAFT}"]


# --- in processes of their own
PROGRAM = """
import sys, warnings
import numpy as np
import ensemble as en
from ensemble._kernels.krylov import vectors
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    x = en.Ensemble(np.linspace(0.1, 2.0, 400).reshape(100, 4))
    k = 0.7
    y = en.fuse(lambda u, xp: xp.sqrt(u) * k + xp.where(u > 1.0, u, 0.0))(x).samples
    total = vectors.dot(y, y, None)
    # a function that Numba compiles
    from ensemble._compile.numba import compiled_serial
    from ensemble._compile.trace.elementwise import floor_divide
    print(y.tobytes().hex()[:200], total.tobytes().hex(), floor_divide(7.5, 2.0))
for each in seen:
    print("warned:", each.message, file=sys.stderr)
"""


def run(environment, **options):
    """What the program prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, cwd=ROOT, **options
    )


def test_without_any_folder_code_is_compiled_for_the_process_and_that_is_said_once(tmp_path):
    nowhere = tmp_path / "file"
    nowhere.write_text("no folder")
    lost = {name: str(nowhere / "x") for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "TMPDIR")}
    done, usual = run(lost), run({})
    assert done.returncode == 0, done.stderr
    assert done.stdout == usual.stdout
    assert done.stderr.count("warned:") == 1 and "not kept on disk: there is no folder" in done.stderr
    assert usual.stderr == ""


N_CASES = 100


@pytest.mark.slow
def test_damaged_folders_change_no_result(tmp_path):
    """100 folders: some or all files emptied, cut, changed in bytes, exchanged, removed or replaced by folders."""
    good = tmp_path / "good"
    expected = run({"NUMBA_CACHE_DIR": str(good)})
    assert expected.returncode == 0 and {path.suffix for path in (good / "ensemble").iterdir()} == {".o", ".nbc", ".ll"}
    chosen = random.Random(7)
    for case in range(N_CASES):
        cache = tmp_path / f"case{case}"
        shutil.copytree(good, cache)
        files = sorted((cache / "ensemble").iterdir())
        for path in files if case % 10 == 0 else chosen.sample(files, chosen.randint(1, len(files))):
            damage(path, files, chosen)
        done = run({"NUMBA_CACHE_DIR": str(cache)})
        assert (done.returncode, done.stdout, done.stderr) == (0, expected.stdout, ""), case
        shutil.rmtree(cache)


def damage(path, files, chosen):
    data = path.read_bytes() if path.is_file() else b""
    kind = chosen.choice(["emptied", "cut", "changed", "changed", "changed", "exchanged", "removed", "noise", "longer"])
    if kind == "removed":
        path.unlink()
    elif kind == "exchanged":
        others = [each for each in files if each.is_file()]
        path.write_bytes(chosen.choice(others).read_bytes() if others else b"")
    elif kind == "changed" and data:
        changed = bytearray(data)
        for _ in range(chosen.choice([1, 1, 5])):
            changed[chosen.randrange(len(changed))] ^= 1 << chosen.randrange(8)
        path.write_bytes(changed)
    else:
        length = chosen.randrange(max(len(data), 1))
        path.write_bytes(
            {"cut": data[:length], "noise": chosen.randbytes(length), "longer": data + b"x"}.get(kind, b"")
        )
