"""One problem on several ranks of MPI; a solution has the same bits on any number of them."""

from ensemble.distributed.partition import Partition
from ensemble.distributed.serial import serial

__all__ = ["Partition", "serial"]
