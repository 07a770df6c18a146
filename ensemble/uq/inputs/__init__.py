"""Uncertain inputs: distributions, dependence, random fields."""
