"""``ensemble gbees``."""
