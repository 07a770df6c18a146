"""Uncertainty quantification: uncertain inputs, samplers, studies of many model runs, and their statistics."""

__all__: list[str] = []
