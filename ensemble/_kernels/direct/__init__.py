"""Sparse direct factorisation of many samples on one graph: orderings, symbolic structure, numbers, solves."""
