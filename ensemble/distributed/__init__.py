"""One problem on several ranks of MPI; a solution has the same bits on any number of them."""

from ensemble.distributed import (
    coarse,  # noqa: F401  # set-ups of hierarchies find matrices over ranks
    cost_model,
)
from ensemble.distributed.matrix import DistributedCrsMatrix
from ensemble.distributed.partition import Partition
from ensemble.distributed.serial import serial

__all__ = ["DistributedCrsMatrix", "Partition", "cost_model", "serial"]
