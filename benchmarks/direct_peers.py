"""Other sparse direct solvers, through their C libraries: numeric refactorisation and one solve on a fixed graph.

Each library is looked for where the system has its libraries, and in the directories named by ``LD_LIBRARY_PATH`` or
``PEER_LIBRARIES`` (separated by colons). Debian's packages libklu1 and libcholmod3 (with libopenblas0) have KLU and
CHOLMOD; the package mkl of PyPI has PARDISO, in ``<prefix>/lib``. A library that is not there is left out.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_banded
from scipy.sparse.linalg import splu

__all__ = ["PEERS", "peers_for"]

P = ctypes.c_void_p


def _library(name: str) -> Any:
    """A shared library by name, None where it is absent; what it needs is loaded with it."""
    folders = [*os.environ.get("PEER_LIBRARIES", "").split(":"), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    for folder in [*filter(None, folders), str(Path(sys.prefix) / "lib")]:
        for path in sorted(Path(folder).glob(f"lib{name}.so*")):
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                continue
    found = ctypes.util.find_library(name)
    try:
        return ctypes.CDLL(found) if found else None
    except OSError:
        return None


def _at(array: np.ndarray) -> Any:
    return array.ctypes.data_as(P)


class Splu:
    """SuperLU of SciPy, which orders and analyses again for each sample."""

    def __init__(self, A: sp.csr_array, symmetric: bool) -> None:
        self.A = sp.csc_matrix(A)
        self.entries = sp.csr_array((np.arange(A.nnz), A.indices, A.indptr), A.shape).tocsc().data

    def __call__(self, values: np.ndarray, b: np.ndarray) -> np.ndarray:
        self.A.data[:] = values[self.entries]
        return splu(self.A).solve(b)


class SolveBanded:
    """LAPACK's tridiagonal or banded solver, as SciPy calls it."""

    def __init__(self, A: sp.csr_array, symmetric: bool) -> None:
        row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        self.half = int(np.abs(row - A.indices).max())
        if A.nnz < 0.5 * A.shape[0] * (2 * self.half + 1):
            raise NotImplementedError("the band is mostly empty")
        self.places = self.half + row - A.indices, A.indices
        self.band = np.zeros((2 * self.half + 1, A.shape[0]))

    def __call__(self, values: np.ndarray, b: np.ndarray) -> np.ndarray:
        self.band[self.places] = values
        return solve_banded((self.half, self.half), self.band, b, check_finite=False)


class Klu:
    """``klu_refactor`` and ``klu_tsolve``: the rows of the matrix are the columns of what KLU factorises."""

    def __init__(self, A: sp.csr_array, symmetric: bool) -> None:
        self.k = _library("klu")
        if self.k is None:
            raise NotImplementedError("no libklu")
        for name in ("klu_analyze", "klu_factor"):
            getattr(self.k, name).restype = P
        self.n, self.common = A.shape[0], ctypes.create_string_buffer(4096)
        self.p, self.i = A.indptr.astype(np.int32), A.indices.astype(np.int32)
        self.k.klu_defaults(self.common)
        self.symbolic = P(self.k.klu_analyze(self.n, _at(self.p), _at(self.i), self.common))
        data = np.ascontiguousarray(A.data)
        self.numeric = P(self.k.klu_factor(_at(self.p), _at(self.i), _at(data), self.symbolic, self.common))

    def __call__(self, values: np.ndarray, b: np.ndarray) -> np.ndarray:
        x = b.copy()
        good = self.k.klu_refactor(
            _at(self.p), _at(self.i), _at(values), self.symbolic, self.numeric, self.common
        )  # fmt: skip
        self.k.klu_tsolve(self.symbolic, self.numeric, self.n, 1, _at(x), self.common)
        if not good:
            raise RuntimeError("klu_refactor failed")
        return x


class _Sparse(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("nrow", "ncol", "nzmax")),
        *((name, P) for name in ("p", "i", "nz", "x", "z")),
        *((name, ctypes.c_int) for name in ("stype", "itype", "xtype", "dtype", "sorted", "packed")),
    ]


class _Dense(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("nrow", "ncol", "nzmax", "d")),
        *((name, P) for name in ("x", "z")),
        *((name, ctypes.c_int) for name in ("xtype", "dtype")),
    ]


class Cholmod:
    """``cholmod_factorize`` and ``cholmod_solve`` of a positive definite matrix."""

    def __init__(self, A: sp.csr_array, symmetric: bool) -> None:
        self.c = _library("cholmod") if symmetric else None
        if self.c is None:
            raise NotImplementedError("no libcholmod, or not symmetric")
        self.c.cholmod_analyze.restype, self.c.cholmod_solve.restype = P, ctypes.POINTER(_Dense)
        self.common = ctypes.create_string_buffer(1 << 16)
        self.c.cholmod_start(self.common)
        self.p, self.i = A.indptr.astype(np.int32), A.indices.astype(np.int32)
        self.x = np.array(A.data)
        n, itype, real = A.shape[0], 0, 1
        self.A = _Sparse(
            n, n, A.nnz, _at(self.p), _at(self.i), None, _at(self.x), None, 1, itype, real, 0, 1, 1
        )  # fmt: skip
        self.factor = P(self.c.cholmod_analyze(ctypes.byref(self.A), self.common))

    def __call__(self, values: np.ndarray, b: np.ndarray) -> np.ndarray:
        self.x[:] = values
        self.c.cholmod_factorize(ctypes.byref(self.A), self.factor, self.common)
        rhs = _Dense(b.size, 1, b.size, b.size, _at(b), None, 1, 0)
        got = self.c.cholmod_solve(0, self.factor, ctypes.byref(rhs), self.common)
        x = np.ctypeslib.as_array(ctypes.cast(got.contents.x, ctypes.POINTER(ctypes.c_double)), (b.size,)).copy()
        self.c.cholmod_free_dense(ctypes.byref(got), self.common)
        return x


class Pardiso:
    """MKL's PARDISO on one thread: phases 22 and 33."""

    def __init__(self, A: sp.csr_array, symmetric: bool) -> None:
        os.environ.setdefault("MKL_THREADING_LAYER", "SEQUENTIAL")
        self.mkl = _library("mkl_rt")
        if self.mkl is None:
            raise NotImplementedError("no libmkl_rt")
        rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        self.kept = np.flatnonzero(A.indices >= rows) if symmetric else np.arange(A.nnz)
        self.type, self.n = (2 if symmetric else 11), A.shape[0]
        counts = np.bincount(rows[self.kept], minlength=self.n)
        self.p = (np.concatenate([[0], np.cumsum(counts)]) + 1).astype(np.int32)
        self.i = (A.indices[self.kept] + 1).astype(np.int32)
        self.handle, self.options = np.zeros(64, np.int64), np.zeros(64, np.int32)
        self.phase(11, np.array(A.data[self.kept]), np.zeros(self.n), np.zeros(self.n))

    def phase(self, phase: int, a: np.ndarray, b: np.ndarray, x: np.ndarray) -> None:
        number = lambda value: ctypes.byref(ctypes.c_int(value))
        error = ctypes.c_int(0)
        self.mkl.pardiso(
            _at(self.handle), number(1), number(1), number(self.type), number(phase), number(self.n), _at(a),
            _at(self.p), _at(self.i), None, number(1), _at(self.options), number(0), _at(b), _at(x),
            ctypes.byref(error),
        )  # fmt: skip
        if error.value:
            raise RuntimeError(f"pardiso: error {error.value} in phase {phase}")

    def __call__(self, values: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, x = np.ascontiguousarray(values[self.kept]), np.zeros(self.n)
        self.phase(22, a, b, x)
        self.phase(33, a, b, x)
        return x


PEERS = {"splu": Splu, "KLU": Klu, "CHOLMOD": Cholmod, "PARDISO": Pardiso, "solve_banded": SolveBanded}


def peers_for(A: sp.csr_array, symmetric: bool, without: list[str]) -> dict[str, Any]:
    """The solvers that are there and take the matrix, each as a function of values and right-hand side.

    A solver whose solution is wrong is refused: the call of a C library may have failed silently.
    """
    b, made = np.linspace(1.0, 2.0, A.shape[0]), {}
    for name, peer in PEERS.items():
        if name in without:
            continue
        try:
            solver = peer(A, symmetric)
        except NotImplementedError:
            continue
        x = solver(np.array(A.data), b.copy())
        if np.abs(A @ x - b).max() > 1e-8 * np.abs(b).max():
            raise RuntimeError(f"{name}: the solution is wrong")
        made[name] = solver
    return made
