"""Commands around the kernel, run from the root of the repository as `python -m tools.NAME`.

    plans      the launches for given sizes, and why every other configuration lost
    model      the time that each benchmark case should take on a B200, term by term
    report     static figures of every configuration: plan, ptxas, machine code
    fuzz       mutated PTX through the emulator's loader: nothing but its own errors may come of it
    mutants    kernels with broken synchronisation: what notices each, and what nothing does
    foreign    programs of others on the emulator, beside what a B200 made of them
    compare    the kernel timed beside other kernels and plain memory traffic, on a GPU

All but the last describe a B200 on any machine, while nvidia-cutlass-dsl compiles for the installed GPU unless
CUTE_DSL_ARCH names another architecture by the time of its import. harness.dsl sets the variable; imported here, it
comes first.
"""

from harness.dsl import ARCH as ARCH
