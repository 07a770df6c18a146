"""A communicator of several ranks that exchanges nothing, for what each rank works out by itself."""

from __future__ import annotations

from typing import Any

from ensemble.distributed.serial import SerialCommunicator


class FakeCommunicator(SerialCommunicator):
    """Rank `rank` of `size` ranks that all hold what this one holds: others give what it gives."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def allgather(self, sendobj: Any) -> list[Any]:
        return super().allgather(sendobj) * self.size

    def Ibarrier(self) -> Arrived:
        return Arrived()


class Arrived:
    """A message that has arrived."""

    def Test(self) -> bool:
        return True


def every_rank(size: int) -> list[FakeCommunicator]:
    """The communicators of `size` ranks."""
    return [FakeCommunicator(rank, size) for rank in range(size)]
