"""Factorisations of many sparse matrices at once: orders of elimination, samples with exchanges, conditions."""
