"""One problem on several ranks of MPI; a solution has the same bits on any number of them."""

from ensemble.distributed import affine, coarse, cost_model, reduction, replicated  # noqa: F401  # set-ups find them
from ensemble.distributed.devices import devices
from ensemble.distributed.farm import farm
from ensemble.distributed.groups import groups
from ensemble.distributed.matrix import DistributedCrsMatrix, DistributedSymmetricCrsMatrix
from ensemble.distributed.partition import Partition
from ensemble.distributed.serial import serial

__all__ = [
    "DistributedCrsMatrix", "DistributedSymmetricCrsMatrix", "Partition", "cost_model", "devices", "farm", "groups",
    "serial",
]  # fmt: skip
