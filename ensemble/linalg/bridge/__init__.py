"""Solvers on arrays of PyTorch, JAX and other libraries: NumPy's kernels on the same memory, with rules of derivatives.

`host` finds such arrays and gives views of them; `system` is one solve on NumPy's arrays; `torch_rules` and `jax_rules`
make a differentiable function of it, `rules` chooses between them.
"""
