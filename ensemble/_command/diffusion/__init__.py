"""``ensemble diffusion``."""
