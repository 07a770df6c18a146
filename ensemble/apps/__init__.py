"""Applications: each folder solves one class of problems for many samples at once."""

from ensemble.apps import fem, kalman

__all__ = ["fem", "kalman"]
