"""Which rows of a problem each rank holds."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ensemble._backend import array_namespace, contiguous
from ensemble._check import array_of, integer, message, require
from ensemble._kernels.krylov.vectors import dot
from ensemble._kernels.sparse.row_sums import in_space
from ensemble._keywords import explains_construction
from ensemble._typing import Array
from ensemble.distributed.agreement import agreement, require_communicator
from ensemble.distributed.arguments import Request, agreed_method, checked_request
from ensemble.distributed.bisection import coordinate_order
from ensemble.distributed.domains import BLOCK, domain_offsets, rank_domains
from ensemble.distributed.faults import agree, watch
from ensemble.distributed.graph_partition import graph_order
from ensemble.distributed.layout import RowLayout
from ensemble.distributed.transfers import gather_rows, scatter_rows
from ensemble.linalg.factorizations.orderings import inverse_order
from ensemble.linalg.operators import samples_of, set_of
from ensemble.scalar import Ensemble

__all__ = ["Partition"]

PIECE = 1 << 27
"""Numbers that rank 0 sends to the others in one message: counts of MPI have 31 bits."""


@explains_construction("Partition")
class Partition:
    """Cut the rows of a problem into domains, and give each rank consecutive domains.

    Number and shape of the domains depend on the problem alone, never on the number of ranks. What depends on a cut
    depends on domains only, so that all numbers of ranks give the same bits. In *domain order* rows are sorted by
    domain, and by the caller's number within a domain. A rank has one range of it.

    Parameters
    ----------
    n : int
        Rows.
    comm : communicator of mpi4py, `serial()`, or `devices(comm)`
        All its ranks call this together, with equal arguments.
    domains : int, optional
        1 and above; more than `n` are cut to `n`. Default: the power of two that comes nearest to 2048 rows in each.
    graph : CrsGraph, SciPy matrix or (indptr, indices), shape (n, n), optional
        Which rows are coupled. On every rank, or on rank 0 with None elsewhere.
    coordinates : array, shape (n, d), optional
        Where each row lies, in any unit. On every rank, or on rank 0 with None elsewhere.
    method : {"auto", "rows", "graph", "coordinates"}
        "rows": a domain is a range of rows. "coordinates": recursive bisection at right angles to the longest
        axis [1]_. "graph": METIS [2]_ where `pymetis` is installed, else recursive bisection by breadth-first search.
        "auto": by coordinates where they are given, else by the graph where it is given, else by rows.
    block_size : int
        Rows that stay together, as the unknowns of a node: `n` is a multiple, and rows ``k block_size`` to
        ``(k + 1) block_size - 1`` are in one domain. `graph` and `coordinates` may then be those of nodes, with
        ``n / block_size`` rows; of coordinates of all rows those of the first of a node count.

    Attributes
    ----------
    n, domains, block_size : int
    comm : the communicator
    method : str
        The one that was used.
    domain_offsets : array of int64, shape (domains + 1,)
        Where each domain begins, in domain order. Where there are 512 nodes in each domain or more, all sizes but the
        last are multiples of 512, the blocks of sums over rows. METIS chooses other sizes. A cut by coordinates that
        would go through nodes of equal coordinate goes beside them, where that moves it by at most a sixteenth of the
        smaller side: domains of a box are boxes. With `devices(comm)` it stays at multiples of 512.
    rank_domains : array of int64, shape (size + 1,)
        The first domain of each rank.
    offsets : array of int64, shape (size + 1,)
        The first row of each rank, in domain order.
    first, n_local : int
        The first row and the number of rows of this rank. With more ranks than domains some ranks have none.
    local_domain_offsets : array of int64
        Where each domain of this rank begins among its rows, and their end.
    rows : array of int64, shape (n_local,)
        The caller's numbers of this rank's rows, in domain order.

    Raises
    ------
    TypeError, ValueError
        On every rank alike, also where only one of them has a wrong argument.

    Notes
    -----
    Rank 0 decides on the cut and sends it to the others: their mathematical libraries may round differently. METIS and
    the search cut differently: to reproduce bits elsewhere, have `pymetis` installed in both places or in none.

    References
    ----------
    .. [1] Berger, Bokhari (1987), IEEE Trans. Comput. C-36, 570-580.
    .. [2] Karypis, Kumar (1998), SIAM J. Sci. Comput. 20, 359-392.

    Examples
    --------
    >>> from ensemble.distributed import Partition, serial
    >>> partition = Partition(6, serial(), domains=2, coordinates=[[0.0], [5.0], [1.0], [4.0], [2.0], [3.0]])
    >>> partition.rows
    array([0, 2, 4, 1, 3, 5])
    >>> partition.gather(partition.scatter([10, 11, 12, 13, 14, 15]))
    array([10, 11, 12, 13, 14, 15])
    """

    def __init__(
        self,
        n: int,
        comm: Any,
        domains: int | None = None,
        graph: Any = None,
        coordinates: Any = None,
        method: str = "auto",
        block_size: int = 1,
    ) -> None:
        require_communicator(comm, "Partition")
        watch(comm)
        agree(comm)
        with agreement(comm):
            request = checked_request(n, domains, graph, coordinates, method, block_size)
        method = agreed_method(request, comm)
        self._set(comm, method, *_cut(request, method, comm), request.block_size)

    def _set(
        self, comm: Any, method: str, order: np.ndarray | None, offsets: np.ndarray, shared: np.ndarray, block_size: int
    ) -> None:
        """Take the nodes in domain order and where each domain begins; of each node `block_size` rows.

        Ranks share out the domains as if these began at `shared`.
        """
        if block_size > 1 and order is not None:
            order = (order[:, None] * block_size + np.arange(block_size)).reshape(-1)
        self.comm, self.method, self.block_size = comm, method, block_size
        self.domain_offsets = offsets * block_size
        self.n = int(self.domain_offsets[-1])
        self.domains = self.domain_offsets.size - 1
        self._shared = shared * block_size
        self.rank_domains = rank_domains(self._shared, comm.size)
        self.offsets = self.domain_offsets[self.rank_domains]
        self.first, end = (int(row) for row in self.offsets[comm.rank : comm.rank + 2])
        self.n_local = end - self.first
        begin, behind = self.rank_domains[comm.rank : comm.rank + 2]
        self.local_domain_offsets = self.domain_offsets[begin : behind + 1] - self.first
        self._order, self._numbers = order, None if order is None else inverse_order(order)
        self.rows = self.caller_of(np.arange(self.first, end))

    def blocked(self, size: int) -> Partition:
        """Return the partition of `size` rows in the place of each row of this one, on the same ranks.

        Parameters
        ----------
        size : int
            1 and above: the unknowns of a node whose nodes this partition shares out.

        Returns
        -------
        Partition
            Of ``size * n`` rows; row ``size * i + c`` is component c of row i.

        Examples
        --------
        >>> from ensemble.distributed import Partition, serial
        >>> Partition(3, serial(), domains=2).blocked(2).domain_offsets
        array([0, 2, 6])
        """
        with agreement(self.comm):
            size = integer(size, "Partition.blocked", "size", minimum=1)
        made = object.__new__(type(self))
        rank_domains = self.rank_domains
        made._set(self.comm, self.method, self._order, self.domain_offsets, self._shared, size)
        assert np.array_equal(made.rank_domains, rank_domains)
        made.block_size = size * self.block_size
        return made

    def __repr__(self) -> str:
        ranks = f"rank={self.comm.rank} of {self.comm.size}"
        return f"Partition(n={self.n}, domains={self.domains}, method={self.method!r}, {ranks})"

    @cached_property
    def layout(self) -> RowLayout:
        """The rows of each rank and the space of their vectors, for matrices on this partition."""
        return RowLayout(self.comm.Dup(), self.domain_offsets, self.rank_domains)

    def dot(self, x: Ensemble | Array, y: Ensemble | Array) -> Any:
        """Return the inner product of two distributed vectors over the rows of all ranks, one value per sample.

        Parameters
        ----------
        x, y : array or Ensemble, shape (n_local,)
            Real, of one type.

        Returns
        -------
        Ensemble of shape (), or a number for arrays
            The sum of the domains' sums, rounded once: the same bits on every number of ranks.

        Examples
        --------
        >>> import numpy as np
        >>> from ensemble.distributed import Partition, serial
        >>> partition = Partition(3, serial())
        >>> partition.dot(np.ones(3), np.array([1.0, 2.0, 3.0]))
        6.0
        """
        return _inner(self, x, y, "Partition.dot")

    def norm(self, x: Ensemble | Array) -> Any:
        """Return the 2-norm of a distributed vector over the rows of all ranks, one value per sample; see `dot`."""
        square = _inner(self, x, x, "Partition.norm")
        return square.__array_namespace__().sqrt(square) if isinstance(square, Ensemble) else float(np.sqrt(square))

    def number_of(self, callers: ArrayLike) -> np.ndarray:
        """The numbers in domain order of rows with the caller's numbers `callers`, an array of int."""
        return _taken(self._numbers, _places(callers, self.n, "Partition.number_of", "callers"))

    def caller_of(self, numbers: ArrayLike) -> np.ndarray:
        """The caller's numbers of rows with the numbers in domain order `numbers`, an array of int."""
        return _taken(self._order, _places(numbers, self.n, "Partition.caller_of", "numbers"))

    def owner_of(self, numbers: ArrayLike) -> np.ndarray:
        """The ranks of rows with the numbers in domain order `numbers`, an array of int."""
        places = _places(numbers, self.n, "Partition.owner_of", "numbers")
        return np.searchsorted(self.offsets, places, side="right") - 1

    def scatter(self, x: Ensemble | ArrayLike | None, root: int = 0) -> Any:
        """Send each rank its rows of vectors that one rank has.

        Parameters
        ----------
        x : array of NumPy, shape (n, ...), or Ensemble of shape (n, ...)
            On `root`, in the caller's order; not used on other ranks, where it may be None.
        root : int
            The same on every rank.

        Returns
        -------
        array, shape (n_local, ...), or Ensemble of shape (n_local, ...)
            A copy, in domain order. An ensemble has the sample set of `x`.

        Raises
        ------
        TypeError, ValueError
            On every rank, if `x` on `root` is no array or ensemble of numbers on the host with `n` rows.
        """
        return scatter_rows(x, self, root)

    def gather(self, x: Ensemble | ArrayLike, root: int = 0) -> Any:
        """Put together on one rank vectors of which each rank has its rows.

        Parameters
        ----------
        x : array of NumPy or CuPy, shape (n_local, ...), or Ensemble of shape (n_local, ...)
            In domain order; of one kind, data type and sample set on all ranks. Arrays of CuPy are copied to the host.
        root : int
            The same on every rank.

        Returns
        -------
        array of NumPy, shape (n, ...), or Ensemble of shape (n, ...), or None
            In the caller's order on `root`, None on the other ranks.

        Raises
        ------
        TypeError, ValueError
            On every rank, if `x` on one of them has other rows than its own, or differs from the others.
        """
        return gather_rows(x, self, root)


def _inner(partition: Partition, x: Any, y: Any, function: str) -> Any:
    """The inner products of two distributed vectors."""
    bare = [samples_of(vector) for vector in (x, y)]
    with agreement(partition.comm):
        for name, samples in zip("xy", bare, strict=True):
            require(samples.shape[:-1] == (partition.n_local,), function, name, f"have shape ({partition.n_local},)",
                    f"shape {samples.shape[:-1]}")  # fmt: skip
    xp, n_samples = array_namespace(*bare), max(samples.shape[1] for samples in bare)
    dtype = np.result_type(*(samples.dtype for samples in bare), np.float32)
    wide = [contiguous(xp.broadcast_to(samples, (partition.n_local, n_samples)), dtype) for samples in bare]
    with in_space(partition.layout.space):
        inner = dot(*wide, None)
    found = next((vector for vector in (x, y) if isinstance(vector, Ensemble)), None)
    return float(inner[0]) if found is None else Ensemble(inner, set_of(found))


def _cut(request: Request, method: str, comm: Any) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """The caller's rows in domain order, None for the caller's order; where each domain begins; what ranks share out.

    Where cuts moved, domains count alike: by their rows a rank would get, of a part of the bisection, all domains but
    one.
    """
    even = domain_offsets(request.n, request.domains)
    if method == "rows" or request.domains < 2:
        return None, even, even
    order, offsets = np.empty(request.n, np.int64), None
    with agreement(comm):
        if comm.rank == 0 and method == "graph" and request.graph is not None:
            order, offsets = graph_order(request.graph, request.domains)
        elif comm.rank == 0 and request.coordinates is not None:
            on_host = getattr(comm, "device_messages", None) is None
            whole_planes = on_host and request.n >= BLOCK * request.domains
            order, offsets = coordinate_order(request.coordinates, even, whole_planes)
    offsets = comm.bcast(offsets, root=0)
    for begin in range(0, request.n, PIECE):
        comm.Bcast(order[begin : begin + PIECE], root=0)
    moved = method == "coordinates" and not np.array_equal(offsets, even)
    return order, offsets, np.arange(offsets.size) if moved else offsets


def _places(values: Any, n: int, function: str, argument: str) -> np.ndarray:
    """Row numbers as int64, or an error where they are none."""
    places = array_of(values, function, argument, "be integers")
    if places.dtype.kind not in "iu" and places.size:
        raise TypeError(message(function, argument, "be integers", f"dtype {places.dtype}"))
    inside = not places.size or (places.min() >= 0 and places.max() < n)
    seen = f"{places.min()} ... {places.max()}" if places.size else ""
    require(bool(inside), function, argument, f"be from 0 to {n - 1}", seen)
    return places.astype(np.int64)


def _taken(numbers: np.ndarray | None, places: np.ndarray) -> np.ndarray:
    return places if numbers is None else numbers[places]
