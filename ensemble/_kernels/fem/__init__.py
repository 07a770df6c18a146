"""Finite-element assembly and matrix-free products."""
