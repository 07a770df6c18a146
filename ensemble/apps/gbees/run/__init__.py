"""From the arguments of `Gbees` to runs of each sample."""
