"""File formats of a run."""
