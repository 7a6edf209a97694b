"""Tensor memory and the tensor core: allocation, order of accesses, descriptors, copies, MMAs (PTX ISA, tcgen05)."""
