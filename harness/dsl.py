"""Imported before `submission`, this makes the DSL compile for a B200 on a machine that has another GPU or none."""

import os

ARCH = "sm_100a"

os.environ.setdefault("CUTE_DSL_ARCH", ARCH)  # read when the DSL is imported; its own default is the installed GPU
