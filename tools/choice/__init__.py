"""Compares the choice among the kernel's configurations with times of all of them on random shapes."""
