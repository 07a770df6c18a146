"""Compiled recursions on the CPU and on CUDA devices, and one series over several devices."""
