"""Global and shared memory: accesses, allocations, rules about what lies there and who may see it."""
