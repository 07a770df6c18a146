"""Benchmarks: `python -m benchmarks NAME` prints one table with the peers in the same run; asv follows the history."""
