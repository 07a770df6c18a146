"""Which input causes which part of the variance."""
