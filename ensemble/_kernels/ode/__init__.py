"""Loops over the steps of initial value problems."""
