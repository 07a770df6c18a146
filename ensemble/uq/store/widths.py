"""How many samples a chunk of the store has."""

from __future__ import annotations

from ensemble.uq.store.descriptions import Output

__all__ = ["MAX_SAMPLES", "chunk_samples_for", "samples_per_chunk"]

MAX_SAMPLES, MIN_SAMPLES = 4096, 32
"""Bounds of the number of samples per chunk, but for studies of many samples."""

LEAST_CHUNKS = 16
"""A study of many samples has wider chunks, as a file costs more than its bytes (`benchmarks propagate`), but at least
half so many columns of them: a file that is lost has at most so large a part of the study."""

WIDER_BYTES = 1 << 20
"""Length up to which a chunk is made wider."""

COLUMN_BYTES = 1 << 26
"""All values of the samples of one chunk, as long as `MIN_SAMPLES` allows it."""


def chunk_samples_for(n: int) -> int:
    """The largest number of samples per chunk in a study that begins with `n` samples."""
    count = MAX_SAMPLES
    while count * LEAST_CHUNKS <= n:
        count *= 2
    return count


def samples_per_chunk(output: Output, most: int | None = None) -> int:
    """Samples per chunk: a power of two that depends on the output's size and data type, and on `most`.

    `most` is what `chunk_samples_for` gave when the study began, `MAX_SAMPLES` by default.
    """
    n_bytes, count = output.size * output.dtype.itemsize, MAX_SAMPLES
    while count > MIN_SAMPLES and n_bytes * count > COLUMN_BYTES:
        count //= 2
    while count < (most or 0) and 2 * n_bytes * count <= WIDER_BYTES:
        count *= 2
    return count
