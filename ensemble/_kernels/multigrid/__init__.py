"""Graph work and passes of multigrid."""
