"""Stores that many jobs write at once: claims, journals, lost parts, and what readers and writers see meanwhile."""

import json
import os
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ensemble.uq import Store
from ensemble.uq.store import claims
from ensemble.uq.store.claims import Claim, states, take
from ensemble.uq.store.parts import PartStore, ids_of_part
from tests.uq.store.trees import tree

MANIFEST = {"n": 40, "seed": 1, "inputs": {"E": 0.5}, "source_digest": "d"}


def fill(store, part, n_parts, least=0, most=40, failed=()):
    ids = np.flatnonzero(ids_of_part(part, n_parts, 40))
    ids = ids[(ids >= least) & (ids < most)]
    mask = np.isin(ids, failed)
    store.append(ids, {"y": np.sqrt(ids)}, mask, {int(i): f"failed {i}" for i in ids[mask]})


def calm(path, failed=()):
    with Store.create(path, MANIFEST) as store:
        fill(store, 1, 1, failed=failed)
        store.compact()
    return tree(path)


def files(path):
    return {name: text for name, text in tree(path).items() if not name.startswith(".ensemble/parts/")}


@pytest.mark.parametrize("n_parts", [1, 2, 3, 8, 16, 7])
def test_parts_are_balanced_and_have_samples_of_every_replicate(n_parts):
    parts = np.array([ids_of_part(k, n_parts, 1024) for k in range(1, n_parts + 1)])
    assert (parts.sum(axis=0) == 1).all() and np.ptp(parts.sum(axis=1)) <= 1
    assert all(np.unique(np.flatnonzero(part) % 8).size == 8 for part in parts)
    assert np.array_equal(ids_of_part(1, n_parts, 2048)[:1024], parts[0])


def test_jobs_side_by_side_leave_the_files_of_one_job(tmp_path):
    expected = calm(tmp_path / "calm", failed=(7, 20))
    stores = [PartStore.join(tmp_path / "run", MANIFEST, k, 3) for k in (1, 2, 3)]
    for k, store in enumerate(stores, 1):
        fill(store, k, 3, most=20, failed=(7,))
    present = Store.open(tmp_path / "run")
    assert present.done().tolist() == [True] * 20 + [False] * 20 and present.reasons() == {7: "failed 7"}
    assert np.array_equal(present.read("y", [3, 4, 5]), np.sqrt([3, 4, 5]))
    for k, store in enumerate(stores, 1):
        fill(store, k, 3, least=20, failed=(20,))
        store.compact()
        store.close()
    assert files(tmp_path / "run") == expected
    assert states(tmp_path / "run" / ".ensemble" / "parts") == []


def test_a_part_that_runs_is_claimed_by_nobody_else(tmp_path):
    first = PartStore.join(tmp_path / "run", MANIFEST, 1, 4)
    with pytest.raises(BlockingIOError, match=r"part must be a part of 4 that no job works on; got 1/4, while process"):
        PartStore.join(tmp_path / "run", MANIFEST, 1, 4)
    with pytest.raises(BlockingIOError, match=r"got 1/8, while process .* runs, part 1 of 4"):
        PartStore.join(tmp_path / "run", MANIFEST, 1, 8)
    with pytest.raises(BlockingIOError, match="that nobody else writes to; got part 1/4 by process"):
        Store.open(tmp_path / "run", MANIFEST)
    with pytest.raises(ValueError, match="manifest must equal the stored one; got seed"):
        PartStore.join(tmp_path / "run", MANIFEST | {"seed": 2}, 2, 4)
    with pytest.raises(ValueError, match=r"Store.join: n must be 40; got 80"):
        PartStore.join(tmp_path / "run", MANIFEST | {"n": 80}, 2, 4)
    first.close()
    PartStore.join(tmp_path / "run", MANIFEST, 1, 4).close()
    assert [one.attempt for one in states(tmp_path / "run" / ".ensemble" / "parts")] == [1, 2]


def forge(folder, part, n_parts, **contents):
    """The claim of a job elsewhere."""
    path = folder / f"{claims.stem_of(part, n_parts, 1)}.claim"
    path.write_text(json.dumps({"host": "elsewhere", "process": 1, "start": 0} | contents))
    return path


@pytest.mark.parametrize("lost", ["killed here", "no sign", "ended early"])
def test_a_lost_part_is_handed_out_once(tmp_path, lost):
    store = PartStore.join(tmp_path / "run", MANIFEST, 1, 3)
    folder = tmp_path / "run" / ".ensemble" / "parts"
    fill(store, 1, 3)
    path = forge(folder, 2, 3)
    assert store.take_lost() is None  # it gave a sign just now, and part 3 has not begun
    if lost == "killed here":
        forge(folder, 2, 3, host=socket.gethostname(), process=os.getpid(), start=-1)
    elif lost == "no sign":
        os.utime(path, (0, time.time() - claims.LOST_AFTER - 5.0))
    else:
        path.rename(path.with_suffix(".ended"))
    with PartStore.join(tmp_path / "run", MANIFEST, 3, 3) as other:
        part, done = store.take_lost()
        assert part == 2 and np.array_equal(done, ids_of_part(1, 3, 40))
        assert other.take_lost() is None
        fill(other, 3, 3)
    fill(store, 2, 3)
    store.compact()
    store.close()
    assert files(tmp_path / "run") == calm(tmp_path / "calm")


def test_a_part_is_given_up_after_some_attempts(tmp_path):
    store = PartStore.join(tmp_path / "run", MANIFEST, 1, 2)
    folder = tmp_path / "run" / ".ensemble" / "parts"
    for attempt in range(1, 4):
        (folder / f"{claims.stem_of(2, 2, attempt)}.ended").write_text("{}")
    assert store.take_lost() is None
    store.close()


def test_a_job_that_was_taken_for_lost_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "SECONDS_BETWEEN_SIGNS", 0.01)
    store = PartStore.join(tmp_path / "run", MANIFEST, 1, 2)
    store.claimed[1].path.unlink()
    assert store.claimed[1].removed.wait(5.0)
    with pytest.raises(BlockingIOError, match="the job must give signs of life"):
        fill(store, 1, 2)


def test_a_killed_job_is_lost_before_its_parent_has_taken_notice(tmp_path):
    child = subprocess.Popen(["sleep", "60"])
    forge(tmp_path, 1, 2, host=socket.gethostname(), process=child.pid, start=claims.start_of(child.pid))
    assert claims.start_of(child.pid) > 0 and states(tmp_path)[0].state == "running"
    child.kill()
    until = time.monotonic() + 5.0
    while states(tmp_path)[0].state == "running" and time.monotonic() < until:
        time.sleep(0.01)
    assert states(tmp_path)[0].state == "lost"  # a zombie yet
    child.wait()


def test_signs_keep_a_claim_alive(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "SECONDS_BETWEEN_SIGNS", 0.01)
    claim = take(tmp_path, 1, 2)
    os.utime(claim.path, (0, 0))
    until = time.monotonic() + 5.0
    while claim.path.stat().st_mtime == 0 and time.monotonic() < until:
        time.sleep(0.01)
    assert states(tmp_path)[0].state == "running" and take(tmp_path, 1, 2) is None
    claim.end(finished=True)
    assert [(one.state, one.finished) for one in states(tmp_path)] == [("ended", True)]


def test_of_jobs_that_claim_at_once_one_wins(tmp_path):
    found, barrier = [], threading.Barrier(8)

    def race():
        barrier.wait()
        found.append(take(tmp_path, 1, 2))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(claim is not None for claim in found) == 1


JOINED = """
import sys
from pathlib import Path
from ensemble.uq.store.parts import PartStore
go = Path(sys.argv[2])
while not go.exists():
    pass
manifest = {"n": 40, "seed": 1, "inputs": {"E": 0.5}, "source_digest": "d"}
store = PartStore.join(sys.argv[1], manifest, int(sys.argv[3]), 3)
store.close()
"""


@pytest.mark.slow
def test_jobs_that_make_the_store_at_once_make_one(tmp_path):
    for k in range(5):
        given = [sys.executable, "-c", JOINED, str(tmp_path / f"run{k}"), str(tmp_path / f"go{k}")]
        jobs = [subprocess.Popen([*given, str(part)]) for part in (1, 2, 3)]
        time.sleep(2.0)
        (tmp_path / f"go{k}").touch()
        assert [job.wait(60) for job in jobs] == [0, 0, 0]
        assert len(states(tmp_path / f"run{k}" / ".ensemble" / "parts")) == 3


def test_two_jobs_that_ran_the_same_samples_do_no_harm(tmp_path):
    """A job that was taken for lost was alive: both have stored its samples; a success is never replaced."""
    store = PartStore.join(tmp_path / "run", MANIFEST, 1, 1)
    folder = tmp_path / "run" / ".ensemble" / "parts"
    fill(store, 1, 1, most=30, failed=(3,))
    store.close()
    with PartStore.join(tmp_path / "run", MANIFEST, 1, 1) as again:
        again._index.done[:] = False  # it has seen nothing of the other one
        fill(again, 1, 1, failed=(3, 5))
        assert len(list(folder.glob("*.journal"))) == 2
    found = Store.open(tmp_path / "run")
    assert np.flatnonzero(found.failed()).tolist() == [3] and found.reasons() == {3: "failed 3"}
    with Store.open(tmp_path / "run", MANIFEST) as whole:
        whole.compact()
    assert list(folder.glob("*")) == [] and files(tmp_path / "run") == calm(tmp_path / "calm", failed=(3,))


def test_a_kill_between_compaction_and_the_removal_of_journals_repeats_work(tmp_path, monkeypatch):
    from ensemble.uq.store import store as module

    with PartStore.join(tmp_path / "run", MANIFEST, 1, 1) as store:
        fill(store, 1, 1, failed=(3,))
    with Store.open(tmp_path / "run", MANIFEST) as whole, monkeypatch.context() as patched:
        patched.setattr(module, "ended_files", lambda *_: [])
        whole.compact()
    assert Store.open(tmp_path / "run").reasons() == {3: "failed 3"}
    with Store.open(tmp_path / "run", MANIFEST) as whole:
        whole.compact()
    assert files(tmp_path / "run") == calm(tmp_path / "calm", failed=(3,))


def test_the_incomplete_end_of_the_journal_of_a_killed_job_is_passed_over(tmp_path):
    with PartStore.join(tmp_path / "run", MANIFEST, 1, 2) as store:
        fill(store, 1, 2, most=10)
        fill(store, 1, 2, least=10)
        path = store._journal.path
    os.truncate(path, path.stat().st_size - 5)
    assert Store.open(tmp_path / "run").done().sum() == 5
    with PartStore.join(tmp_path / "run", MANIFEST, 1, 2) as store:
        assert store.done().sum() == 5
        fill(store, 1, 2, least=10)
    with PartStore.join(tmp_path / "run", MANIFEST, 2, 2) as store:
        fill(store, 2, 2)
        store.compact()
    assert files(tmp_path / "run") == calm(tmp_path / "calm")


def test_a_claim_is_of_the_process_that_made_it(tmp_path):
    claim = Claim(tmp_path / "00001-of-00002.0001.claim")
    with pytest.raises(FileExistsError):
        Claim(tmp_path / "00001-of-00002.0001.claim")
    assert states(tmp_path)[0].process == os.getpid() and states(tmp_path)[0].seconds < 5.0
    claim.owner = -1
    claim.end(finished=True)
    assert states(tmp_path)[0].state == "running"


@pytest.mark.slow
def test_a_kill_between_any_two_writes_loses_nothing(tmp_path):
    """Two parts and a rerun of failed samples are killed at each of their 103 writes, and go on."""
    command = [sys.executable, "-m", "tests.uq.store.killed_writes", str(tmp_path), "1"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["wrong"] == [] and found["kills"] >= 90
