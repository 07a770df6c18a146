"""Numerics on bare arrays, one folder for each user; a kernel knows none of the classes above it."""
