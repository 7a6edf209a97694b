"""Microbenchmarks of `tools.calibrate`: kernels (.cu), launches, and how a figure follows from a kernel's record."""
