"""Mutants of kernels: their PTX with one synchronisation instruction broken, and what notices them.

kinds      what is broken: text in, mutants out
programs   the kernels, and calls that need every instruction of theirs
tape       the launches of a program, recorded once and repeated with other PTX
trial      one mutant: schedules, then the sanitizer
pool       trials in forked processes
survivors  the committed list of mutants that nothing notices, each with its reason
score      counts by kind and by program, and their table
"""
