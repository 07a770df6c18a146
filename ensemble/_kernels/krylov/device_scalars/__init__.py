"""The scalars of Krylov methods that stay on a device."""
