"""SIMD registers as values in functions compiled by Numba."""
