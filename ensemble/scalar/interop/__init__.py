"""The protocols by which NumPy, CuPy, PyTorch, JAX and Python operate on ensembles."""
