"""`Store`: appending, reading and resuming, and the messages of what goes wrong."""

import errno
import os
import shutil
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from ensemble.uq import Store
from tests.uq.store.trees import tree

ROOT = Path(__file__).parents[3]
STUDY = {"n": 20, "seed": 5, "source_digest": "aa"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.zarr"


@pytest.fixture
def store(path):
    with Store.create(path, STUDY) as store:
        yield store


def append(store, ids, **changes):
    ids = np.asarray(ids)
    store.append(ids, {"y": ids * 0.5, **changes})


def test_a_study_is_resumed_where_it_ended(path):
    with Store.create(path, STUDY) as store:
        append(store, [3, 1])
    with Store.open(path, STUDY) as store:
        assert list(np.flatnonzero(store.done())) == [1, 3]
        append(store, [0])
    store = Store.open(path)
    assert list(store.read("y", [0, 3, 1])) == [0.0, 1.5, 0.5]
    assert store.manifest["outputs"] == {"y": {"dtype": "float64", "shape": []}}
    assert store.outputs["y"].size == 1 and store.n == 20


def test_without_a_close_nothing_is_lost(path):
    """As where a process is killed: its memory is gone, its writes are not."""
    store = Store.create(path, STUDY)
    append(store, [3, 1])
    assert list(Store.open(path).read("y", [3])) == [1.5]
    store.close()


def test_failed_samples_are_fill_at_once(store):
    failed, reasons = np.array([False, True]), {7: "no convergence"}
    values = {"y": np.array([1.0, 2.0]), "k": np.array([1, 2]), "b": np.array([True, True])}
    store.append(np.array([4, 7]), values, failed, reasons)
    assert np.array_equal(store.read("y", [4, 7]), [1.0, np.nan], equal_nan=True)
    assert list(store.read("k", [4, 7])) == [1, 0] and list(store.read("b", [4, 7])) == [True, False]
    assert list(np.flatnonzero(store.failed())) == [7] and store.reasons() == {7: "no convergence"}
    assert values["y"][1] == 2.0


def test_what_is_returned_belongs_to_the_caller(store):
    append(store, [0])
    store.done()[:], store.failed()[:], store.reasons()[0] = False, True, "x"
    assert store.done()[0] and not store.failed().any() and store.reasons() == {}


@pytest.mark.parametrize(
    "outputs", [{"y": np.zeros(2, ">f8")}, {"y": np.zeros((4, 2))[:, ::2].T[:1].repeat(2, 0)[:, 0]}]
)
def test_arrays_of_other_byte_orders_and_strides_are_stored(store, outputs):
    store.append(np.array([0, 1]), outputs)
    assert store.read("y", [0, 1]).dtype == np.dtype("<f8")


@pytest.mark.parametrize(
    "ids, changes, error, text",
    [
        ([1.5], {}, ValueError, r"ids must be an integer array of shape \(k,\), k > 0; got shape \(1,\) of float64"),
        (np.zeros((1, 1), int), {"y": np.zeros(1)}, ValueError, r"ids must be an integer array .*; got shape \(1, 1\)"),
        (np.zeros(0, int), {}, ValueError, r"ids must be .*; got shape \(0,\) of int64"),
        ([20], {}, ValueError, "ids must be from 0 to 19; got sample 20. Store.extend"),
        ([-1], {}, ValueError, "ids must be from 0 to 19; got sample -1"),
        ([4, 5, 4], {}, ValueError, "ids must be different; got sample 4 twice"),
        ([1, 9], {}, ValueError, "ids must be samples that are not stored; got samples 1, 9"),
        ([2], {"z": np.zeros(1)}, ValueError, "outputs must be 'y'; got 'y', 'z'"),
        ([2], {"y": np.zeros(2)}, ValueError, r"outputs\['y'\] must be float64 of shape \(1,\); got .*\(2,\)"),
        ([2], {"y": np.zeros(1, int)}, ValueError, r"outputs\['y'\] must be float64 of shape \(1,\); got int64"),
    ],
)  # fmt: skip
def test_a_group_that_does_not_fit_is_refused_and_nothing_is_written(path, store, ids, changes, error, text):
    append(store, [9, 1])
    before = (path / ".ensemble" / "journal").read_bytes()
    with pytest.raises(error, match=f"^Store.append: {text}"):
        append(store, ids, **changes)
    assert (path / ".ensemble" / "journal").read_bytes() == before


@pytest.mark.parametrize(
    "outputs, error, text",
    [
        ({"done": np.zeros(1)}, ValueError, r"\['done'\] must have a name .* none of done, failed, sample"),
        ({"a/b": np.zeros(1)}, ValueError, "must have a name without '/'"),
        ({".y": np.zeros(1)}, ValueError, "must have a name .* not starting with '.' or '_'"),
        ({"": np.zeros(1)}, ValueError, "must have a name"),
        ({3: np.zeros(1)}, ValueError, "must have a name .*; got 3"),
        ({"y": np.array(["a"])}, TypeError, "must be an array of bools, integers, or real or complex .*; got <U1"),
        ({"y": np.array([None])}, TypeError, "must be an array of bools, .*; got object"),
        ({"y": np.zeros(1, "longdouble")}, TypeError, "must be an array of bools, .*; got float128"),
        ({"y": np.float64(3)}, ValueError, r"must have samples as its last axis; got shape \(\)"),
    ],
)
def test_outputs_that_cannot_be_stored_are_refused_with_the_first_group(store, outputs, error, text):
    with pytest.raises(error, match=f"^Store.append: outputs.*{text}"):
        store.append(np.array([0]), outputs)
    append(store, [0])


@pytest.mark.parametrize(
    "failed, reasons, text",
    [
        (np.zeros(3, bool), None, r"failed must be a bool array of shape \(2,\); got shape \(3,\) of bool"),
        (np.zeros(2), None, r"failed must be a bool array of shape \(2,\); got shape \(2,\) of float64"),
        (np.array([True, False]), {1: "x"}, "reasons must be given for failed samples of the group; got sample 1"),
    ],
)
def test_masks_and_reasons_that_do_not_fit_are_refused(store, failed, reasons, text):
    with pytest.raises(ValueError, match=f"^Store.append: {text}"):
        store.append(np.array([0, 1]), {"y": np.zeros(2)}, failed, reasons)


def test_a_group_without_outputs_must_have_failed(store):
    with pytest.raises(ValueError, match=r"^Store.append: outputs must be 'y'; got none"):
        append(store, [0])
        store.append(np.array([1]), {})


@pytest.mark.parametrize(
    "name, ids, text",
    [
        ("z", [1], "name must be one of 'y'; got 'z'"),
        ("y", [1, 4], r"ids must be stored samples; got sample 4. See done\(\)"),
        ("y", [-1], "ids must be stored samples; got sample -1"),
        ("y", [20], "ids must be stored samples; got sample 20"),
    ],
)
def test_only_what_is_stored_can_be_read(store, name, ids, text):
    append(store, [1, 2])
    with pytest.raises(ValueError, match=f"^Store.read: {text}"):
        store.read(name, ids)


def test_a_study_can_be_extended(path, store):
    append(store, [19])
    store.extend(25)
    append(store, [24])
    with pytest.raises(ValueError, match=r"^Store.extend: n must be an integer of at least 25; got 24"):
        store.extend(24)
    assert list(np.flatnonzero(Store.open(path).done())) == [19, 24]


def test_a_longer_manifest_extends_the_study(path):
    Store.create(path, STUDY).close()
    with Store.open(path, {**STUDY, "n": 30}) as store:
        append(store, [29])
    assert Store.open(path).n == 30


def test_another_study_is_refused_and_a_changed_source_only_on_request(path):
    Store.create(path, STUDY).close()
    with pytest.raises(
        ValueError, match=r"^Store.open: manifest must equal the stored one; got seed: stored 5, given 6"
    ):
        Store.open(path, {**STUDY, "seed": 6})
    other = {**STUDY, "source_digest": "bb"}
    with pytest.raises(ValueError, match=r"source has changed: pass force=True"):
        Store.open(path, other)
    Store.open(path, other, force=True).close()
    Store.open(path, other).close()


def test_another_source_counts_from_the_first_group_that_fits(path):
    """A model whose outputs do not fit, or that never runs, leaves the store to the one before."""
    other, ids = {**STUDY, "source_digest": "bb"}, np.arange(STUDY["n"])
    with Store.create(path, STUDY) as store:
        store.append(ids[:1], {"tip": np.ones(1)})
    with Store.open(path, other, force=True) as store, pytest.raises(ValueError, match="outputs"):
        store.append(ids[1:2], {"other": np.ones(1)})
    Store.open(path, STUDY).close()
    with Store.open(path, other, force=True) as store:
        store.append(ids[1:2], {"tip": np.ones(1)})
    with pytest.raises(ValueError, match="source has changed"):
        Store.open(path, STUDY)
    Store.open(path, other).close()
    with Store.open(path, other) as store:
        store.append(ids[2:], {"tip": np.ones(ids.size - 2)})
    third = {**STUDY, "source_digest": "cc"}
    Store.open(path, third, force=True).close()  # no sample is left to compute
    Store.open(path, third).close()
    with Store.open(path, other, force=True) as store:  # whose model fails in the first sample that is added
        store.extend(ids.size + 1)
    Store.open(path, {**third, "n": ids.size + 1}).close()


def cut_short(path):
    os.truncate(path / ".ensemble" / "journal", 0)


def overwritten(path):
    with (path / ".ensemble" / "journal").open("r+b") as file:
        file.seek(150)
        file.write(b"\xff")


def replaced(path):
    shutil.rmtree(path)
    with Store.create(path, {"n": 4, "seed": 1}) as other:
        other.append(np.arange(4), {"other": np.ones(4)})
        other.compact()


@pytest.mark.parametrize("change", [cut_short, overwritten, replaced])
def test_a_journal_that_another_program_changes_is_not_compacted(path, change):
    with Store.create(path, STUDY) as store:
        store.append(np.arange(2), {"tip": np.arange(2.0)})
        store.append(np.arange(2, 4), {"tip": np.arange(2.0)})
        change(path)
        store.append(np.arange(4, STUDY["n"]), {"tip": np.arange(4.0, STUDY["n"])})
        wanted = "the journal must hold what the study wrote; got (that of another study|other bytes from)"
        with pytest.raises(ValueError, match=wanted):
            store.compact()
    assert not (path / "tip").exists()
    if change is replaced:
        assert Store.open(path).read("other", [0]).tolist() == [1.0]


@pytest.mark.parametrize("change", [shutil.rmtree, lambda path: path.rename(path.parent / "moved")])
def test_a_store_that_is_taken_away_while_a_study_runs_is_whole_at_its_end(path, change):
    with Store.create(path, STUDY) as store:
        store.append(np.arange(2), {"tip": np.arange(2.0)})
        change(path)
        store.append(np.arange(2, STUDY["n"]), {"tip": np.arange(2.0, STUDY["n"])})
        store.compact()
    assert Store.open(path).read("tip", np.arange(STUDY["n"])).tolist() == list(range(STUDY["n"]))


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Store.create("~/a b/größe.zarr", STUDY) as store:
        store.append(np.arange(1), {"tip": np.ones(1)})
    assert Store.exists("~/a b/größe.zarr") and Store.exists(tmp_path / "home" / "a b" / "größe.zarr")
    assert Store.open("~/a b/größe.zarr").done().sum() == 1 and list((tmp_path / "here").iterdir()) == []
    Store.create("./~/run.zarr", STUDY).close()  # a folder of that name
    assert Store.exists(tmp_path / "here" / "~" / "run.zarr")


def test_a_store_without_a_digest_takes_one_with_force(path):
    with Store.create(path, {"n": 4, "seed": 1}) as store:
        store.append(np.array([0]), {"y": np.array([1.0])})
    with Store.open(path, {"n": 4, "seed": 1, "source_digest": "bb"}, force=True) as store:
        assert "source_digest" not in store.manifest
        store.append(np.array([1]), {"y": np.array([1.0])})
    Store.open(path, {"n": 4, "seed": 1, "source_digest": "bb"}).close()


def test_an_existing_study_is_not_overwritten(path):
    Store.create(path, STUDY).close()
    with pytest.raises(ValueError, match=r"^Store.create: path must be a new one; got a study at .*Pass resume=True"):
        Store.create(path, STUDY)


def test_other_files_are_not_overwritten(tmp_path):
    (tmp_path / "notes").write_text("x")
    with pytest.raises(
        ValueError, match=r"^Store.create: path must be a new path or an empty folder; got .* 1 other files"
    ):
        Store.create(tmp_path, STUDY)
    with pytest.raises(ValueError, match=r"^Store.create: path must be .*; got the file .*notes"):
        Store.create(tmp_path / "notes", STUDY)


@pytest.mark.parametrize("manifest", [None, STUDY])
def test_what_is_no_store_is_refused(tmp_path, manifest):
    with pytest.raises(ValueError, match=r"^Store.open: path must be a stored study; got .*, which has no manifest"):
        Store.open(tmp_path, manifest)
    with pytest.raises(ValueError, match=r"^Store.open: path must be a stored study; got .*x, which does not exist"):
        Store.open(tmp_path / "x", manifest)
    assert tree(tmp_path) == {}


def test_a_creation_that_was_killed_can_be_repeated(path):
    (path / ".ensemble").mkdir(parents=True)
    (path / ".ensemble" / "lock").write_text("process 3 on here\n")
    (path / ".ensemble" / ".journal.part").write_text("ens")
    assert not Store.exists(path)
    Store.create(path, STUDY).close()
    assert Store.exists(path) and len(tree(path)) == 3


def test_one_writes_and_any_number_read(path, store):
    append(store, [1])
    with pytest.raises(
        BlockingIOError, match=r"^\[Errno .*Store.open: path must be a store that nobody else writes to"
    ):
        Store.open(path, STUDY)
    readers = [Store.open(path), Store.open(path)]
    append(store, [2])
    store.compact()
    append(store, [3])
    for reader in readers:
        assert list(np.flatnonzero(reader.done())) == [1] and reader.read("y", [1]) == [0.5]
    assert list(np.flatnonzero(Store.open(path).done())) == [1, 2, 3]


@pytest.mark.parametrize(
    "call",
    [lambda s: append(s, [5]), lambda s: s.extend(99), lambda s: s.compact()],
    ids=["append", "extend", "compact"],
)
def test_writing_needs_a_store_that_is_open_for_it(path, store, call):
    store.close()
    with pytest.raises(ValueError, match=r"the store must be open for writing; got a closed one. Store.create, or"):
        call(store)
    with pytest.raises(ValueError, match=r"the store must be open for writing; got one opened for reading"):
        call(Store.open(path))


def test_a_forked_process_cannot_write(path, store):
    child = os.fork()
    if child == 0:
        try:
            append(store, [1])
        except ValueError as error:
            os._exit(0 if "one opened in another process" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    append(store, [1])


def test_a_torn_end_warns_and_runs_again(path):
    with Store.create(path, STUDY) as store:
        append(store, [1, 2])
        append(store, [3])
    journal = path / ".ensemble" / "journal"
    os.truncate(journal, journal.stat().st_size - 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(np.flatnonzero(Store.open(path).done())) == [1, 2]
    with pytest.warns(
        RuntimeWarning, match=r"record 1 of the journal, the last, is incomplete .* its samples run again"
    ):
        store = Store.open(path, STUDY)
    with store:
        append(store, [3])
    assert list(np.flatnonzero(Store.open(path).done())) == [1, 2, 3]


@pytest.mark.parametrize("seconds, expected", [(0.0, 3), (float("inf"), 0), (3600.0, 0)])
def test_the_journal_is_flushed_as_often_as_requested(path, monkeypatch, seconds, expected):
    with Store.create(path, STUDY, sync_seconds=seconds) as store:
        calls = []
        monkeypatch.setattr(store._journal, "sync", lambda: calls.append(1))
        for k in range(3):
            append(store, [k])
        assert len(calls) == expected
    assert len(calls) == expected + 1


def test_the_first_flush_brings_the_manifest_to_the_disk_before_the_journal(path, monkeypatch):
    """What `create` writes may be lost in a power failure as long as no group has been flushed."""
    events = []
    monkeypatch.setattr("ensemble._files.sync", lambda paths: events.append(sorted(p.name for p in paths)))
    monkeypatch.setattr("ensemble.uq.store.store.sync", lambda paths: events.append(sorted(p.name for p in paths)))
    with Store.create(path, STUDY, sync_seconds=0.0) as store:
        monkeypatch.setattr(store._journal, "sync", lambda: events.append("journal"))
        assert events == []
        append(store, [0])
        append(store, [1])
        assert events == [sorted([".ensemble", "manifest.json", path.name, path.parent.name]), "journal", "journal"]


def test_a_compaction_brings_all_that_was_created_to_the_disk(path, monkeypatch):
    events = []
    monkeypatch.setattr("ensemble._files.sync", lambda paths: events.append({p.name for p in paths}))
    with Store.create(path, STUDY) as store:
        append(store, [0])
        store.compact()
        files, folders = events
        assert {".manifest.json.part", ".zarr.json.part", ".c.0.part"} <= files
        assert {".ensemble", path.name, path.parent.name, "y"} <= folders
        monkeypatch.setattr("ensemble.uq.store.store.sync", None)
        monkeypatch.setattr("os.fdatasync", None)


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_the_time_between_flushes_is_checked(path, seconds):
    with pytest.raises(ValueError, match=r"^Store.create: sync_seconds must be a finite number, zero or above"):
        Store.create(path, STUDY, sync_seconds=seconds)


def python(code, *arguments, **options):
    """Run `code` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True, text=True, cwd=ROOT, check=False, **options,
    )  # fmt: skip


def test_a_full_disk_is_a_clear_error_and_nothing_done_is_lost(path):
    """The limit on the size of a file acts as a disk that fills up within a record."""
    done = python(
        """
        import resource, sys
        import numpy as np
        from ensemble.uq import Store
        store = Store.create(sys.argv[1], {"n": 100})
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        for k in range(100):
            try:
                store.append(np.array([k]), {"y": np.full((100, 1), k * 1.0)})
            except OSError as error:
                print(k, error.errno, error)
                break
        """,
        path,
    )
    assert done.returncode == 0, done.stderr
    k, number, text = done.stdout.split(maxsplit=2)
    assert int(number) == errno.EFBIG and int(k) > 2
    assert "Store.append: path must be a folder in which files can be written; got File too large" in text
    assert "Nothing stored is lost: free space, then resume." in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = Store.open(path, {"n": 100})
    with store:
        assert store.done().sum() == int(k)
        for i in range(int(k), 100):
            store.append(np.array([i]), {"y": np.full((100, 1), i * 1.0)})
        store.compact()
        assert np.array_equal(store.read("y", np.arange(100)), np.tile(np.arange(100.0), (100, 1)))


def test_a_read_only_folder_is_a_clear_error_before_any_work(path):
    """Root may write everywhere: the process becomes another user."""
    Store.create(path, STUDY).close()
    folder = path.parent
    done = python(
        """
        import os, sys
        from ensemble.uq import Store
        from ensemble.uq.store import manifest
        manifest.current_versions()  # imports what another user may not be allowed to read
        if os.getuid() == 0:
            os.setuid(65534)
        path = sys.argv[1]
        for call in (lambda: Store.open(path, {"n": 20, "seed": 5, "source_digest": "aa"}),
                     lambda: Store.create(path + "2", {"n": 1})):
            try:
                call()
            except OSError as error:
                print(type(error).__name__, error)
        print(Store.open(path).n)
        """,
        path, preexec_fn=lambda: make_readable(folder),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    opened, created, n = done.stdout.splitlines()
    text = "path must be a folder in which files can be written; got Permission denied at"
    assert opened.startswith("PermissionError") and f"Store.open: {text}" in opened
    assert created.startswith("PermissionError") and f"Store.create: {text}" in created
    assert n == "20"


def make_readable(folder):
    """Let every user read `folder` and what leads to it, and nobody write."""
    for path in folder.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for parent in (folder, *folder.parents[:3]):
        if parent.stat().st_uid == os.getuid() and parent != Path("/tmp"):
            parent.chmod(0o755 if parent != folder else 0o555)


def test_no_optional_library_is_imported(path):
    """xarray and Zarr are for opening the finished store: writing it needs neither."""
    done = python(
        """
        import sys
        import numpy as np
        from ensemble.uq import Store
        with Store.create(sys.argv[1], {"n": 2}) as store:
            store.append(np.arange(2), {"y": np.zeros(2)})
            store.compact({"x": np.zeros(2)})
            store.read("y", [0, 1])
        assert not {"xarray", "zarr", "pandas"} & set(sys.modules)
        """,
        path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_appending_a_group_takes_little_time(path):
    """The bound is 100 us of CPU for 32 samples with three outputs; 25 were measured, and CI is slower."""
    ids = np.arange(32 * 400).reshape(400, 32)
    values = {name: np.random.default_rng(71093).normal(size=32) for name in "abc"}
    best = float("inf")
    with Store.create(path, {"n": ids.size}) as store:
        for block in ids.reshape(8, 50, 32):
            started = time.process_time()
            for group in block:
                store.append(group, values)
            best = min(best, (time.process_time() - started) / 50)
    assert best < 200e-6


def test_a_folder_that_is_read_only_is_told_and_can_be_read(path, monkeypatch):
    with Store.create(path, STUDY) as store:
        append(store, [0])
    real = os.open

    def read_only(name, flags, *rest, **options):  # permissions do not bind the superuser, who may run the tests
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(name))
        return real(name, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(
        OSError, match=r"Store\.open: path must be a folder in which files can be written; got Read-only"
    ):
        Store.open(path, STUDY)
    assert Store.open(path).done()[0]
