"""The journal: what is read is what was appended; torn ends are cut, damage elsewhere is an error."""

import os
import struct
import zlib

import numpy as np
import pytest

from ensemble.uq.store import journal as journals
from ensemble.uq.store.journal import EMPTY, FILE_HEADER, RECORD_HEADER, Journal

N_GROUPS = 4


def group(k, n_samples=5):
    rng = np.random.default_rng(30417 + k)
    ids = rng.permutation(100)[:n_samples] + 100 * k
    failed = rng.random(n_samples) < 0.4
    outputs = {"tip": rng.normal(size=n_samples), "field": rng.normal(size=(3, 2, n_samples)).astype(np.float32)}
    return ids, outputs, failed, {int(i): f"reason {i} é" for i in ids[failed]}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "journal"
    path.write_bytes(EMPTY)
    return path


@pytest.fixture
def written(path):
    """A journal of four groups."""
    journal = Journal(path, writable=True)
    for k in range(N_GROUPS):
        journal.append(*group(k))
    journal.close()
    return path


def read(path, writable=False):
    journal = Journal(path, writable=writable)
    return journal, list(journal.groups())


def values(journal, record, name):
    output, offset = record.place(name)
    rows = journal.rows(record, output, offset, 0, output.size)
    return rows.reshape(*output.shape, record.n_samples)


def records(path):
    """Offset and end of every record."""
    return [(g.record.offset, g.record.offset + g.record.length) for g in read(path)[1]]


def test_what_is_read_is_what_was_appended(written):
    journal, groups = read(written)
    assert len(groups) == N_GROUPS and journal.torn is None
    for k, found in enumerate(groups):
        ids, outputs, failed, reasons = group(k)
        assert np.array_equal(found.ids, ids) and np.array_equal(found.failed, failed) and found.reasons == reasons
        for name, expected in outputs.items():
            array = values(journal, found.record, name)
            assert array.dtype == expected.dtype and np.array_equal(array, expected)


def test_rows_of_an_output_are_read_alone(written):
    journal, groups = read(written)
    output, offset = groups[2].record.place("field")
    rows = journal.rows(groups[2].record, output, offset, 2, 5)
    assert np.array_equal(rows, group(2)[1]["field"].reshape(6, 5)[2:5])
    assert groups[2].record.place("other") is None


@pytest.mark.parametrize("one_write", [1 << 20, 0], ids=["one write", "a write per array"])
@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)], ids=str)
def test_all_data_types_and_shapes(path, monkeypatch, dtype, shape, one_write):
    monkeypatch.setattr(journals, "ONE_WRITE", one_write)
    expected = np.random.default_rng(61253).integers(0, 2, (*shape, 3)).astype(dtype)
    journal = Journal(path, writable=True)
    for first in (0, 3):
        journal.append(np.arange(first, first + 3), {"y": expected, "z": expected}, np.zeros(3, dtype=bool), {})
    assert path.stat().st_size == FILE_HEADER.size + journal.n_bytes
    reader, groups = read(path)
    for found in groups:
        assert np.array_equal(values(reader, found.record, "y"), expected)
        assert np.array_equal(values(reader, found.record, "z"), expected)


def test_a_journal_is_continued_where_it_ends(written):
    journal, _ = read(written, writable=True)
    journal.append(*group(N_GROUPS))
    assert [list(g.ids) for g in read(written)[1]] == [list(group(k)[0]) for k in range(N_GROUPS + 1)]


LENGTH = 408
"""Of the last record, at most: every byte of it is tested."""


@pytest.mark.parametrize("kept", range(1, LENGTH, 13))
def test_a_torn_end_is_found_and_cut(written, kept):
    start, end = records(written)[-1]
    assert end - start <= LENGTH
    os.truncate(written, min(start + kept, end - 1))
    journal, groups = read(written, writable=True)
    assert len(groups) == N_GROUPS - 1
    assert journal.torn == (N_GROUPS - 1, start, min(kept, end - 1 - start))
    assert f"record {N_GROUPS - 1} of the journal, the last, is incomplete" in journal.cut()
    assert written.stat().st_size == start
    journal.append(*group(7))
    assert [list(g.ids) for g in read(written)[1]] == [list(group(k)[0]) for k in (0, 1, 2, 7)]


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"GRP\x01"], ids=repr)
def test_an_end_that_never_reached_the_disk_is_torn(written, filler):
    start, end = records(written)[-1]
    contents = written.read_bytes()
    written.write_bytes(contents[:start] + (filler * (end - start))[: end - start])
    journal, groups = read(written)
    assert len(groups) == N_GROUPS - 1 and journal.torn == (N_GROUPS - 1, start, end - start)


@pytest.mark.parametrize("place", range(0, LENGTH, 7))
@pytest.mark.parametrize("number", [0, 2])
def test_damage_in_the_middle_is_an_error_that_names_the_record(written, number, place):
    start, end = records(written)[number]
    contents = bytearray(written.read_bytes())
    contents[min(start + place, end - 1)] ^= 0x10
    written.write_bytes(contents)
    text = f"got record {number} at byte offset {start} of .*journal, which does not match .* from byte offset {end}"
    with pytest.raises(ValueError, match=f"^Store.open: the journal must hold whole records; {text}"):
        read(written)


def test_the_advice_for_a_damaged_journal_works(written):
    start, _ = records(written)[2]
    contents = bytearray(written.read_bytes())
    contents[start + 40] ^= 1
    written.write_bytes(contents)
    with pytest.raises(ValueError, match=f"keep the 2 records before it, .*: truncate -s {start} {written}"):
        read(written)
    os.truncate(written, start)
    assert len(read(written)[1]) == 2


@pytest.mark.parametrize("place", range(0, LENGTH, 31))
def test_a_damaged_last_record_is_not_read(written, place):
    start, end = records(written)[-1]
    contents = bytearray(written.read_bytes())
    contents[min(start + place, end - 1)] ^= 0x10
    written.write_bytes(contents)
    journal, groups = read(written)
    assert len(groups) == N_GROUPS - 1 and journal.torn is not None


@pytest.mark.parametrize("contents", [b"ensj", b"PK\x03\x04" + bytes(60)], ids=repr)
def test_a_file_that_is_no_journal_is_refused(path, contents):
    path.write_bytes(contents)
    with pytest.raises(ValueError, match=r"got .*journal, which does not start as one. Restore the file"):
        read(path)


def test_a_file_that_lost_its_contents_in_a_power_failure_is_an_empty_journal(path):
    path.write_bytes(b"")
    assert read(path)[1] == []
    journal, groups = read(path, writable=True)
    assert groups == [] and path.read_bytes() == EMPTY
    journal.append(*group(0))
    assert len(read(path)[1]) == 1


def test_a_newer_file_is_refused(path):
    path.write_bytes(FILE_HEADER.pack(b"ensjrnl\n", 2, 0))
    with pytest.raises(ValueError, match=r"be of format version 1 or earlier; got format version 2 in .*journal\. Use"):
        read(path)


def test_a_newer_record_is_refused(written):
    start, _ = records(written)[1]
    contents = bytearray(written.read_bytes())
    header = b"GRP\x03" + contents[start + 4 : start + RECORD_HEADER.size - 4]
    contents[start : start + RECORD_HEADER.size] = header + struct.pack("<I", zlib.crc32(header))
    written.write_bytes(contents)
    with pytest.raises(ValueError, match=rf"got format version 3 in record 1 \(byte offset {start}\)"):
        read(written)


@pytest.mark.parametrize("n_written", [0, 1, 40, 200])
def test_a_failed_write_leaves_the_journal_as_it_was(written, monkeypatch, n_written):
    """A full disk takes the first bytes of a record."""
    before = written.read_bytes()
    journal, _ = read(written, writable=True)
    write, calls = os.write, []

    def full(descriptor, contents):
        calls.append(len(contents))
        if len(calls) == 1 and n_written:
            return write(descriptor, bytes(contents)[:n_written])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"No space left"):
        journal.append(*group(8))
    monkeypatch.undo()
    assert calls and written.read_bytes() == before
    journal.append(*group(9))
    assert [list(g.ids) for g in read(written)[1]] == [list(group(k)[0]) for k in (0, 1, 2, 3, 9)]


def test_a_journal_that_cannot_be_cut_after_a_failed_write_is_overwritten(written, monkeypatch):
    journal, _ = read(written, writable=True)
    write, truncate = os.write, os.ftruncate

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", lambda d, contents: refuse() if len(contents) < 300 else write(d, contents[:250]))
    monkeypatch.setattr(os, "ftruncate", lambda *_: refuse())
    with pytest.raises(OSError, match="No space left"):
        journal.append(*group(8, n_samples=20))
    monkeypatch.setattr(os, "write", write)
    journal.append(*group(9, n_samples=2))
    monkeypatch.setattr(os, "ftruncate", truncate)
    journal, groups = read(written)
    assert [list(g.ids) for g in groups[-2:]] == [list(group(3)[0]), list(group(9, n_samples=2)[0])]


@pytest.mark.parametrize("one_write", [1 << 20, 0])
def test_short_writes_are_continued(path, monkeypatch, one_write):
    monkeypatch.setattr(journals, "ONE_WRITE", one_write)
    journal = Journal(path, writable=True)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, contents: write(descriptor, bytes(contents)[:17]))
    journal.append(*group(0))
    monkeypatch.undo()
    reader, (found,) = read(path)
    assert np.array_equal(values(reader, found.record, "field"), group(0)[1]["field"])


def test_a_small_group_is_one_write(path, monkeypatch):
    journal = Journal(path, writable=True)
    write, calls = os.write, []
    monkeypatch.setattr(os, "write", lambda d, contents: (calls.append(len(contents)), write(d, contents))[1])
    record = journal.append(*group(0))
    assert calls == [record.length]


def test_an_array_of_objects_is_never_made(written):
    """Whoever writes a journal with good checksums cannot have its bytes unpickled."""
    start, end = records(written)[-1]
    contents = written.read_bytes()
    body = contents[start + RECORD_HEADER.size : end].replace(b'"<f8"', b'"|O" ')
    fields = list(RECORD_HEADER.unpack(contents[start : start + RECORD_HEADER.size]))
    header = RECORD_HEADER.pack(*fields[:5], zlib.crc32(body), 0)[:-4]
    written.write_bytes(contents[:start] + header + struct.pack("<I", zlib.crc32(header)) + body)
    with pytest.raises(ValueError, match=r"type of 'tip' must be one of bools or numbers; got '\|O' in .*journal"):
        read(written)
