"""Algorithms that decide on the next samples from the last: multilevel, inversion, Markov chains, rare events."""
