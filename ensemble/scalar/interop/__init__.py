"""The protocols by which NumPy, CuPy, PyTorch, JAX and Python itself meet ensembles."""
