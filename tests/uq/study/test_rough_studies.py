"""Studies that are killed, whose program crashes and hangs, end with every sample and the bits of calm ones."""

import contextlib
import json
import os
import random
import time
from importlib import metadata
from pathlib import Path

import pytest

from benchmarks.common import save
from ensemble.uq import Store, open_study
from ensemble.uq.store.journal import Journal
from ensemble.uq.store.parts import ids_of_part
from tests.uq.study.models import same_bits
from tests.uq.study.rough_study import (
    BUCKET,
    FAULTS,
    FULL,
    TRANSIENT,
    disturb,
    fill_disk,
    lose_chunk,
    small_disk,
    start,
    store_of,
    study,
    write_template,
)

RUNS = int(os.environ.get("ENSEMBLE_ROUGH_RUNS", "2000"))
"""Runs of each of the longer studies: ``make rough RUNS=20000``."""

RECORD = os.environ.get("ENSEMBLE_ROUGH_RECORD", "")
"""A file of JSON, in which each of them has its row."""

SLOWER = max(1.0, RUNS / 2500)
"""Factor of the seconds between kills, so that they stand all over a longer study."""

SECONDS_A_RUN = 0.05
"""Of the machine for which the seconds between kills were chosen; one that starts programs faster waits less."""

PATIENCE = max(900.0, 0.1 * RUNS)
"""Seconds that a driver may take."""

PACKAGES = ("dask", "distributed", "zarr", "fsspec", "s3fs", "moto")
"""Packages whose versions are in the record."""

ROUNDS = 6
"""Further calls until no transient fault is left; a worker may be killed in each."""


def ended(kind, folder, n):
    """Go on in drivers that nobody kills until the faults that are left are those of the model."""
    for _ in range(ROUNDS):
        assert start(kind, folder, n).wait(PATIENCE) == 0
        result = open_study(store_of(kind, folder))
        if result.n_done == n and not any(word in text for text in result.reasons.values() for word in TRANSIENT):
            return result
    raise AssertionError(result.failures)


def check(kind, folder, n, calm, **record):
    """Every sample is there or has its reason, with the bits of the calm study; then again after a chunk was lost."""
    result = first = ended(kind, folder, n)
    for _ in range(2):
        assert same_bits(result, calm) and result.n_done == n
        assert set(result.reasons) == set(range(7, n, 50))
        for found in (result, calm):
            assert {text.partition(";")[0] for text in found.reasons.values()} == {"RunFailedError: exit code 9"}
        lose_chunk(store_of(kind, folder))
        result = ended(kind, folder, n)
    failures = {text: tuple(counts) for text, counts in first.failures.items()}
    recovered = sum(counts.recovered for counts in first.failures.values())
    if "began" in record:
        record["seconds"] = round(time.monotonic() - record.pop("began"), 1)
    record = {"kind": kind, "runs": n, **record, "recovered": recovered, "failed": len(first.reasons)}
    record |= {"bits": "those of the calm study", "failures": failures}
    print(record)
    if RECORD and n == RUNS:
        keep_record(Path(RECORD), record)
    return recovered


def keep_record(path, row):
    """Put a row in the place of the one of its kind."""
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    versions = {name: version_of(name) for name in PACKAGES}
    rows = [*(each for each in rows if each["kind"] != row["kind"]), row]
    save("rough-studies", rows, path=path, versions=versions)


def version_of(package):
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)


@pytest.fixture
def calm(tmp_path):
    write_template(tmp_path)

    def made(n):
        return study("calm", tmp_path, n)

    return made


@pytest.fixture(scope="module")
def long_calm(tmp_path_factory):
    """The study of `RUNS` runs without any fault."""
    folder, began = tmp_path_factory.mktemp("calm"), time.monotonic()
    write_template(folder)
    made = study("calm", folder, RUNS)
    made.pace = min(1.0, (time.monotonic() - began) / (RUNS * SECONDS_A_RUN))
    return made


@pytest.fixture
def server(monkeypatch):
    """A server of S3 in this process."""
    s3fs, moto = pytest.importorskip("s3fs"), pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem(use_listings_cache=False).mkdir(BUCKET.removeprefix("s3://"))
    yield
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def begin_on_full_disk(kind, folder, n):
    """The first driver, which ends as its disk is full; how many samples it has stored, and on what disk."""
    with contextlib.ExitStack() as stack:
        enlarge = stack.enter_context(small_disk(folder / "disk")) if kind == "processes" else None
        full = start(kind, folder, n, **({} if enlarge else {FULL: "12"}))
        assert full.wait(300) != 0
        assert "No space left" in (folder / f"{kind}.log").read_text()
        n_done = int(open_study(store_of(kind, folder)).n_done)
        assert 0 < n_done < n and (enlarge or n_done == 96)
        if enlarge:
            enlarge()
        return n_done, "a file system of 40 kB" if enlarge else "a stand-in", stack.pop_all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "dask", "s3"])
def test_a_study_with_kills_of_drivers_and_workers_ends_as_a_calm_one(kind, tmp_path, long_calm, request):
    """2,000 runs; 100 crash, 20 hang; 3 drivers and up to 20 workers are killed, a disk is full, a chunk is lost."""
    if kind == "dask":
        pytest.importorskip("distributed")
    if kind == "s3":
        request.getfixturevalue("server")
    n, rng, killed, began = RUNS, random.Random(20611), 0, time.monotonic()
    write_template(tmp_path)
    n_done, disk, mounted = begin_on_full_disk(kind, tmp_path, n)
    with mounted:
        drivers = 0
        for n_workers in (6, 7, 7):
            driver = start(kind, tmp_path, n)
            workers, was_alive = disturb(driver, tmp_path / f"runs-{kind}", rng, n_workers, SLOWER, long_calm.pace)
            killed, drivers = killed + workers, drivers + was_alive
        numbers = {"full disk": disk, "stored before it was full": n_done, "killed drivers": drivers}
        recovered = check(kind, tmp_path, n, long_calm, **numbers, **{"killed workers": killed}, began=began)
    long = n >= 20000
    least = 20 if long else 4 if kind == "dask" else 15  # workers of Dask take seconds to start again
    assert killed >= least and (drivers == 3 or not long)
    assert recovered >= 0.04 * n  # a fault in a group that was killed is counted by nobody


@pytest.mark.slow
def test_an_array_of_8_jobs_some_of_which_are_killed_ends_as_a_calm_study(tmp_path, long_calm):
    """2,000 runs as 8 jobs on one store; jobs are killed and begun again, one has a full disk, lost parts are taken.

    3 jobs are killed, of longer studies 23.
    """
    n, rng, began = RUNS, random.Random(20612), time.monotonic()
    write_template(tmp_path)
    jobs = {k: start("array", tmp_path, n, f"{k}/8", **({FULL: "5"} if k == 4 else {})) for k in range(1, 9)}
    full = jobs.pop(4)
    until = time.monotonic() + 120.0
    while not Store.exists(tmp_path / "array.zarr") and time.monotonic() < until:
        time.sleep(0.1)
    killed, wanted = 0, 3 if n <= 2000 else 23
    while killed < wanted and any(job.poll() is None for job in jobs.values()):
        time.sleep(long_calm.pace * (SLOWER * rng.uniform(0.25, 1.0) if wanted > 3 else rng.uniform(0.5, 2.0)))
        k = rng.choice(sorted(jobs))
        if jobs[k].poll() is None:
            jobs[k].kill()
            jobs[k].wait()
            killed += 1
            if wanted > 3:
                jobs[k] = start("array", tmp_path, n, f"{k}/8")
    codes = [job.wait(2 * PATIENCE) for job in jobs.values()]
    assert full.wait(2 * PATIENCE) == 1 and killed == wanted
    assert (wanted > 3 and codes.count(0)) or sorted(codes) == [-9, -9, -9, 0, 0, 0, 0]
    store = Store.open(tmp_path / "array.zarr")
    lost = [k for k in range(1, 9) if not store.done()[ids_of_part(k, 8, n)].all()]
    print(f"array: parts that the jobs that were left did not take: {lost}")
    for k in lost:  # as ``sbatch --array=...`` of the page on clusters
        assert start("array", tmp_path, n, f"{k}/8").wait(2 * PATIENCE) == 0
    assert Store.open(tmp_path / "array.zarr").done().all()
    numbers = {"full disk": "a stand-in, in one job", "killed jobs": killed, "parts begun again by hand": len(lost)}
    recovered = check("array", tmp_path, n, long_calm, **numbers, began=began)
    assert recovered >= 0.04 * n


@pytest.mark.slow
def test_an_array_of_3_jobs_of_which_one_is_killed_ends_as_a_calm_study(tmp_path, calm):
    """48 runs: 3 crash, 1 hangs in its first run, 1 fails in each."""
    n = 48
    expected = calm(n)
    killed = start("array", tmp_path, n, "1/3", **{FULL: "1"})
    assert killed.wait(120) == 1
    jobs = [start("array", tmp_path, n, f"{k}/3") for k in (2, 3)]
    assert [job.wait(120) for job in jobs] == [0, 0]
    assert Store.open(tmp_path / "array.zarr").done().all()
    recovered = check("array", tmp_path, n, expected)
    assert recovered == 4


def test_a_small_study_with_every_fault_ends_as_a_calm_one(tmp_path, calm, monkeypatch):
    """48 runs in 3 parts: 3 crash, 1 hangs in its first run, 1 fails in each; a disk is full, a chunk is lost."""
    expected = calm(48)
    (tmp_path / "faults").mkdir()
    monkeypatch.setenv(FAULTS, str(tmp_path / "faults"))
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setenv(FULL, "1")
        patched.setattr(Journal, "_write", Journal._write)  # which fill_disk replaces
        fill_disk()
        study("array", tmp_path, 48, "1/3")
    for part in ("2/3", "3/3"):
        study("array", tmp_path, 48, part)
    store = tmp_path / "array.zarr"
    assert Store.open(store).done().all()  # the second job took what was left of the first part
    found = study("array", tmp_path, 48)
    counts = {text.split(";")[0]: tuple(count) for text, count in found.failures.items()}
    assert counts["RunFailedError: exit code 5"] == (0, 0, 3) and counts["RunFailedError: exit code 9"] == (1, 1, 0)
    for _ in range(2):
        result = open_study(store)
        assert same_bits(result, expected) and list(result.reasons) == [7]
        lose_chunk(store)
        with pytest.warns(RuntimeWarning, match="Store.open: files of"):
            study("array", tmp_path, 48)
