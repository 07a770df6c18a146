"""Code generation: Numba, CUDA, SIMD lanes, tracing. No numerics."""

from ensemble._blas import share_processors

share_processors()  # before Numba is imported, which reads the number of threads then
