"""Figures of `docs/images`, drawn from the records in `benchmarks/results`."""
