"""Runs the contest's cases on a submission: inputs, calls, checks, timings, reports. eval.py is its command line.

The judge, which is eval.py's own process, makes inputs and expected outputs and compares; the worker process imports
the submission and calls it. A module imports only modules of the lines above its own, and nothing of eval.py or tools:

    dsl, console, modules, interpreter, timing, messages, linux, launch_modes, folders
    submissions, results, counts, clocks, plan_report, cases, shared_memory, sanitizing, processes
    landlock, namespaces, seccomp   what a worker may do
    relay                           what it prints
    outputs, profiling
    confinement, nursery            how it starts
    judge                           the jobs on one case
    runner                          the worker process
    nursery_process                 the process that starts workers
    devices, worker                 where the jobs run
    restart, options, protocol, tables
    modes                           a mode on all cases of a problem
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # the folder of eval.py and submission.py
