"""A communicator of one rank without MPI, so that distributed programs run where mpi4py is not installed."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ensemble._check import integer, kind_of, message, require

__all__ = ["SerialCommunicator", "serial"]


def serial() -> SerialCommunicator:
    """Return a communicator of one rank that needs no MPI.

    It has those methods of ``mpi4py.MPI.Intracomm`` that this package calls, under the same names and with the same
    arguments. mpi4py is not imported.

    Returns
    -------
    SerialCommunicator

    Examples
    --------
    >>> comm = serial()
    >>> comm.rank, comm.size, comm.allgather("a")
    (0, 1, ['a'])
    """
    return SerialCommunicator()


class SerialCommunicator:
    """One rank. Objects and buffers are copied as MPI copies them; `op` is not used, for there is one operand."""

    rank = 0
    size = 1

    def __repr__(self) -> str:
        return "serial()"

    def Get_rank(self) -> int:
        """The number of this rank, 0."""
        return self.rank

    def Get_size(self) -> int:
        """The number of ranks, 1."""
        return self.size

    # --- objects: what another process would receive is a copy
    def bcast(self, obj: Any, root: int = 0) -> Any:
        """A copy of `obj`."""
        _require_root(root, "bcast")
        return _copy(obj)

    def gather(self, sendobj: Any, root: int = 0) -> list[Any]:
        """A list of a copy of `sendobj`."""
        _require_root(root, "gather")
        return [_copy(sendobj)]

    def allgather(self, sendobj: Any) -> list[Any]:
        """A list of a copy of `sendobj`."""
        return [_copy(sendobj)]

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """A copy of the one object of `sendobj`."""
        _require_root(root, "scatter")
        return _copy(_only(sendobj, "scatter"))

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """A list of a copy of the one object of `sendobj`."""
        return [_copy(_only(sendobj, "alltoall"))]

    def allreduce(self, sendobj: Any, op: Any = None) -> Any:
        """A copy of `sendobj`."""
        return _copy(sendobj)

    # --- buffers
    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Leave `buf` as it is."""
        _require_root(root, "Bcast")
        _part(buf, "Bcast", "buf", writes=False)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
        """Copy `sendbuf` into `recvbuf`."""
        _transfer(sendbuf, recvbuf, "Allreduce")

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Copy `sendbuf` into `recvbuf`."""
        _transfer(sendbuf, recvbuf, "Allgather")

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Copy `sendbuf` into `recvbuf`, to its displacement."""
        _require_root(root, "Gatherv")
        _transfer(sendbuf, recvbuf, "Gatherv")

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Copy `sendbuf`, from its displacement, into `recvbuf`."""
        _require_root(root, "Scatterv")
        if not _in_place(recvbuf):
            _transfer(sendbuf, recvbuf, "Scatterv")

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """Copy `sendbuf`, from its displacement, into `recvbuf`, to its displacement."""
        _transfer(sendbuf, recvbuf, "Alltoallv")

    def Barrier(self) -> None:
        """Return at once."""

    # --- communicators
    def Split(self, color: int = 0, key: int = 0) -> SerialCommunicator:
        """Another communicator of this rank."""
        return SerialCommunicator()

    def Dup(self, info: Any = None) -> SerialCommunicator:
        """Another communicator of this rank."""
        return SerialCommunicator()

    def Free(self) -> None:
        """Nothing is held that had to be freed."""

    def Abort(self, errorcode: int = 0) -> NoReturn:
        """End the program with the status `errorcode`, by SystemExit."""
        raise SystemExit(errorcode)


def _require_root(root: int, function: str) -> None:
    require(integer(root, function, "root", minimum=0) == 0, function, "root", "be 0, the only rank", root)


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _only(objects: Any, function: str) -> Any:
    """The object of a sequence of one."""
    values = list(objects) if objects is not None else []
    require(len(values) == 1, function, "sendobj", "have one object for each rank (1)", len(values))
    return values[0]


def _in_place(buffer: Any) -> bool:
    """Whether a buffer is ``MPI.IN_PLACE`` or None, which mpi4py takes for it."""
    return buffer is None or type(buffer).__name__ == "InPlaceType"


def _transfer(sendbuf: Any, recvbuf: Any, function: str) -> None:
    """Copy the part of one buffer that is sent to the part of another that receives it."""
    target = _part(recvbuf, function, "recvbuf", writes=True)
    if _in_place(sendbuf):
        return
    source = _part(sendbuf, function, "sendbuf", writes=False)
    wanted = f"have space for the {source.nbytes} bytes that are sent"
    require(target.nbytes >= source.nbytes, function, "recvbuf", wanted, f"{target.nbytes} bytes")
    if source.nbytes:
        target.view(np.uint8)[: source.nbytes] = source.view(np.uint8)


def _part(buffer: Any, function: str, argument: str, *, writes: bool) -> np.ndarray:
    """The entries that a buffer of mpi4py's forms names, as a vector that shares its memory.

    The forms are an array, ``[array, type]``, ``[array, counts]``, ``[array, (counts, displacements)]``, these with a
    type as last entry, and ``[array, counts, displacements, type]``. Counts are of entries of the array.
    """
    array, *rest = buffer if isinstance(buffer, list | tuple) else [buffer]
    if not isinstance(array, np.ndarray):
        raise TypeError(message(function, argument, "be a NumPy array, alone or first in a list", kind_of(array)))
    laid_out = array.flags.c_contiguous and (array.flags.writeable or not writes)
    require(
        bool(laid_out), function, argument, "be contiguous, and writable where it receives", f"strides {array.strides}"
    )
    numbers = [entry for entry in rest if not _is_datatype(entry)]
    if len(numbers) == 1 and isinstance(numbers[0], tuple) and len(numbers[0]) == 2:
        numbers = list(numbers[0])
    flat = array.reshape(-1)
    first = int(np.ravel(numbers[1])[0]) if len(numbers) > 1 and numbers[1] is not None else 0
    count = int(np.ravel(numbers[0])[0]) if numbers and numbers[0] is not None else flat.size - first
    inside = first >= 0 and count >= 0 and first + count <= flat.size
    seen = f"{count} from {first} on"
    require(inside, function, argument, f"name entries among the {flat.size} of the array", seen)
    return flat[first : first + count]


def _is_datatype(entry: Any) -> bool:
    """Whether an entry of a buffer's form is a type: a code such as "d", or an ``MPI.Datatype``."""
    return isinstance(entry, str) or type(entry).__name__ == "Datatype"
