"""The parts of `tools.first_light`, each for one job. A module imports only modules of the lines above its own.

outcomes, trials            what a step leaves; edits of submission.py to try
calls, suggest              checks of the kernel's calls; better constants
clusters, times             clusters that run at once; times of the benchmark's cases
work, steps                 what a step's process does; which steps there are
sitting                     the steps, each in a process, within the time that there is
drawings, answer, page      pictures; what the page begins with; the page
session                     all of it, with progress and summary
"""
