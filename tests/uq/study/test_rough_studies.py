"""Studies that are killed, whose program crashes and hangs, end with every sample and the bits of calm ones."""

import random
import time

import pytest

from ensemble.uq import Store, open_study
from ensemble.uq.store.journal import Journal
from ensemble.uq.store.parts import ids_of_part
from tests.uq.study.models import same_bits
from tests.uq.study.rough_study import (
    FAULTS,
    FULL,
    TRANSIENT,
    disturb,
    fill_disk,
    lose_chunk,
    start,
    study,
    write_template,
)

ROUNDS = 6
"""Further calls until no transient fault is left; a worker may be killed in each."""


def ended(kind, folder, n):
    """Go on in drivers that nobody kills until the faults that are left are those of the model."""
    for _ in range(ROUNDS):
        assert start(kind, folder, n).wait(900) == 0
        result = open_study(folder / f"{kind}.zarr")
        if result.n_done == n and not any(word in text for text in result.reasons.values() for word in TRANSIENT):
            return result
    raise AssertionError(result.failures)


def check(kind, folder, n, calm):
    """Every sample is there or has its reason, with the bits of the calm study; then again after a chunk was lost."""
    result = first = ended(kind, folder, n)
    for _ in range(2):
        assert same_bits(result, calm) and result.n_done == n
        assert set(result.reasons) == set(range(7, n, 50))
        for found in (result, calm):
            assert {text.partition(";")[0] for text in found.reasons.values()} == {"RunFailedError: exit code 9"}
        lose_chunk(folder / f"{kind}.zarr")
        result = ended(kind, folder, n)
    recovered = sum(counts.recovered for counts in first.failures.values())
    print(f"{kind}: {recovered} samples recovered; {first.failures}")
    return recovered


@pytest.fixture
def calm(tmp_path):
    write_template(tmp_path)

    def made(n):
        return study("calm", tmp_path, n)

    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "dask"])
def test_a_study_of_2000_runs_with_kills_of_drivers_and_workers_ends_as_a_calm_one(kind, tmp_path, calm):
    """2,000 runs; 100 crash, 20 hang; 3 drivers and up to 20 workers are killed, a disk is full, a chunk is lost."""
    if kind == "dask":
        pytest.importorskip("distributed")
    n, rng, killed = 2000, random.Random(20611), 0
    expected = calm(n)
    full = start(kind, tmp_path, n, **{FULL: "12"})
    assert full.wait(300) != 0 and Store.open(tmp_path / f"{kind}.zarr").done().sum() == 96
    for n_workers in (6, 7, 7):
        killed += disturb(start(kind, tmp_path, n), rng, n_workers, kill=True, most=120.0)
    recovered = check(kind, tmp_path, n, expected)
    least = 15 if kind == "processes" else 4  # workers of Dask take seconds to start again
    assert killed >= least and recovered >= 80  # a fault in a group that was killed is counted by nobody


@pytest.mark.slow
def test_an_array_of_8_jobs_some_of_which_are_killed_ends_as_a_calm_study(tmp_path, calm):
    """2,000 runs as 8 jobs on one store; 3 jobs are killed, one has a full disk, lost parts are handed out again."""
    n, rng = 2000, random.Random(20612)
    expected = calm(n)
    jobs = [start("array", tmp_path, n, f"{k}/8", **({FULL: "5"} if k == 4 else {})) for k in range(1, 9)]
    until = time.monotonic() + 120.0
    while not Store.exists(tmp_path / "array.zarr") and time.monotonic() < until:
        time.sleep(0.1)
    for job in rng.sample(jobs[:3] + jobs[4:], 3):
        time.sleep(rng.uniform(0.5, 2.0))
        job.kill()
    codes = [job.wait(900) for job in jobs]
    assert sorted(codes)[:3] == [-9, -9, -9] and codes[3] == 1 and codes.count(0) == 4
    store = Store.open(tmp_path / "array.zarr")
    lost = [k for k in range(1, 9) if not store.done()[ids_of_part(k, 8, n)].all()]
    print(f"array: parts that the jobs that were left did not take: {lost}")
    assert len(lost) < 4
    for k in lost:  # as ``sbatch --array=...`` of the page on clusters
        assert start("array", tmp_path, n, f"{k}/8").wait(900) == 0
    assert Store.open(tmp_path / "array.zarr").done().all()
    recovered = check("array", tmp_path, n, expected)
    assert recovered >= 80


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
