"""The hardware that a launch runs on: SMs, clusters, CTAs and warps, barriers, memories and their allocations."""
