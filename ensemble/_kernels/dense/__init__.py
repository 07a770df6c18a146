"""Kernels on many small dense matrices."""
