"""Points of the unit cube: random, quasi-random, and quadrature."""
