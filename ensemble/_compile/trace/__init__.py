"""A Python function of scalars becomes an expression graph, and that Numba or CUDA source."""
