"""Statistics of many entries from blocks of samples: sums by replicate, ranges, counts in bins."""
