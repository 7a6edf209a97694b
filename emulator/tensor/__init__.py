"""The tensor core and tensor memory: tcgen05."""
