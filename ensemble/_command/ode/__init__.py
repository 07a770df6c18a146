"""``ensemble ode``."""
