"""Grid-based Bayesian estimation exploiting sparsity (GBEES): a density carried by a drift on a grid that follows it."""
