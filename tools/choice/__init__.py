"""The choice among the kernel's configurations, beside times of each of them on random shapes."""
