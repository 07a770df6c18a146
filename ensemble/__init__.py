"""Many samples of a numerical model at once."""
