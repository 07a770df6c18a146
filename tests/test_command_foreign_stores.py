"""Stores that came from elsewhere: no code of theirs runs, nothing outside is touched, and damage is told by name."""

import contextlib
import json
import os
import pickle
import re
import tracemalloc
import zlib

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import uq
from ensemble.uq.store import manifest as manifests
from tests.command_line import exit_status
from tests.uq.store.trees import tree
from tests.walked import every

MODEL = """
from scipy import stats
import ensemble as en
inputs = en.Inputs(load=stats.norm(1.0, 0.2))

def tip(x):
    return {"tip": x.load * 2.0, "line": en.Ensemble(x.load.samples * [[1.0], [2.0]])}
"""

EVIL = MODEL + "\nopen('/tmp/none/' if False else 'ran', 'w').close()\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def ensemble(capsys, *words):
    status = exit_status([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


def run(capsys, *more):
    assert ensemble(capsys, "run", "model.py:tip", "-n", 64, "--store", "a.zarr", "--quiet", *more)[0] == 0


def origin(folder):
    return folder / "a.zarr" / ".ensemble" / "command.json"


def test_an_own_study_is_resumed_without_a_word(folder, capsys):
    run(capsys)
    assert ensemble(capsys, "resume", "a.zarr", "-n", 128, "--quiet")[0] == 0
    assert (folder / "state" / "ensemble" / "key").stat().st_mode & 0o777 == 0o600


def forge(folder, **changes):
    found = json.loads(origin(folder).read_bytes()) | changes
    origin(folder).write_text(json.dumps({key: value for key, value in found.items() if value != "taken away"}))


FORGERIES = {
    "another file": lambda folder: forge(folder, model=f"{folder / 'evil.py'}:tip"),
    "no signature": lambda folder: forge(folder, model=f"{folder / 'evil.py'}:tip", signature="taken away"),
    "no digests": lambda folder: forge(folder, digests="taken away"),
    "another key": lambda folder: (folder / "state" / "ensemble" / "key").write_bytes(bytes(32)),
    "no key": lambda folder: (folder / "state" / "ensemble" / "key").unlink(),
    "a readable key": lambda folder: (folder / "state" / "ensemble" / "key").chmod(0o644),
    "inputs": lambda folder: forge(folder, config=str(folder / "evil.toml")),
}


@pytest.mark.parametrize("how", FORGERIES)
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_code_that_a_foreign_store_names_does_not_run(folder, capsys, how, force):
    run(capsys)
    (folder / "evil.py").write_text(EVIL)
    (folder / "evil.toml").write_text("[inputs]\nload = {object = 'evil.py:inputs'}\n")
    (folder / "model.py").write_text(EVIL)
    FORGERIES[how](folder)
    status, _, err = ensemble(capsys, "resume", "a.zarr", "-n", 128, "--quiet", *force)
    assert status == 2 and not (folder / "ran").exists()
    assert "resume: the store must be one of your own runs to name code" in err and "--model" in err


def test_a_file_that_has_changed_does_not_run_before_it_is_named(folder, capsys):
    run(capsys)
    (folder / "model.py").write_text(EVIL)
    status, _, err = ensemble(capsys, "resume", "a.zarr", "-n", 128, "--quiet")
    assert status == 2 and "the source has changed" in err and not (folder / "ran").exists()
    assert ensemble(capsys, "resume", "a.zarr", "-n", 128, "--quiet", "--model", "model.py:tip")[0] == 0
    assert (folder / "ran").exists()


def test_a_file_of_objects_that_has_changed_does_not_run(folder, capsys):
    (folder / "soil.py").write_text("from scipy import stats\nload = stats.norm(1.0, 0.2)\n")
    (folder / "a.toml").write_text("[inputs]\nload = {object = 'soil.py:load'}\n")
    run(capsys, "-c", "a.toml")
    (folder / "soil.py").write_text("open('ran', 'w').close()\n")
    assert ensemble(capsys, "resume", "a.zarr", "-n", 128, "--quiet")[0] == 2
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("command", ["status", "stats", "plot", "export"])
def test_commands_that_read_run_no_code(folder, capsys, command, monkeypatch):
    run(capsys)
    (folder / "model.py").write_text(EVIL)
    monkeypatch.setattr(pickle, "loads", None)
    more = {"plot": ["x.png"], "export": ["x.csv", "--output", "tip"]}.get(command, [])
    if command == "plot":
        pytest.importorskip("matplotlib")
    status, _, err = ensemble(capsys, command, "a.zarr", *more)
    assert status == 0, err
    assert not (folder / "ran").exists()


def rewritten(folder, **changes):
    """A manifest that is changed with a good checksum, as whoever sends a store can."""
    file = folder / "a.zarr" / ".ensemble" / "manifest.json"
    found = manifests.unsealed(file.read_bytes())
    file.write_bytes(manifests.sealed(found | changes))


def output(**changes):
    return {"outputs": {changes.pop("name", "tip"): {"dtype": "float64", "shape": []} | changes}}


MANIFESTS = [
    {"n": 10**12},
    {"n": 1e12},
    {"n": -1},
    {"n": True},
    {"n": "64"},
    {"n": None},
    output(name="../../x"),
    output(name="/etc/passwd"),
    output(name=".."),
    output(name=""),
    output(name="sample"),
    output(name="done"),
    output(shape=[-1]),
    output(shape=[10**9, 10**9, 10**9]),
    output(shape=[1.5]),
    output(shape="3"),
    output(shape=[1] * 40),
    output(dtype="object"),
    output(dtype="O"),
    output(dtype="nonsense"),
    output(dtype="f8,O"),
    output(dtype=3),
    output(dims=["a"]),
    {"outputs": [1]},
    {"outputs": {"tip": 3}},
    {"versions": 3},
    {"later_versions": "x"},
    {"identity": -1},
    {"statistics": {"n_replicates": 10**12}},
    {"statistics": {"n_replicates": -1}},
    {"statistics": 3},
    {"sampler": "sobol"},
    {"seed": "x"},
    {"inputs": [1]},
]  # fmt: skip


@pytest.fixture
def stored(folder, capsys):
    """The bytes of the manifest of a study in the folder."""
    run(capsys)
    return (folder / "a.zarr" / ".ensemble" / "manifest.json").read_bytes()


@contextlib.contextmanager
def peak_memory():
    """A list that gets the most bytes that were held at once; everything takes three times as long meanwhile."""
    peak = [0]
    tracemalloc.start()
    try:
        yield peak
        peak[0] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@every("changes", MANIFESTS)
def test_a_manifest_that_no_study_has_is_named_before_memory_is_taken(folder, stored, capsys, changes):
    (folder / "a.zarr" / ".ensemble" / "manifest.json").write_bytes(stored)
    rewritten(folder, **changes)
    before = tree(folder)
    is_large = max(map(int, re.findall(r"\d+", repr(changes))), default=0) >= 10**9
    with peak_memory() if is_large else contextlib.nullcontext([0]) as peak:
        for command in (["stats"], ["stats", "--json"]):
            status, _, err = ensemble(capsys, command[0], "a.zarr", *command[1:])
            assert status == 2 and "damaged" in err and "manifest" in err, err
    assert peak[0] < 2**26
    assert ensemble(capsys, "resume", "a.zarr", "--quiet")[0] == 2
    assert tree(folder) == before


def test_a_manifest_of_nested_lists_is_damaged(folder, capsys):
    run(capsys)
    (folder / "a.zarr" / ".ensemble" / "manifest.json").write_text("[" * 100_000)
    status, _, err = ensemble(capsys, "status", "a.zarr")
    assert status == 2 and "damaged" in err and "manifest.json" in err


@pytest.mark.parametrize("name", ["../../x", "a/b", ".."])
def test_inputs_of_the_group_stay_in_the_store(folder, capsys, name):
    run(capsys)
    file = folder / "a.zarr" / "zarr.json"
    group = json.loads(file.read_bytes())
    group["attributes"]["coordinates"] = name
    group["consolidated_metadata"]["metadata"][name] = group["consolidated_metadata"]["metadata"]["load"]
    group["attributes"].pop("crc32")
    group["attributes"]["crc32"] = zlib.crc32(manifests.by_lines(group))
    file.write_bytes(manifests.by_lines(group))
    status, _, err = ensemble(capsys, "stats", "a.zarr")
    assert status == 2 and "zarr.json" in err


@pytest.mark.parametrize("name", ["../../x", "/tmp/x"])
def test_outputs_of_a_journal_stay_in_the_store(tmp_path, name, monkeypatch):
    from ensemble.uq.store import checks

    with monkeypatch.context() as patch:
        patch.setattr(checks, "is_name", lambda name: True)
        store = uq.Store.create(tmp_path / "a" / "b" / "run.zarr", {"n": 4})
        store.append(np.arange(4), {name: np.zeros(4)})
        store.close()
    for manifest in (None, {"n": 4}):
        with pytest.raises(ValueError, match="names of arrays must have no '/'"):
            uq.Store.open(tmp_path / "a" / "b" / "run.zarr", manifest)
    assert sorted(os.listdir(tmp_path)) == ["a"]


def test_nothing_of_a_store_is_unpickled(tmp_path, monkeypatch):
    inputs = en.Inputs(load=stats.norm())
    en.propagate(lambda x: x.load, inputs, 8, store=tmp_path / "run.zarr", progress=False)
    monkeypatch.setattr(pickle, "loads", None)
    monkeypatch.setattr(pickle, "load", None)
    assert uq.open_study(tmp_path / "run.zarr").n_done == 8
