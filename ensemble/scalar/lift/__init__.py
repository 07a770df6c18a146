"""The Array API lifted over the sample axis."""
