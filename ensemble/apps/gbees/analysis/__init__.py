"""Statistics, comparisons and plots of a distribution on a grid."""
