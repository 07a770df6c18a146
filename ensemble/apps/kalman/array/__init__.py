"""Kalman steps, elements of scans and moments in Array API code, for arrays of any library and Ensembles."""
