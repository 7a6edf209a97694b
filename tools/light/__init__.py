"""The parts of `tools.first_light`, each for one job. A module imports only modules of the lines above its own.

calls, outcomes, suggest    checks of the kernel's calls; what a step leaves; better costs
work, steps                 what a step's process does; which steps there are
sitting                     the steps, each in a process, within the time that there is
drawings, page              pictures; the page
session                     all of it, with progress and summary
"""
