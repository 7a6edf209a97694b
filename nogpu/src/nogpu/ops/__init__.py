"""Operations: what each family of instructions does to the hardware when a warp issues it."""
