"""Code generation: Numba, CUDA, SIMD lanes, tracing. No numerics."""
