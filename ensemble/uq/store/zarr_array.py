"""One array of the compacted store, in the files of the Zarr format, version 3 [1]_.

Chunks are the raw little-endian bytes of the array without compression: simulated values hardly compress, equal arrays
have equal files whatever library versions wrote them, and a chunk can be mapped into memory. The files are written
here and not by Zarr-Python so that they are durable (it never calls fsync), and because the import of xarray and Zarr
alone takes longer than the store may cost in a short study.

References
----------
.. [1] Zarr core specification, version 3.1, https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ensemble._check import message
from ensemble.uq.store.checksums import AGAIN, Checksums
from ensemble.uq.store.descriptions import GROUP_FILE, Output
from ensemble.uq.store.places import places_by_key
from ensemble.uq.store.widths import samples_per_chunk

__all__ = ["MASKS", "RowBlock", "ZarrArray", "fill_value"]

MASKS = tuple(Output(name, np.dtype(bool), ()) for name in ("done", "failed"))
"""Which samples are stored, and which of them failed."""

CHUNK_BYTES = 1 << 22
"""Length of a chunk: the output's own axes are split to stay below."""


SEPARATOR = "."
"""Separator in a chunk's name: the chunks of an array are in one folder, as folders cost more than files."""


class RowBlock(NamedTuple):
    """One chunk along the output's own axes: values `start` to `stop` of the flattened output."""

    key: tuple[int, ...]
    start: int
    stop: int


def fill_value(dtype: np.dtype) -> Any:
    """What stands for samples that failed or are not done: NaN, and 0 or False in types without NaN."""
    return dtype.type(np.nan if dtype.kind == "f" else complex(np.nan, np.nan) if dtype.kind == "c" else 0)


class ZarrArray:
    """An array of shape ``(*output.shape, n_samples)`` in the folder `folder`; the last axis is called sample.

    `most` is that of `samples_per_chunk`.
    """

    def __init__(
        self,
        folder: Path,
        output: Output,
        *,
        dims: tuple[str, ...] | None = None,
        checksums: Checksums | None = None,
        most: int | None = None,
    ) -> None:
        self.folder, self.output, self.checksums = folder, output, checksums
        self.fill = fill_value(output.dtype)
        self.n_chunk = samples_per_chunk(output, most)
        self.dims = tuple(f"{output.name}_dim_{k}" for k in range(len(output.shape))) if dims is None else dims
        self.chunk = self._split()
        self.n_rows = math.prod(self.chunk)

    def _split(self) -> tuple[int, ...]:
        """Shape of a chunk along the output's own axes: one value, a range, or all, from the first to the last."""
        left = max(1, CHUNK_BYTES // (self.output.dtype.itemsize * self.n_chunk))
        chunk: list[int] = []
        for length in reversed(self.output.shape):
            chunk.insert(0, max(1, min(length, left)))
            left = left // length if 0 < length <= left else 1
        return tuple(chunk)

    @property
    def metadata_path(self) -> Path:
        """The file with the array's metadata."""
        return self.folder / GROUP_FILE

    def metadata(self, n_samples: int, attributes: dict[str, Any] | None = None) -> dict[str, Any]:
        """The contents of ``zarr.json``."""
        dtype = self.output.dtype
        fill: Any = bool(self.fill) if dtype.kind == "b" else 0
        if dtype.kind in "fc":
            fill = "NaN" if dtype.kind == "f" else ["NaN", "NaN"]
        codec: dict[str, Any] = {"name": "bytes"}
        if dtype.itemsize > 1:
            codec["configuration"] = {"endian": "little"}
        return {
            "shape": [*self.output.shape, n_samples],
            "data_type": dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [*self.chunk, self.n_chunk]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": SEPARATOR}},
            "fill_value": fill,
            "codecs": [codec],
            "attributes": attributes or {},
            "dimension_names": [*self.dims, "sample"],
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        }

    def row_blocks(self) -> Iterator[RowBlock]:
        """The chunks along the output's own axes; each is a range of the flattened output."""
        shape = self.output.shape
        if not self.output.size:
            return
        grid = [-(-length // part) for length, part in zip(shape, self.chunk, strict=True)]
        strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        for key in np.ndindex(*grid):
            corner = [k * part for k, part in zip(key, self.chunk, strict=True)]
            start = sum(k * stride for k, stride in zip(corner, strides, strict=True))
            extents = [min(part, s - k) for part, s, k in zip(self.chunk, shape, corner, strict=True)]
            yield RowBlock(key, start, start + math.prod(extents))

    def path(self, block: RowBlock, column: int) -> Path:
        """The file of the chunk with the samples ``column * n_chunk`` on."""
        return self.folder / SEPARATOR.join(("c", *map(str, (*block.key, column))))

    def chunk_values(self, block: RowBlock, column: int, *, needed: bool = False) -> np.ndarray | None:
        """The chunk, (n values, n_chunk), mapped into memory; None where there is none.

        Raises ValueError where it is damaged: one that was written and is missing, or is `needed`, is damaged, too.
        """
        path, dtype, sums = self.path(block, column), self.output.dtype, self.checksums
        expected = self.n_rows * self.n_chunk * dtype.itemsize
        try:
            found = path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            if needed or (sums is not None and sums.key_of(path) in sums and not sums.is_open()):
                raise ValueError(message("Store", "a chunk", "be there", f"no file {path}", AGAIN)) from None
            return None
        if found != expected:
            raise ValueError(f"Store: {path} is damaged: it has {found} bytes and not {expected}. {AGAIN}")
        values = np.memmap(path, dtype=dtype, mode="r", shape=(self.n_rows, self.n_chunk))
        if sums is not None:
            sums.check(path, values.reshape(-1).view(np.uint8))
        return values[: block.stop - block.start]

    def chunk_bytes(self, values: np.ndarray) -> np.ndarray:
        """The bytes of the file of a chunk that holds `values`, (n values, n_chunk); the rest of it is fill."""
        missing = self.n_rows - len(values)
        if missing:
            values = np.concatenate([values, np.full((missing, self.n_chunk), self.fill, dtype=self.output.dtype)])
        return np.ascontiguousarray(values).reshape(-1).view(np.uint8)

    def read(self, ids: np.ndarray, places: np.ndarray, result: np.ndarray, needed: np.ndarray | None = None) -> None:
        """Copy the samples ``ids[places]`` to ``result[:, places]``; fill where there is no chunk.

        `needed` says by place which samples must have one.
        """
        wanted = ids[places]
        for column, chosen in places_by_key(wanted // self.n_chunk):
            inside, to = wanted[chosen] - column * self.n_chunk, places[chosen]
            must = needed is not None and bool(needed[to].any())
            for block in self.row_blocks():
                values = self.chunk_values(block, column, needed=must)
                result[block.start : block.stop, to] = self.fill if values is None else values[:, inside]
