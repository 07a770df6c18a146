"""What a distribution on a grid says, and pictures of it."""
