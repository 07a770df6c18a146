"""The implementations of the GBEES step: Array API code, compiled loops, CUDA."""
