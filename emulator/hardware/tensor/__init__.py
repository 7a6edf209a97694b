"""Tensor memory and the tensor core: allocation, order, descriptors, copies and MMAs (PTX ISA, tcgen05)."""
