"""Compiled loops over plain arrays; a kernel knows none of the classes above it."""
