"""Ensembles as text, HTML and pictures."""
