"""Vector work of the Krylov methods."""
