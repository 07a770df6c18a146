"""How code is made: the doors to Numba and CUDA, lanes, tracing. No numerics."""
