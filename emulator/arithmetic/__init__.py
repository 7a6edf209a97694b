"""What instructions compute: integers, floating-point numbers with every rounding, narrow formats."""
