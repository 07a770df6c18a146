"""Numerics on bare arrays, one folder for each user; a kernel imports none of the classes above it."""
