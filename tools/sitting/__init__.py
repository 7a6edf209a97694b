"""The parts of `tools.first_light`, each for one job. A module imports only modules of the lines above its own.

outcomes, trials            results of a step; edits of submission.py to try
calls, suggest              checks of the kernel's calls; better constants
clusters, times             clusters that run at once; times of the benchmark's cases
work, steps                 the process of a step; the list of steps
sitting                     the steps, each in a process, within the time that there is
drawings, answer, page      pictures; the beginning of the page; the page
session                     a whole sitting, with progress and summary
"""
