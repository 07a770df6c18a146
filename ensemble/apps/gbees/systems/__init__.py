"""Dynamical systems and the problems of the public programs."""
