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
from ensemble._typing import Array
from ensemble.distributed.agreement import agreement, require_same
from ensemble.distributed.messages import exchanged
from ensemble.distributed.offsets import narrow, offsets_of
from ensemble.distributed.partition import Partition
from ensemble.distributed.rank_matrix import RankMatrix, require_messages, require_whole_chunks
from ensemble.linalg import CrsGraph, CrsMatrix
from ensemble.linalg.crs_matrix import as_crs
from ensemble.linalg.reordering import taken_rows
from ensemble.multigrid.affine import affine_matrix
from ensemble.scalar import Ensemble
from ensemble.scalar.sample_set import SampleSet

__all__ = ["DistributedCrsMatrix"]


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
    to the device of an array, and back.

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
        A : CrsMatrix or SciPy sparse matrix, shape (n, n), on `root`
        partition : Partition
        root : int
        """
        comm = partition.comm
        rows = comm.gather(partition.rows, root=root)
        parts: Any = None
        if comm.rank == root:
            A = as_crs(A)
            parts = [rows_of(A, own) for own in rows]
        indptr, indices, values, batched, sample_set = comm.scatter(parts, root=root)
        local = CrsMatrix(
            CrsGraph.unchecked(indptr, indices, (partition.n_local, partition.n)), Ensemble(values, sample_set)
        )
        local.batched = batched
        return cls(partition, local)

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


def rows_of(A: CrsMatrix, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool, SampleSet | None]:
    """(indptr, indices, values) of some rows of a matrix, and what its values came with."""
    lengths = np.diff(A.graph.indptr)[rows]
    indptr = offsets_of(lengths)
    entries = np.repeat(A.graph.indptr[:-1][rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return indptr.astype(A.graph.indptr.dtype), A.graph.indices[entries], A.values[entries], A.batched, A.sample_set
