"""Recursions and scans of Kalman filters and smoothers."""
