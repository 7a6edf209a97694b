"""Mutants of kernels: their PTX with one synchronisation instruction broken, and what notices them.

kinds      what is broken: text in, mutants out
tape       the launches of a program, recorded once and repeated with other PTX
trial      one mutant: schedules, then the sanitizer
survivors  a list of mutants that nothing notices, each with its reason
results    what came of mutants, as files keep it
score      counts by kind and by program
silence    kernels as they are: the sanitizer reports nothing
"""
