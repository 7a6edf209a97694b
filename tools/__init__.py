"""Commands around the kernel, run from the root of the repository as `python -m tools.NAME`.

    plans      the launches for given sizes, and why every other configuration lost
    choice     the choice among the configurations, judged by times of random shapes
    model      the time that each benchmark case should take on a B200, term by term
    modelled   that time by the emulator's clock, launch by launch
    report     static figures of every configuration: plan, ptxas, machine code
    mutants    the kernel with broken synchronisation: what notices each mutant, and what nothing does
    compare    the kernel timed beside other kernels and plain memory traffic, on a GPU

Packages: choice; clock (checks of the emulator's clock); mutants; sitting (the parts of first_light.py). Tools that
know nothing of the kernel are nogpu's: the package `workshop` in the folder nogpu, which is not installed.

All but compare describe a B200 on any machine. nvidia-cutlass-dsl compiles for the installed GPU unless CUTE_DSL_ARCH
names another architecture when it is imported; harness.dsl, which sets the variable, is therefore imported here first.
"""

import sys

from harness import ROOT
from harness.dsl import ARCH as ARCH

sys.path.append(str(ROOT / "nogpu"))
