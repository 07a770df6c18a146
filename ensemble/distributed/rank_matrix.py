"""The rows of a sparse matrix that a rank holds, and the rows of vectors that they read from other ranks."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ensemble._backend import asarray_like, library_and_device, to_numpy
from ensemble._check import kind_of, message, require
from ensemble._compile.cuda import CHUNK
from ensemble._kernels.krylov import vectors
from ensemble._kernels.multigrid import relaxation
from ensemble._kernels.sparse import crs
from ensemble._kernels.sparse.graph_rows import diagonal_entries
from ensemble._kernels.sparse.row_passes import Passes
from ensemble._kernels.sparse.row_sums import in_space
from ensemble._typing import Array
from ensemble.distributed.agreement import agreement
from ensemble.distributed.arithmetic import RankArithmetic
from ensemble.distributed.dirichlet import RankElimination
from ensemble.distributed.halo import Halo
from ensemble.distributed.layout import RowLayout
from ensemble.distributed.messages import all_sum, device_messages_for, gathered
from ensemble.distributed.offsets import narrow, offsets_of
from ensemble.distributed.transpose import TransposePlan
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.linalg.graph import WithValues
from ensemble.linalg.linear_operator import MatrixOperator, inherited
from ensemble.linalg.operators import multiply
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

__all__ = ["RankMatrix", "foreign", "require_messages", "require_whole_chunks"]

EARLY_ROWS = 4096
"""Rows that need no ghost, at least, for a pass of their own while ghosts travel: it costs a call of 10 to 20 us.

Measured again by `benchmarks distributed`.
"""


class RankMatrix(RankArithmetic, WithValues, MatrixOperator):
    """The rows of a sparse matrix that a rank holds.

    Attributes
    ----------
    rows, columns : RowLayout
        Layouts of the vectors that the matrix gives and takes.
    indptr : array of int32 or int64, shape (n_local + 1,)
    numbers : array of int64, shape (nnz_local,)
        The column of each entry in domain order, ascending within a row: the order in which a row is summed.
    indices : array of int32, shape (nnz_local,)
        The same column among the rows of this rank and, behind them, its ghosts.
    values : array, shape (nnz_local, n_samples)
    halo : Halo
        The exchange of the columns that other ranks own.
    """

    __array_ufunc__ = None
    has_partial_dots = True

    def __init__(
        self, rows: RowLayout, columns: RowLayout, indptr: np.ndarray, numbers: np.ndarray, values: np.ndarray,
        halo: Halo | None = None, indices: np.ndarray | None = None, sample_set: SampleSet | None = None,
    ) -> None:  # fmt: skip
        self.rows, self.columns, self.indptr, self.numbers, self.values = rows, columns, indptr, numbers, values
        if halo is None or indices is None:
            halo, indices = halo_of(columns, numbers)
        self.halo, self.indices, self.sample_set = halo, indices, sample_set
        columns.space.reserve(halo.n_ghosts)
        self.space = rows.space
        self.shape = (rows.n, columns.n)
        self._nnz: int | None = None
        self._diagonal: np.ndarray | None = None
        self._copies: dict[Any, Any] = {}  # of arrays of the graph, on devices
        self._plans: dict[str, Any] = {}  # what follows from the graph, for all matrices on it
        self._placed: tuple[Any, Any, Any] | None = None

    # --- what it is
    def __repr__(self) -> str:
        ranks = self.rows.comm.size
        return (
            f"{type(self).__name__}(shape={self.shape}, n_samples={self.n_samples}, {self.dtype}, "
            f"{self.rows.n_local} rows of rank {self.rows.comm.rank} of {ranks}, {self.rows.n_domains} domains)"
        )

    @property
    def local_shape(self) -> tuple[int, int]:
        return self.rows.n_local, self.columns.n_local

    @property
    def nnz(self) -> int:
        """Stored entries of all ranks; the first call sums over them."""
        if self._nnz is None:
            self._nnz = int(all_sum(self.rows.comm, np.array([self.numbers.size], np.int64))[0])
        return self._nnz

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """(indptr, indices, values): what every kernel on the rows of this rank begins with."""
        if isinstance(self.values, np.ndarray):
            return self.indptr, self.indices, self.values
        if self._placed is None or self._placed[2] is not self.values:  # each product asks for them
            graph = self._on_device("indptr", self.indptr), self._on_device("indices", self.indices)
            self._placed = *graph, self.values
        return self._placed

    entries: Any = None
    """For each entry of the graph the place of its value; None where that is its own."""

    @property
    def graph_arrays(self) -> tuple[Any, ...]:
        """(indptr, indices), and `entries` if there are some, for kernels of set-ups that read whole rows."""
        return self.arrays[:2]

    def replay_parts(self) -> tuple[Any, ...]:
        return self.halo, *self.arrays

    def _on_device(self, name: str, array: np.ndarray) -> Array:
        """An array of the graph where the values are; made once for all matrices on the graph."""
        key = name, *library_and_device(self.values)
        if key not in self._copies:
            self._copies[key] = asarray_like(array, self.values)
        return self._copies[key]

    def diagonal(self) -> Ensemble:
        """The entries of the main diagonal in this rank's rows; zero where none is stored."""
        places = self.diagonal_places()
        if not isinstance(self.values, np.ndarray):
            places = self._on_device("diagonal", places)
        return Ensemble(crs.diagonal(places, self.values, None), self.sample_set)

    def diagonal_places(self) -> np.ndarray:
        """The place of the diagonal entry of each of this rank's rows, -1 where none is stored."""
        if self._diagonal is None:
            self._diagonal = diagonal_entries(self.indptr, self.numbers, self.rows.first)
        return self._diagonal

    # --- known unknowns
    def alike(self) -> AbstractContextManager[None]:
        """A context whose error on one rank is raised on all."""
        return agreement(self.rows.comm)

    def elimination(self, rows: np.ndarray, symmetric: bool) -> RankElimination:
        """Which entries become zero for known unknowns, local rows of this rank."""
        return RankElimination(self, rows, symmetric)

    # --- what a hierarchy asks for
    def require_options(self, function: str, **options: Any) -> None:
        """Refuse options of set-ups that matrices over ranks do not have."""
        for name, value in options.items():
            given = value is not None and value is not False and value != 0
            wanted = "be a Chebyshev or a Jacobi" if name == "smoother" else "have its default"
            advice = "Give A.gather(), the whole matrix, to use it on one process."
            require(not given, function, name, f"{wanted} for a matrix over ranks", repr(value), advice)

    def require_same_places(self, A: Any, function: str, builder: str) -> None:
        """Refuse a matrix whose entries do not stand where those of this one do."""
        same = isinstance(A, RankMatrix) and A.rows.n_local == self.rows.n_local
        same = same and np.array_equal(A.indptr, self.indptr) and np.array_equal(A.numbers, self.numbers)
        wanted = "have the graph the hierarchy was built for"
        different = bool(self.space.any(np.array(not same)))
        require(not different, function, "A", wanted, repr(A), f"Build a new one with {builder}.")

    def gathered(self) -> CrsMatrix:
        """The whole matrix in domain order, on every rank."""
        comm = self.rows.comm
        entries = offsets_of(comm.allgather(self.numbers.size))
        lengths = gathered(comm, np.diff(self.indptr).astype(np.int64), self.rows.offsets)
        numbers, values = gathered(comm, self.numbers, entries), gathered(comm, self.values, entries)
        graph = CrsGraph.unchecked(narrow(offsets_of(lengths)), numbers.astype(np.int32), self.shape)
        return inherited(CrsMatrix(graph, Ensemble(values, self.sample_set)), self)

    def asymmetry(self) -> np.ndarray:
        """The largest ``|a_ij - a_ji|`` of all ranks, per sample."""
        other, sides = self.T, []
        for matrix in (self, other):
            rows = np.repeat(np.arange(self.rows.n_local), np.diff(matrix.indptr))
            sides.append(rows * self.shape[1] + matrix.numbers)
        keys = np.union1d(*sides)
        difference = np.zeros((keys.size, self.n_samples), self.dtype)
        difference[np.searchsorted(keys, sides[0])] = self.values
        difference[np.searchsorted(keys, sides[1])] -= other.values
        return self.space.largest(np.abs(difference).max(axis=0, initial=0.0))

    # --- other matrices on the same rows and columns
    def with_values(self, values: np.ndarray, sample_set: SampleSet | None = None) -> Any:
        """The matrix with other values at the same places."""
        made = RankMatrix(
            self.rows, self.columns, self.indptr, self.numbers, values, self.halo, self.indices, sample_set
        )
        made._nnz, made._diagonal, made._copies, made._plans = self._nnz, self._diagonal, self._copies, self._plans
        return inherited(made, self)

    def on_graph(
        self, indptr: np.ndarray, numbers: np.ndarray, values: np.ndarray, sample_set: SampleSet | None
    ) -> RankMatrix:
        """A matrix on the same rows and columns with other places, columns in domain order and ascending."""
        return RankMatrix(self.rows, self.columns, indptr, numbers, values, sample_set=sample_set)

    def to(self, like: Any) -> Any:
        """This matrix with its values in the library and on the device of the array `like`; itself if they are there.

        Raises
        ------
        TypeError
            On every rank, for a device where the communicator has no messages between devices.
        ValueError
            On every rank, for a device where a domain does not begin at a multiple of 64 rows.
        """
        if type(like) is type(self.values):
            return self
        self.require_device(like, f"{type(self).__name__}.to", "like")
        made = copy.copy(self)
        made.values = asarray_like(to_numpy(self.values), like)
        return made

    def require_device(self, like: Any, function: str, argument: str) -> None:
        """Refuse arrays of a device that the ranks cannot exchange, or not sum with the bits of one rank."""
        require_messages(self.rows.comm, like, function, argument)

    def take_samples(self, samples: Any) -> Any:
        """The matrix of the samples named, in that order; a shared matrix is its own answer."""
        if self.n_samples == 1:
            return self
        samples = np.asarray(samples)
        part = vectors.take_samples(self.values, asarray_like(samples, self.values), None)
        return self.with_values(part, self.sample_set and self.sample_set.take(samples))

    def astype(self, dtype: Any) -> Any:
        """The same matrix with values of another type; itself where that is its type."""
        return self if dtype == self.dtype else self.with_values(self.values.astype(dtype), self.sample_set)

    # --- products
    def whole(self, x: Array) -> Array:
        """`x` and behind it the ghost rows, as their owners have them."""
        return self.halo.exchange(self.columns.space.with_ghosts(x, self.halo.n_ghosts))

    def arriving(self, x: Array) -> AbstractContextManager[Array]:
        """A context in which one kernel reads `x` and behind it the ghost rows; see `Halo.arriving`."""
        return self.halo.arriving(self.columns.space.with_ghosts(x, self.halo.n_ghosts), self.passes)

    @property
    def passes(self) -> Passes | None:
        """Which blocks of rows are computed while ghost rows travel; None where all rows are computed at once."""
        if "passes" not in self._plans:
            self._plans["passes"] = self.passes_from(EARLY_ROWS)
        found: Passes | None = self._plans["passes"]
        return found

    def passes_from(self, least: int) -> Passes | None:
        """As `passes`, where at least so many rows read no ghost."""
        if not self.halo.receives:
            return None
        bounds = self.rows.space.bounds(self.rows.n_local)
        entries = np.flatnonzero(self.indices >= self.columns.n_local)
        rows = np.searchsorted(self.indptr, entries, side="right") - 1
        waits = np.zeros(bounds.size - 1, bool)
        waits[np.searchsorted(bounds, rows, side="right") - 1] = True
        passes = Passes(bounds, waits)
        return passes if passes.n_early >= least else None

    def apply(self, x: Array, out: Array = None) -> Array:
        """A x on bare arrays, shape (n_local, n_samples)."""
        with self.arriving(x) as whole:
            return crs.spmv(*self.arrays, whole, out)

    def apply_dot(self, x: Array, out: Array = None) -> tuple[Array, Array]:
        """A x, and the inner product of x with it over the rows of all ranks."""
        with in_space(self.space), self.arriving(x) as whole:
            y, inner = crs.spmv_dot(*self.arrays, whole, out)
        return y, inner

    def apply_dot_partials(self, x: Array, out: Array = None) -> tuple[Array, Array]:
        """On a device: A x, and the partial sums of x . A x over this rank's rows."""
        return crs.spmv_dot_partials(*self.arrays, self.whole(x), out)

    def residual(self, x: Array, b: Array, out: Array = None) -> Array:
        """b - A x on bare arrays."""
        with self.arriving(x) as whole:
            return crs.residual(*self.arrays, whole, b, out)

    def add_product(self, x: Array, out: Array) -> Array:
        """out += A x on bare arrays."""
        with self.arriving(x) as whole:
            return crs.spmv_add(*self.arrays, whole, out)

    def power_step(self, dinv: Array, q: Array, scale: Array, out: Array) -> tuple[Array, Array, Array]:
        """One step of the power method for D^-1 A, with its quotient and square over the rows of all ranks."""
        if device_messages_for(self.rows.comm, q) is not None and not self.rows.has_whole_chunks:
            q[...] = scale * q
            out = self.apply(q, out)
            out[...] = dinv * out
            space = self.rows.space
            return out, space.domain_total(q * out), space.domain_total(out * out)
        with in_space(self.space), self.arriving(q) as whole:
            found: tuple[Array, Array, Array] = relaxation.power_step(*self.arrays, dinv, whole, scale, out)
        return found

    def __matmul__(self, x: Any) -> Any:
        return multiply(self, x, type(self).__name__)

    # --- the transpose
    @property
    def T(self) -> RankMatrix:
        """The transpose, stored by rows: entries are sent to the ranks of their columns."""
        plan = TransposePlan(self.rows, self.columns, self.indptr, self.numbers)
        values = plan.values(self.values)
        made = RankMatrix(self.columns, self.rows, plan.indptr, plan.numbers, values, sample_set=self.sample_set)
        return inherited(made, self)


def halo_of(columns: RowLayout, numbers: np.ndarray) -> tuple[Halo, np.ndarray]:
    """The exchange of those of some columns that other ranks own, and the places of all of them in its order."""
    places = (numbers - columns.first).astype(np.int32)  # of ghosts they are written over
    outside = numbers[:0] if columns.n_local == columns.n else foreign(columns, numbers)
    found = numbers[outside]
    halo = Halo(columns.comm, columns.offsets, np.unique(found))
    places[outside] = columns.n_local + np.searchsorted(halo.ghosts, found)
    return halo, places


def foreign(columns: RowLayout, numbers: np.ndarray) -> np.ndarray:
    """Which of some columns other ranks own: their places, ascending."""
    return np.flatnonzero((numbers < columns.first) | (numbers >= columns.first + columns.n_local))


def require_messages(comm: Any, like: Any, function: str, argument: str) -> None:
    """Refuse an array of a device where `comm` exchanges none."""
    if isinstance(like, np.ndarray) or getattr(comm, "device_messages", None) is not None:
        return
    advice = "Make the partition with distributed.devices(comm)."
    raise TypeError(message(function, argument, "be in memory of the host", kind_of(like), advice))


def require_whole_chunks(offsets: np.ndarray, like: Any, function: str, argument: str) -> None:
    """Refuse an array of a device where domains share chunks of rows, whose sums would belong to both of them."""
    odd = np.flatnonzero(offsets[:-1] % CHUNK)
    if isinstance(like, np.ndarray) or not odd.size:
        return
    wanted = f"be in memory of the host, or all domains begin at multiples of {CHUNK} rows"
    seen = f"domain {odd[0]} that begins at row {offsets[odd[0]]}"
    advice = 'Give Partition fewer domains, of 512 rows and more, and method="coordinates" or "rows".'
    require(False, function, argument, wanted, seen, advice)
