"""The arithmetic of instructions: integers, floating-point numbers with every rounding, narrow formats."""
