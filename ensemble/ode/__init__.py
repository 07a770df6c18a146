"""Ensembles of ordinary differential equations."""
