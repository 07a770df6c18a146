"""Staged copies: the bits arrive, no buffer is filled before its copy was made, and errors are those of the copy."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from ensemble._compile import staging
from ensemble._compile.staging import HostStream, StagedCopies


class LateStream:
    """A device in whose place the host stands: each copy is made as late as its order allows."""

    def __init__(self):
        self.queue, self.lock, self.n_pinned = [], threading.Lock(), 0

    def activate(self):
        pass

    def pinned(self, shape, dtype):
        self.n_pinned += 1
        return np.full(shape, 0xEE, dtype)

    def is_pinned(self, array):
        return False

    def destination(self, shape, dtype):
        return np.zeros(shape, dtype)

    def event(self):
        return Event(self)

    def copy(self, pinned, out, start, event):
        with self.lock:
            event.done = False
            self.queue.append((event, pinned, out.reshape(-1).view(np.uint8)[start : start + pinned.size]))


class Event:
    def __init__(self, stream):
        self.stream, self.done = stream, True

    def synchronize(self):
        with self.stream.lock:
            while not self.done:
                event, pinned, out = self.stream.queue.pop(0)
                out[:] = pinned
                event.done = True


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(staging, "SMALLEST_PIECE", 4096)
    monkeypatch.setattr(staging, "LARGEST_PIECE", 8192)
    monkeypatch.setattr(staging, "THREAD_BYTES", 4096)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (511,), (513,), (7, 5, 640)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.bool_, np.complex128])
def test_the_bits_arrive(threads, shape, dtype, rng, small_pieces):
    source = rng.integers(0, 2, shape).astype(dtype) if dtype == np.bool_ else rng.normal(size=shape).astype(dtype)
    source = np.asarray(source)
    copies = StagedCopies(LateStream(), threads)
    made = copies.start(source).wait()
    assert made.shape == shape and made.dtype == dtype
    assert made.tobytes() == source.tobytes() and not np.shares_memory(made, source)


@pytest.mark.parametrize("threads", [1, 4])
def test_two_buffers_a_thread_serve_all_copies_in_flight(threads, rng, small_pieces):
    sources = [rng.normal(size=20_000 + 512 * k) for k in range(5)]
    copies = StagedCopies(LateStream(), threads)
    under_way = [copies.start(source) for source in sources]
    for source, copy in reversed(list(zip(sources, under_way, strict=True))):
        np.testing.assert_array_equal(copy.wait(), source)
        assert copy.done() and copy.wait() is copy.wait()
    assert copies.stream.n_pinned <= 2 * threads


def test_the_source_may_be_changed_after_wait(rng, small_pieces):
    source = rng.normal(size=5000)
    for stream in (LateStream(), HostStream()):
        kept = source.copy()
        copy = StagedCopies(stream, 2).start(source)
        made = copy.wait()
        source[:] = 0.0
        np.testing.assert_array_equal(made, kept)
        source[:] = kept


def test_a_copy_that_fails_raises_its_error_once_no_part_is_under_way(rng, small_pieces):
    class Failing(LateStream):
        def copy(self, pinned, out, start, event):
            if start == 0:
                raise MemoryError("no more")
            time.sleep(0.05)
            super().copy(pinned, out, start, event)

    stream = Failing()
    copy = StagedCopies(stream, 2).start(rng.normal(size=4096))
    with pytest.raises(MemoryError, match="no more"):
        copy.wait()
    assert copy.done() and not stream.queue


@pytest.mark.parametrize(
    "n_bytes, threads, used",
    [(0, 4, 1), (1, 4, 1), (829_080, 4, 1), (8_870_304, 4, 2), (1 << 30, 4, 4), (1 << 30, 1, 1)],
)
def test_pieces_are_whole_pages_and_small_arrays_take_few_threads(n_bytes, threads, used):
    count, size = staging._division(n_bytes, threads)
    assert count == used and staging.SMALLEST_PIECE <= size <= staging.LARGEST_PIECE and size % 4096 == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_copies_with_threads_of_its_own(rng):
    copies, source = StagedCopies(HostStream(), 1), rng.normal(size=100)
    copies.start(source).wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a copy that no thread makes
        os._exit(0 if np.array_equal(copies.start(source).wait(), source) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
