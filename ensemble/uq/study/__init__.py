"""Studies: groups of samples go through a model, and their outputs are gathered."""
