"""Checksums of compacted chunks: damage is told, and a kill between two writes is none."""

import json

import numpy as np
import pytest

from ensemble.uq.store.store import Store

STUDY = {"n": 8, "seed": 1}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.zarr"
    with Store.create(path, STUDY) as store:
        store.append(np.arange(4), {"y": np.arange(4.0)})
        store.compact({"a": np.arange(8.0)})
    return path


def damage(file):
    contents = bytearray(file.read_bytes())
    contents[8] ^= 1
    file.write_bytes(contents)


def test_a_flipped_bit_in_an_output_is_told_where_it_is_read(path):
    damage(path / "y" / "c.0")
    store = Store.open(path)
    with pytest.raises(ValueError, match=r"Store: a chunk must have the bytes that were written; got CRC-32 .*y/c\.0"):
        store.read("y", [0])


def test_a_flipped_bit_in_an_input_is_told(path):
    damage(path / "a" / "c.0")
    with pytest.raises(ValueError, match=r"a/c\.0"):
        Store.open(path).inputs()


def test_a_flipped_bit_in_a_mask_is_told_when_the_store_is_opened(path):
    damage(path / "done" / "c.0")
    with pytest.raises(ValueError, match=r"done/c\.0"):
        Store.open(path)


def test_damage_is_not_carried_into_the_chunk_of_a_later_compaction(path):
    damage(path / "y" / "c.0")
    with pytest.warns(RuntimeWarning, match=r"y/c\.0 is not what was written.*and samples 0, 1, 2, 3 run again"):
        store = Store.open(path, STUDY)
    with store:
        store.append(np.array([6]), {"y": np.array([6.0])})
        store.compact()
    store = Store.open(path)
    assert list(np.flatnonzero(store.done())) == [6] and list(store.read("y", [6])) == [6.0]


def test_damage_behind_the_back_of_a_writer_is_not_carried_on(path):
    with Store.open(path, STUDY) as store:
        store.append(np.array([6]), {"y": np.array([6.0])})
        (path / "y" / "c.0").unlink()
        with pytest.raises(ValueError, match=r"Store: a chunk must be there; got no file .*y/c\.0"):
            store.compact()


@pytest.mark.parametrize("n_commits", range(6))
def test_a_compaction_that_ends_between_two_commits_leaves_a_store_that_opens(path, monkeypatch, n_commits):
    from ensemble._files import Replacements

    whole, left = Replacements.commit, [n_commits]

    def commit(files):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        whole(files)

    with Store.open(path, STUDY) as store:
        store.append(np.array([6]), {"y": np.array([6.0])})
        monkeypatch.setattr(Replacements, "commit", commit)
        if n_commits < 5:
            with pytest.raises(KeyboardInterrupt):
                store.compact()
        else:
            store.compact()
        monkeypatch.undo()
    assert np.array_equal(Store.open(path).read("y", [0, 3, 6]), [0.0, 3.0, 6.0])
    with Store.open(path, STUDY) as store:
        store.compact()
        assert np.array_equal(store.read("y", [0, 3, 6]), [0.0, 3.0, 6.0])
    sums = json.loads((path / ".ensemble" / "checksums.json").read_bytes())
    assert sums and all(len(one) == 1 for one in sums.values())


def test_a_damaged_file_of_checksums_is_told(path):
    (path / ".ensemble" / "checksums.json").write_bytes(b"{")
    with pytest.raises(ValueError, match=r"checksums\.json is damaged"):
        Store.open(path)


def test_a_reader_takes_the_checksums_of_a_compaction_after_it_was_opened(path):
    reader = Store.open(path)
    with Store.open(path, STUDY) as store:
        store.append(np.array([6]), {"y": np.array([6.0])})
        store.compact()
    assert np.array_equal(reader.read("y", [0, 3]), [0.0, 3.0])
