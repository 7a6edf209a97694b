"""Sets the DSL's target to a B200 on a machine that has another GPU or none. Import it before `submission`."""

import os

ARCH = "sm_100a"

os.environ.setdefault("CUTE_DSL_ARCH", ARCH)  # read at the DSL's import; the default is the installed GPU
