"""The arithmetic of instructions in NumPy and Python integers, independent of the kernels in C."""
