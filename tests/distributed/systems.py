"""Problems for several ranks, made alike on each: matrices, right-hand sides, and digests of solutions."""

import hashlib

import numpy as np
import scipy.sparse as sp

import ensemble as en
from ensemble.distributed import DistributedCrsMatrix, Partition
from ensemble.gallery import poisson
from ensemble.linalg import CrsMatrix


def box(cells: int, n_samples: int, seed: int = 3, spread: float = 0.0) -> tuple[CrsMatrix, np.ndarray]:
    """A Poisson matrix on a cube with coefficients of each sample's own, and the coordinates of its rows."""
    A = poisson((cells, cells, cells))
    rng = np.random.default_rng(seed)
    n = A.shape[0]
    factors = np.exp(spread * rng.standard_normal((n, n_samples)))
    rows = A.graph.row_of_entry
    values = A.values * np.sqrt(factors[rows] * factors[A.graph.indices])
    at = np.stack(np.meshgrid(*[np.arange(cells)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    return CrsMatrix(A.graph, values), at.astype(float)


def shuffled(A: CrsMatrix, seed: int = 5) -> CrsMatrix:
    """`A` with its unknowns numbered at random."""
    order = np.random.default_rng(seed).permutation(A.shape[0])
    return CrsMatrix.from_scipy([sp.csr_array(A.to_scipy(i)[order][:, order]) for i in range(A.n_samples)])


def right_hand_side(n: int, n_samples: int, seed: int = 7) -> np.ndarray:
    """Random numbers, shape (n, n_samples)."""
    return np.random.default_rng(seed).standard_normal((n, n_samples))


def distributed_system(comm, A: CrsMatrix, b: np.ndarray, domains=None, **cut):
    """The partition, and matrix and right-hand side over it, of what every rank has whole."""
    partition = Partition(A.shape[0], comm, domains, **cut)
    root = comm.rank == 0
    whole = DistributedCrsMatrix.scatter(A if root else None, partition)
    return partition, whole, partition.scatter(en.Ensemble(np.ascontiguousarray(b)) if root else None)


def digest(partition, result) -> str:
    """A digest of solution, iterations, statuses and history, on rank 0; the same on every number of ranks."""
    x = partition.gather(result.x)
    if x is None:
        return ""
    found = hashlib.md5(np.ascontiguousarray(x.samples).tobytes())
    for part in (result.iterations, np.ascontiguousarray(result.residual_norms), [str(s) for s in result.status]):
        found.update(repr(part.tolist() if hasattr(part, "tolist") else part).encode())
    return found.hexdigest()
