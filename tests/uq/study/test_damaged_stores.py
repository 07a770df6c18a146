"""Studies whose stores have lost, cut, altered or foreign files: named to readers, and run again on resuming."""

import os
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import uq
from ensemble.uq.store import widths, zarr_array
from ensemble.uq.study.plan import Plan
from tests.uq.store.trees import tree

INPUTS = en.Inputs(a=stats.norm(1, 0.2), b=stats.uniform(0, 1))
N = 64


def model(x):
    x.fail(x.b > 0.9, "high")
    return {"v": x.a * np.arange(1.0, 20), "y": x.a, "k": x.b > 0.5}


def make_chunks_small(patch):
    """Several chunks along every axis."""
    patch.setattr(widths, "MAX_SAMPLES", 32)
    patch.setattr(widths, "MIN_SAMPLES", 8)
    patch.setattr(widths, "COLUMN_BYTES", 2048)
    patch.setattr(zarr_array, "CHUNK_BYTES", 512)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    make_chunks_small(monkeypatch)


def study(path, n=N, seed=7, **options):
    return en.propagate(model, INPUTS, n, seed=seed, store=path, progress=False, ensemble_size=16, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Stores of N and of 2 N samples, and one of another seed."""
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        folder = tmp_path_factory.mktemp("whole")
        study(folder / "run.zarr")
        study(folder / "long.zarr", 2 * N)
        study(folder / "other.zarr", seed=8)
    return folder


@pytest.fixture
def path(whole, tmp_path):
    return shutil.copytree(whole / "run.zarr", tmp_path / "run.zarr")


def remove(path, name):
    target = path / name
    shutil.rmtree(target) if target.is_dir() else target.unlink()


def alter(path, name):
    contents = bytearray((path / name).read_bytes())
    contents[len(contents) // 2] ^= 16
    (path / name).write_bytes(contents)


DAMAGES = {
    "missing": remove,
    "empty": lambda path, name: (path / name).write_bytes(b""),
    "cut": lambda path, name: (path / name).write_bytes((path / name).read_bytes()[:-8]),
    "altered": alter,
}

FILES = ("v/c.0.0", "v/c.2.2", "y/c.1", "k/c.0", "failed/c.0", "done/c.1", "a/c.1", "sample/c.0", "zarr.json",
         "y/zarr.json", ".ensemble/checksums.json", ".ensemble/reasons.json")  # fmt: skip


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_to_readers_and_made_again_on_resuming(path, whole, name, how):
    DAMAGES[how](path, name)
    with pytest.raises(ValueError, match=rf"{name}.*resume"):
        uq.open_study(path).values("v")
        uq.open_study(path).values("y"), uq.open_study(path).values("k"), uq.open_study(path).to_xarray()
    with pytest.warns(RuntimeWarning, match=name):
        study(path, resume=True)
    assert tree(path) == tree(whole / "run.zarr")
    with pytest.MonkeyPatch.context():
        assert uq.open_study(path).n_done == N


@pytest.mark.parametrize("name", ["v", "y", "done", "failed", "b", "sample"])
def test_a_lost_array_is_made_again_while_the_study_is_extended(path, whole, name):
    remove(path, name)
    with pytest.raises(ValueError, match=f"{name}/"):
        uq.open_study(path)
    with pytest.warns(RuntimeWarning, match=f"{name}/"):
        result = study(path, 2 * N, resume=True)
    assert np.isfinite(result.mean("v")).all()
    assert tree(path) == tree(whole / "long.zarr")


@pytest.mark.parametrize(
    "name", ["v/c.0.0", "y/c.1", "failed/c.0", "a/c.1", "zarr.json", ".ensemble/checksums.json", ".ensemble/journal"]
)
def test_a_file_of_another_study_is_damage(path, whole, name):
    shutil.copy(whole / "other.zarr" / name, path / name)
    if name != ".ensemble/journal":
        with pytest.warns(RuntimeWarning, match="not what was written" if "checksums" in name else name):
            study(path, resume=True)
        assert tree(path) == tree(whole / "run.zarr")
        return
    with pytest.raises(ValueError, match=r"those of another study in .*journal"):
        study(path, resume=True)


def test_a_manifest_of_another_study_is_refused(path, whole):
    shutil.copy(whole / "other.zarr" / ".ensemble" / "manifest.json", path / ".ensemble" / "manifest.json")
    with pytest.raises(ValueError, match="seed: stored 8, given 7"):
        study(path, resume=True)
    with pytest.raises(ValueError, match="another study"):
        uq.open_study(path)


def test_a_missing_manifest_is_named_and_nothing_is_overwritten(path):
    (path / ".ensemble" / "manifest.json").unlink()
    before = tree(path)
    for resume in (True, False):
        with pytest.raises(ValueError, match=r"manifest\.json is missing|with \d+ other files"):
            study(path, resume=resume)
    with pytest.raises(ValueError, match=r"manifest\.json is missing"):
        uq.open_study(path)
    assert tree(path) == before


def test_a_journal_without_a_manifest_is_not_overwritten(tmp_path):
    path = tmp_path / "run.zarr"
    study_ = en.plan(INPUTS, N, seed=7, store=path, ensemble_size=16)
    group = next(study_.groups())
    study_.tell(group, model(group.samples))
    study_.store.close()
    (path / ".ensemble" / "manifest.json").unlink()
    before = tree(path)
    for resume in (True, False):
        with pytest.raises(ValueError, match=r"manifest\.json is missing"):
            study(path, resume=resume)
    assert tree(path) == before


def test_a_missing_journal_is_named_and_started_again(path, whole):
    (path / ".ensemble" / "journal").unlink()
    with pytest.raises(ValueError, match="journal"):
        uq.open_study(path)
    with pytest.warns(RuntimeWarning, match="journal is missing"):
        study(path, resume=True)
    assert tree(path) == tree(whole / "run.zarr")


def test_samples_of_a_lost_chunk_alone_run_again(path):
    remove(path, "v/c.0.1")
    calls = []

    def counting(x):
        calls.extend(x.ids.tolist())
        return model(x)

    with pytest.warns(RuntimeWarning, match=r"v/c\.0\.1"):
        en.propagate(counting, INPUTS, N, seed=7, store=path, progress=False, resume="force")
    assert calls and set(calls) <= set(range(8, 16))


def test_a_run_that_ends_between_is_continued(path, whole):
    """What is lost runs again in two parts; until then it is not done, and NaN for those who read the files."""
    remove(path, "v/c.0.1")
    remove(path, "done/c.1")
    with pytest.warns(RuntimeWarning):
        part = en.plan(INPUTS, N, seed=7, store=path, resume=True, ensemble_size=16)
    pending = part.pending.size
    group = part.group(part.pending[:5])
    part.tell(group, model(group.samples))
    part.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = uq.Store.open(path)
        assert np.count_nonzero(~found.done()) == pending - 5
        assert np.isfinite(found.read("v", np.flatnonzero(found.done() & ~found.failed()))).all()
        study(path, resume=True)
    assert tree(path) == tree(whole / "run.zarr")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
@pytest.mark.parametrize("call", ["stat", "listdir"])
def test_a_file_that_cannot_be_read_is_one_clear_error(path, monkeypatch, call, error):
    real = getattr(os, call)

    def refused(target, *rest, **options):
        if str(target).endswith(("y/c.1", "done")):
            error.filename = str(target)
            raise error
        return real(target, *rest, **options)

    monkeypatch.setattr(os, call, refused)
    before = tree(path) if call == "listdir" else None
    for attempt in (lambda: uq.open_study(path), lambda: study(path, resume=True)):
        with pytest.raises(OSError, match=rf"path must be .*{error.strerror} at .*(y/c\.1|done)"):
            attempt()
    assert before is None or tree(path) == before


URLS = ["file:///tmp/x.zarr", "simplecache::s3://b/x", "https://h/x", os.path.normpath("s3://bucket/run.zarr"),
        Path("s3://bucket/run.zarr"), Path("gs://b/x"), Path("memory://x")]  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_a_store_at_a_url_is_refused_before_any_work(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    calls = []
    for store in (url, Path(url)):
        for resume in (True, False):
            with pytest.raises(
                ValueError, match=r"propagate: store must be the path of a folder of this machine; got the URL"
            ):
                en.propagate(calls.append, INPUTS, 8, store=store, resume=resume, progress=False)
        with pytest.raises(ValueError, match="plan: store must be"):
            en.plan(INPUTS, 8, store=store)
        with pytest.raises(ValueError, match="path must be the path of a folder of this machine"):
            uq.open_study(store)
        with pytest.raises(ValueError, match="path must be the path of a folder of this machine"):
            uq.Store.create(store, {"n": 3})
        with pytest.raises(ValueError, match="path must be the path of a folder of this machine"):
            uq.Store.exists(store)
    assert not calls and not list(tmp_path.iterdir())


def test_a_store_at_a_server_whose_package_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    calls = []
    with pytest.raises(ImportError, match=r"store must be on a server whose package is installed \(gs\); got"):
        en.propagate(calls.append, INPUTS, 8, store="gs://b/x", progress=False)
    assert not calls and not list(tmp_path.iterdir())


def states(folder):
    """A whole study, one whose second half is in the journal, and one that is in the journal alone; two of a kind."""
    for seed, name in ((7, "run"), (8, "other")):
        study(folder / f"{name}-whole", seed=seed)
        for kind, compacted in (("half", True), ("journal", False)):
            options = {"sampler": "sobol", "seed": seed, "ensemble_size": 16, "group_by": None, "keep": None}
            part = Plan(INPUTS, N, store=folder / f"{name}-{kind}", model=model, **options)
            for k, group in enumerate(part.groups()):
                part.tell(group, model(group.samples))
                if k == 1 and compacted:
                    part.store.compact({"a": part.samples.a.samples, "b": part.samples.b.samples})
            part.store.close()


def hurt(path, foreign, generator):
    """Damage a random file of a store; returns its name."""
    files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    name, other = generator.choice(files, 2)
    contents = bytearray((path / name).read_bytes())
    kind = generator.choice(["remove", "cut", "change", "exchange", "foreign", "folder", "empty"])
    if kind == "remove":
        (path / name).unlink()
    elif kind == "cut":
        (path / name).write_bytes(contents[: generator.integers(0, len(contents) + 1)])
    elif kind == "change" and contents:
        contents[generator.integers(len(contents))] ^= 1 << generator.integers(8)
        (path / name).write_bytes(contents)
    elif kind == "exchange":
        (path / name).write_bytes((path / other).read_bytes())
        (path / other).write_bytes(contents)
    elif kind == "foreign" and (foreign / name).exists():
        shutil.copy(foreign / name, path / name)
    elif kind == "folder" and "/" in name and not name.startswith("."):
        shutil.rmtree((path / name).parent)
    elif kind == "empty":
        (path / name).write_bytes(b"")
    return f"{kind} {name} {other if kind == 'exchange' else ''}"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 50))
def test_300_damaged_stores_end_with_the_same_statistics_or_a_refusal_that_names_the_file(tmp_path, first):
    """Missing, cut, changed, exchanged and foreign files, one to three in a store; seeds 0 to 299."""
    states(tmp_path)
    expected = {name: tree(tmp_path / "run-whole")[f"{name}/zarr.json"] for name in ("v", "y", "k")}
    truth = uq.open_study(tmp_path / "run-whole")
    counts = {"same": 0, "refused": 0}
    for seed in range(first, first + 50):
        generator = np.random.default_rng(seed)
        kind = generator.choice(["whole", "half", "journal"])
        path = shutil.copytree(tmp_path / f"run-{kind}", tmp_path / f"case-{seed}")
        done = [hurt(path, tmp_path / f"other-{kind}", generator) for _ in range(generator.integers(1, 4))
                if any(path.rglob("*"))]  # fmt: skip
        told = []
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                early = uq.open_study(path)
                if early.n_done == N and early.n_failed != N:
                    assert all(np.array_equal(early.mean(name), truth.mean(name)) for name in expected), (seed, done)
            except (ValueError, OSError) as error:
                told.append(str(error))
            try:
                result = study(path, resume=True)
            except (ValueError, OSError) as error:
                assert any(file in str(error) for file in ("journal", "manifest")), (seed, done, str(error))
                counts["refused"] += 1
                continue
            told += [str(one.message) for one in seen]
        assert result.n_done == N, (seed, done)
        for name in expected:
            assert np.array_equal(result.mean(name), truth.mean(name)), (seed, done)
            assert np.array_equal(result.std(name), truth.std(name)), (seed, done)
        assert result.n_failed == truth.n_failed, (seed, done)
        assert tree(path) == tree(tmp_path / "run-whole"), (seed, done, told)
        counts["same"] += 1
    assert counts["same"] >= 30


def test_all_but_the_manifest_of_another_study_is_damage(path, whole):
    manifest = (path / ".ensemble" / "manifest.json").read_bytes()
    journal = (path / ".ensemble" / "journal").read_bytes()
    shutil.rmtree(path)
    shutil.copytree(whole / "other.zarr", path)
    (path / ".ensemble" / "manifest.json").write_bytes(manifest)
    (path / ".ensemble" / "journal").write_bytes(journal)
    with pytest.raises(ValueError, match=r"zarr\.json is of another study"):
        uq.open_study(path)
    with pytest.warns(RuntimeWarning, match=r"zarr\.json is of another study"):
        study(path, resume=True)
    assert tree(path) == tree(whole / "run.zarr")
