"""The implementations of the GBEES step: Array API code, compiled loops for the CPU, CUDA."""
