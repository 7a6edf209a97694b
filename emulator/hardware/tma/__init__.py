"""The tensor memory accelerator: tensor maps, swizzles, and the boxes that it moves."""
