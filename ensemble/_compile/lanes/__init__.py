"""SIMD registers as values in functions that Numba compiles."""
