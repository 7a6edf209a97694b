"""The tensor memory accelerator (TMA): tensor maps, swizzles, and copies of boxes."""
