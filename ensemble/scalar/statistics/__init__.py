"""Statistics over samples."""
