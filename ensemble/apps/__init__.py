"""Applications: each folder solves one class of problems for many samples at once."""

from ensemble.apps import fem, gbees, kalman

__all__ = ["fem", "gbees", "kalman"]
