"""Grids and steps of GBEES."""
