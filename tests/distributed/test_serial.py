"""One rank without MPI behaves as one rank of MPI."""

import subprocess
import sys

import numpy as np
import pytest

from ensemble.distributed import serial


def transcript(comm):
    """What a program of one rank reads from each method."""
    seen = [comm.rank, comm.size, comm.Get_rank(), comm.Get_size()]
    given = {"a": [1, np.arange(3)]}
    received = [comm.bcast(given), comm.gather(given)[0], comm.allgather(given)[0], comm.scatter([given])]
    received += [comm.alltoall([given])[0], comm.allreduce(given)]
    for each in received:
        seen += [each is not given and each["a"] is not given["a"], each["a"][1].tolist()]
    x = np.arange(6.0).reshape(2, 3)
    out = np.full((2, 3), -1.0)
    comm.Bcast(x)
    comm.Bcast([x, "d"])
    comm.Allreduce(x, out)
    seen.append(out.tolist())
    comm.Allreduce(None, out)
    seen.append(out.tolist())
    longer = np.full(9, -1.0)
    comm.Allgather(2 * x, [longer, 6, "d"])
    seen.append(longer.tolist())
    comm.Gatherv([x, 6], [longer, ([6], [3])])
    seen.append(longer.tolist())
    comm.Gatherv(x, [longer, [6], [1], "d"])
    seen.append(longer.tolist())
    comm.Scatterv([longer, (np.array([2]), np.array([4]))], out[0, :2])
    seen.append(out.tolist())
    comm.Scatterv([longer, [2], [5], "d"], [out, 2, "d"])
    seen.append(out.tolist())
    comm.Alltoallv([longer, ([3], [0])], [out, ([3], [3])])
    seen.append(out.tolist())
    comm.Alltoallv([longer.astype(np.float32), ([0], [0]), "f"], [np.empty(0, np.float32), ([0], [0]), "f"])
    seen.append(comm.Barrier())
    for other in (comm.Split(0, 3), comm.Dup(), comm.Split(color=2, key=0).Dup()):
        seen += [other.rank, other.size, other.allgather(5)]
        other.Free()
    return seen


def test_each_method_does_what_it_does_on_one_rank_of_mpi(mpi):
    assert mpi(transcript, 1) == [transcript(serial())]


def test_other_ranks_are_refused():
    with pytest.raises(ValueError, match="bcast: root must be 0, the only rank; got 1"):
        serial().bcast(3, root=1)


@pytest.mark.parametrize(
    "sent, received, match",
    [
        (np.zeros(3), np.zeros(2), "Allgather: recvbuf must have space for the 24 bytes that are sent; got 16 bytes"),
        (np.zeros(3), [0.0], "Allgather: recvbuf must be a NumPy array"),
        (np.zeros((4, 2))[:, 0], np.zeros(4), "Allgather: sendbuf must be contiguous"),
        ([np.zeros(3), 4], np.zeros(4), "Allgather: sendbuf must name entries among the 3 of the array"),
    ],
    ids=["short", "list", "strided", "count"],
)
def test_wrong_buffers_are_errors(sent, received, match):
    with pytest.raises((TypeError, ValueError), match=match):
        serial().Allgather(sent, received)


def test_objects_for_each_rank_must_be_one():
    with pytest.raises(ValueError, match="scatter: sendobj must have one object for each rank"):
        serial().scatter([1, 2])


def test_abort_ends_the_program_with_its_status():
    with pytest.raises(SystemExit) as ending:
        serial().Abort(7)
    assert ending.value.code == 7


def test_a_partition_of_one_rank_needs_no_mpi4py():
    program = """
import sys
sys.modules["mpi4py"] = None
import numpy as np
from ensemble.distributed import Partition, serial
partition = Partition(10, serial(), domains=3, coordinates=np.arange(10.0)[::-1, None])
print(partition.gather(partition.scatter(np.arange(10))).tolist() == list(range(10)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
