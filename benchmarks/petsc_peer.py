"""CG with GAMG or BoomerAMG by PETSc, for one sample, on each rank of MPI: for `bench_distributed`.

It runs under the Python for which petsc4py is installed and imports nothing of this project: a folder has the matrix as
``indptr.npy``, ``indices.npy``, ``values.npy`` and ``b.npy``, rows in the order of ranks, and ``offsets.npy``.
"""

import json
import sys
import time

import numpy as np

OPTIONS = {
    "gamg": {},
    "hypre": {"pc_hypre_type": "boomeramg"},
}


def run(folder, kind, rounds, seconds):
    """Seconds of set-up and solve to 1e-7, and iterations, for each round; rank 0 writes them."""
    import petsc4py

    petsc4py.init([])
    from petsc4py import PETSc

    comm = PETSc.COMM_WORLD
    read = {name: np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in ("indptr", "indices", "values", "b")}
    offsets = np.load(f"{folder}/offsets.npy") if comm.size > 1 else np.array([0, read["b"].size])
    first, last = int(offsets[comm.rank]), int(offsets[comm.rank + 1])
    n, part = int(read["b"].size), slice(int(read["indptr"][first]), int(read["indptr"][last]))
    indptr = np.asarray(read["indptr"][first : last + 1]) - read["indptr"][first]
    csr = indptr.astype(np.int32), np.array(read["indices"][part], np.int32), np.array(read["values"][part])
    A = PETSc.Mat().createAIJ(size=((last - first, n), (last - first, n)), csr=csr, comm=comm)
    A.setOption(PETSc.Mat.Option.SPD, True)
    A.assemble()
    b = A.createVecLeft()
    b.setArray(np.array(read["b"][first:last]))
    for name, value in OPTIONS[kind].items():
        PETSc.Options().setValue(name, value)
    found, begin = [], time.perf_counter()
    for k in range(rounds + 1):
        x = A.createVecRight()
        ksp = PETSc.KSP().create(comm)
        ksp.setOperators(A)
        ksp.setType("cg")
        ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        ksp.getPC().setType(kind)
        ksp.setFromOptions()
        ksp.setTolerances(rtol=1e-7)
        comm.barrier()
        start = time.perf_counter()
        ksp.setUp()
        middle = time.perf_counter()
        ksp.solve(b, x)
        comm.barrier()
        end = time.perf_counter()
        if k:
            found.append({"setup": middle - start, "solve": end - middle, "iterations": ksp.getIterationNumber(),
                          "converged": int(ksp.getConvergedReason()) > 0})  # fmt: skip
        ksp.destroy()
        x.set(float(k > 0 and time.perf_counter() - begin > seconds))
        if x.max()[1] > 0.0:  # all ranks agree
            break
    if comm.rank == 0:
        with open(f"{folder}/{kind}-{comm.size}.json", "w") as file:
            json.dump(found, file)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
