"""Microbenchmarks of a chip: kernels (.cu), launches, and figures from the kernels' records."""
