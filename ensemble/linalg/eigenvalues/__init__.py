"""Eigenvalues of many sparse symmetric matrices at once: `eigsh`, its operators and shifts, Lanczos' process."""
