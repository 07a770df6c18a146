"""Grid-based Bayesian estimation exploiting sparsity (GBEES): a density carried by a drift on a moving grid."""
