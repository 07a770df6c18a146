"""Quadrature rules, and sums of a traced integrand over their tensor products."""
