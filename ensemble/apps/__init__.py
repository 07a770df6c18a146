"""Applications: each folder solves one class of problems for many samples at once."""
