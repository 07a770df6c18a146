"""Complex systems over ranks: the bits do not depend on the number of ranks."""

import numpy as np
import pytest

from ensemble.distributed import serial
from ensemble.krylov import bicgstab, cg, gmres
from ensemble.linalg import CrsMatrix
from tests.distributed.systems import box, digest, distributed_system, right_hand_side

METHODS = {"cg": cg, "gmres": lambda A, b: gmres(A, b, restart=12), "bicgstab": bicgstab}


def digests(comm, hermitian):
    """What each method found of three samples on five domains, on rank 0."""
    A, _ = box(6, 3, spread=0.2)
    shift = 0.0 if hermitian else 0.4j * (A.graph.row_of_entry == A.graph.indices)[:, None]
    b = right_hand_side(A.shape[0], 3) + 1j * right_hand_side(A.shape[0], 3, seed=8)
    partition, matrix, right = distributed_system(comm, CrsMatrix(A.graph, A.values + 0j + shift), b, domains=5)
    found = {}
    for name in ("cg",) if hermitian else ("gmres", "bicgstab"):
        result = METHODS[name](matrix, right)
        assert result.converged.all() and result.x.dtype == np.complex128
        found[name] = digest(partition, result)
    return found


@pytest.mark.parametrize("hermitian", [True, False])
def test_complex_solves_on_two_ranks_have_the_bits_of_one(mpi, hermitian):
    want = digests(serial(), hermitian)
    assert mpi(digests, 2, hermitian)[0] == want
