"""Sums, running sums and places of extremes along the rows of arrays whose last axis counts samples."""
