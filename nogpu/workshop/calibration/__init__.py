"""Microbenchmarks of a chip: kernels (.cu), launches, and how a figure follows from a kernel's record."""
