"""`DistributedCrsMatrix`: a sparse matrix over the ranks of a partition."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np

from ensemble._backend import asarray_like, contiguous, library_and_device
from ensemble._check import kind_of, message, require
from ensemble._compile.device import is_on_device
from ensemble._kernels.sparse.product_graphs import order_within_rows
from ensemble._keywords import explains_construction
from ensemble._typing import Array
from ensemble.distributed.agreement import agreement, require_same
from ensemble.distributed.messages import exchanged
from ensemble.distributed.offsets import narrow, offsets_of
from ensemble.distributed.partition import Partition
from ensemble.distributed.rank_matrix import RankMatrix, require_messages, require_whole_chunks
from ensemble.distributed.upper_products import UpperProducts
from ensemble.linalg import CrsGraph, CrsMatrix, SymmetricCrsMatrix
from ensemble.linalg.crs_matrix import as_crs
from ensemble.linalg.reordering import taken_rows
from ensemble.multigrid.affine import affine_matrix
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

__all__ = ["DistributedCrsMatrix", "DistributedSymmetricCrsMatrix"]


@explains_construction("DistributedCrsMatrix")
class DistributedCrsMatrix(RankMatrix):
    """A sparse matrix over the ranks of a partition, a `LinearOperator` of global shape (n, n).

    Parameters
    ----------
    partition : Partition
    local : CrsMatrix, shape (n_local, n)
        The rows of this rank, ``partition.rows`` in that order, with the caller's column numbers. Values may be arrays
        of CuPy where the partition was made with ``distributed.devices(comm)``.

    Raises
    ------
    ValueError
        If `local` does not have the rows of this rank, or n columns; or ranks differ in samples or type; or, on
        devices, a domain does not begin at a multiple of 64 rows.

    Notes
    -----
    A row is summed in domain order of its columns. Every rank must make the same calls. ``A.to(like)`` moves a matrix
    to the device of an array, and back. ``A.upper()`` of a symmetric matrix stores half of the entries inside a rank.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble import distributed
    >>> from ensemble.gallery import poisson
    >>> partition = distributed.Partition(400, distributed.serial())
    >>> A = distributed.DistributedCrsMatrix(partition, poisson((20, 20)))
    >>> (A @ np.ones(400)).shape
    (400,)
    """

    def __init__(self, partition: Partition, local: CrsMatrix) -> None:
        name = "DistributedCrsMatrix"
        with agreement(partition.comm):
            given, local = local, as_crs(local)
            if local is NotImplemented or not (isinstance(local.values, np.ndarray) or is_on_device(local.values)):
                wanted = "be a CrsMatrix of NumPy or CuPy arrays or a SciPy sparse matrix"
                raise TypeError(message(name, "local", wanted, kind_of(given)))
            shape = (partition.n_local, partition.n)
            require(tuple(local.shape) == shape, name, "local", f"have shape {shape}", tuple(local.shape))
            require_messages(partition.comm, local.values, name, "local")
            require_whole_chunks(partition.domain_offsets, local.values, name, "local")
        kinds = partition.comm.allgather((local.n_samples, str(local.dtype), library_and_device(local.values)[0]))
        require_same(kinds, name, "(samples, type, library) of local")
        numbers = partition.number_of(local.graph.indices.astype(np.int64))
        rows = np.repeat(np.arange(partition.n_local), np.diff(local.graph.indptr))
        ascending = bool(np.all((np.diff(numbers) > 0) | (np.diff(rows) > 0)))
        self._order = None if ascending else order_within_rows(local.graph.indptr, numbers, partition.n)
        self.partition = partition
        super().__init__(
            partition.layout, partition.layout, local.graph.indptr,
            numbers if self._order is None else numbers[self._order], self._ordered(local.values),
            sample_set=local.sample_set,
        )  # fmt: skip
        self.batched = local.batched

    def with_values(self, values: np.ndarray, sample_set: SampleSet | None = None) -> DistributedCrsMatrix:
        """The matrix with other values at the same places, in the order of `values` of this one."""
        made = copy.copy(self)
        made.values, made.sample_set = values, sample_set
        return made

    def on_graph(
        self, indptr: np.ndarray, numbers: np.ndarray, values: np.ndarray, sample_set: SampleSet | None
    ) -> DistributedCrsMatrix:
        """A matrix on the same partition with other places, columns in domain order and ascending."""
        partition = self.partition
        callers = partition.caller_of(numbers).astype(np.int32)
        graph = CrsGraph.unchecked(indptr, callers, (partition.n_local, partition.n))
        return DistributedCrsMatrix(partition, CrsMatrix(graph, Ensemble(values, sample_set)))

    def upper(self) -> DistributedSymmetricCrsMatrix:
        """The same matrix with one of two entries across the diagonal stored, where both are in rows of this rank.

        Raises
        ------
        ValueError
            On every rank, if an entry differs from the one across the diagonal, or a row has no diagonal entry.
        TypeError
            If the values are on a device.
        """
        return upper_of(self, "DistributedCrsMatrix.upper", "the matrix")

    def _ordered(self, values: Array) -> Array:
        return values if self._order is None else taken_rows(values, self._order)

    def require_device(self, like: Any, function: str, argument: str) -> None:
        super().require_device(like, function, argument)
        require_whole_chunks(self.rows.domain_offsets, like, function, argument)

    def update(self, values: Ensemble | Array) -> DistributedCrsMatrix:
        """Replace the values, in place; `values` has the order of those that the matrix was made of.

        Parameters
        ----------
        values : array or Ensemble, shape (nnz_local,) or (nnz_local, n_samples)
        """
        samples = values.samples if isinstance(values, Ensemble) else values
        samples = samples if hasattr(samples, "ndim") else np.asarray(samples)
        samples = samples[:, None] if samples.ndim == 1 else samples
        fits = samples.ndim == 2 and samples.shape[0] == self.numbers.size
        require(fits, "DistributedCrsMatrix.update", "values", f"have {self.numbers.size} rows", samples.shape)
        if isinstance(samples, np.ndarray):
            samples = asarray_like(np.ascontiguousarray(samples), self.values)
        self.values = self._ordered(contiguous(samples))
        self.sample_set = getattr(values, "sample_set", None)
        return self

    @classmethod
    def scatter(cls, A: Any, partition: Partition, root: int = 0) -> DistributedCrsMatrix:
        """The matrix that `root` has whole, over the ranks of `partition`; A is None elsewhere.

        Parameters
        ----------
        A : CrsMatrix, SymmetricCrsMatrix or SciPy sparse matrix, shape (n, n), on `root`
            A `SymmetricCrsMatrix` becomes a `DistributedSymmetricCrsMatrix`.
        partition : Partition
        root : int
        """
        comm = partition.comm
        rows = comm.gather(partition.rows, root=root)
        parts: Any = None
        if comm.rank == root:
            upper, A = isinstance(A, SymmetricCrsMatrix), as_crs(A)
            parts = [(upper, rows_of(A, own)) for own in rows]
        upper, (indptr, indices, values, batched, sample_set) = comm.scatter(parts, root=root)
        local = CrsMatrix(
            CrsGraph.unchecked(indptr, indices, (partition.n_local, partition.n)), Ensemble(values, sample_set)
        )
        local.batched = batched
        return (DistributedSymmetricCrsMatrix if upper else cls)(partition, local)

    def affine(self, coefficients: Any) -> Any:
        """The affine matrix ``A_0 + sum over i of c_i A_i`` whose terms are the samples of this one.

        Only the terms are stored, as in an `AffineMatrix`; `smoothed_aggregation` and `scaled_aggregation` take it.

        Parameters
        ----------
        coefficients : Ensemble or array, shape (m,), where this matrix has m + 1 samples
            One set of coefficients a sample; those of rank 0 are taken.
        """
        return affine_matrix(self, coefficients)

    def gather(self) -> CrsMatrix:
        """The whole matrix in the caller's order, on every rank: for what takes one, as factorisations do."""
        whole, order = self.gathered(), self.partition.number_of(np.arange(self.shape[0]))
        indptr, numbers, values, batched, sample_set = rows_of(whole, order)
        columns = self.partition.caller_of(numbers)
        rows = np.repeat(np.arange(order.size), np.diff(indptr))
        places = np.lexsort((columns, rows))
        graph = CrsGraph.unchecked(indptr, columns[places].astype(np.int32), self.shape)
        made = CrsMatrix(graph, Ensemble(np.ascontiguousarray(values[places]), sample_set))
        made.batched = batched
        return made

    @classmethod
    def from_petsc(cls, matrix: Any, domains: int | None = None) -> DistributedCrsMatrix:
        """The matrix of a petsc4py ``Mat`` of type "aij", whose rows stay where they are if domains allow it.

        Rows go to the ranks of a `Partition` by "rows" of PETSc's communicator.
        """
        comm = matrix.getComm().tompi4py()
        n = int(matrix.getSize()[0])
        partition = Partition(n, comm, domains=domains, method="rows")
        first, last = (int(k) for k in matrix.getOwnershipRange())
        indptr, indices, values = (np.asarray(a) for a in matrix.getValuesCSR())
        owner = partition.owner_of(np.arange(first, last))
        cuts = np.searchsorted(owner, np.arange(comm.size + 1))
        lengths = np.diff(indptr)
        spans = [(indptr[a], indptr[b]) for a, b in itertools.pairwise(cuts)]
        counts = np.concatenate(exchanged(comm, [lengths[a:b].astype(np.int64) for a, b in itertools.pairwise(cuts)]))
        columns = np.concatenate(exchanged(comm, [indices[a:b].astype(np.int64) for a, b in spans]))
        entries = np.concatenate(exchanged(comm, [values[a:b] for a, b in spans]))
        starts = narrow(offsets_of(counts))
        graph = CrsGraph.unchecked(starts, columns.astype(np.int32), (partition.n_local, n))
        return cls(partition, CrsMatrix(graph, entries))


@explains_construction("DistributedSymmetricCrsMatrix")
class DistributedSymmetricCrsMatrix(UpperProducts, DistributedCrsMatrix):
    """A symmetric matrix over the ranks of a partition, of which half of the entries inside a rank are stored.

    Of two entries across the diagonal, both in rows of one rank, it stores one. Rows that couple to earlier ranks store
    all entries to earlier domains, and so do some beside them. Products, smoothing steps and residuals of 8 samples and
    more take 0.6 to 0.7 of the time that they take with all entries, and give the same bits. The finest level of a
    hierarchy is kept this way, too.

    Parameters
    ----------
    partition : Partition
    local : CrsMatrix, shape (n_local, n)
        All entries of the rows of this rank, as for `DistributedCrsMatrix`; arrays of NumPy.

    Raises
    ------
    ValueError
        On every rank, as `DistributedCrsMatrix` does, and if an entry differs from the one across the diagonal, or a
        row has no diagonal entry.

    Examples
    --------
    >>> import numpy as np
    >>> from ensemble import distributed
    >>> from ensemble.gallery import poisson
    >>> partition = distributed.Partition(400, distributed.serial())
    >>> A = distributed.DistributedSymmetricCrsMatrix(partition, poisson((20, 20)))
    >>> A.values.shape, A.nnz
    ((1160, 1), 1920)
    """

    def __init__(self, partition: Partition, local: CrsMatrix) -> None:
        full = DistributedCrsMatrix(partition, local)
        vars(self).update(vars(upper_of(full, "DistributedSymmetricCrsMatrix", "local")))

    @classmethod
    def unchecked(cls, A: DistributedCrsMatrix) -> DistributedSymmetricCrsMatrix:
        """`A`, which is known to be symmetric, with one of two entries across the diagonal stored."""
        made = object.__new__(cls)
        vars(made).update(vars(A), _plans={})
        made.values = taken_rows(A.values, np.flatnonzero(made.triangles.stored))
        return made

    def _ordered(self, values: Array) -> Array:
        return taken_rows(super()._ordered(values), np.flatnonzero(self.triangles.stored))

    def update(self, values: Ensemble | Array) -> DistributedSymmetricCrsMatrix:
        """Replace the values, in place, by all entries of a symmetric matrix, in the order that it was made of.

        Of an entry and the one across the diagonal, of which one is stored, the upper one is taken.

        Parameters
        ----------
        values : array or Ensemble, shape (nnz_local,) or (nnz_local, n_samples)
        """
        super().update(values)
        return self

    def upper(self) -> DistributedSymmetricCrsMatrix:
        """The matrix itself."""
        return self

    def to_crs(self) -> DistributedCrsMatrix:
        """The same matrix with all entries stored."""
        made: DistributedCrsMatrix = object.__new__(DistributedCrsMatrix)
        vars(made).update(vars(self), values=taken_rows(self.values, self.entries), _plans={})
        return made

    @property
    def T(self) -> DistributedSymmetricCrsMatrix:
        """The transpose, which is the matrix itself."""
        return self

    def asymmetry(self) -> np.ndarray:
        """Zero for each sample."""
        return np.zeros(self.n_samples, self.dtype)

    def affine(self, coefficients: Any) -> Any:
        return self.to_crs().affine(coefficients)

    def gathered(self) -> CrsMatrix:
        """The whole matrix in domain order, all entries stored, on every rank."""
        return self.to_crs().gathered()

    def to(self, like: Any) -> Any:
        """This matrix on the device of the array `like`, with all entries stored; itself if it is there."""
        return self if isinstance(like, np.ndarray) else self.to_crs().to(like)


def upper_of(A: DistributedCrsMatrix, function: str, argument: str) -> DistributedSymmetricCrsMatrix:
    """`A` with one of two entries across the diagonal stored, or an error that names `argument`, on every rank."""
    other = A.T
    with agreement(A.partition.comm):
        if not isinstance(A.values, np.ndarray):
            advice = "On devices use a DistributedCrsMatrix, with all entries."
            raise TypeError(message(function, argument, "have values of NumPy", kind_of(A.values), advice))
        whole = np.array_equal(A.indptr, other.indptr) and np.array_equal(A.numbers, other.numbers)
        whole = whole and bool((A.diagonal_places() >= 0).all())
        wanted, advice = "have a symmetric graph with a diagonal entry in every row", "Use a DistributedCrsMatrix."
        require(whole, function, argument, wanted, repr(A), advice)
        a, b = A.values, other.values
        alike = ((a == b) | ((a != a) & (b != b))).all(axis=1)
        k = int(np.argmin(alike)) if alike.size else 0
        if alike.size and not alike[k]:
            row = int(np.searchsorted(A.indptr, k, side="right")) - 1
            places = A.partition.caller_of(np.array([A.rows.first + row, A.numbers[k]])).tolist()
            seen = f"another value at ({places[0]}, {places[1]}) than across the diagonal"
            require(False, function, argument, "equal its transpose to the last bit", seen, advice)
    return DistributedSymmetricCrsMatrix.unchecked(A)


def rows_of(A: CrsMatrix, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool, SampleSet | None]:
    """(indptr, indices, values) of some rows of a matrix, and what its values came with."""
    lengths = np.diff(A.graph.indptr)[rows]
    indptr = offsets_of(lengths)
    entries = np.repeat(A.graph.indptr[:-1][rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return indptr.astype(A.graph.indptr.dtype), A.graph.indices[entries], A.values[entries], A.batched, A.sample_set
