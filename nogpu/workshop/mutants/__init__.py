"""Mutants of kernels: their PTX with one synchronisation instruction broken, and the checks that notice them.

kinds      ways to break an instruction, and the mutants of a text
tape       the launches of a program, recorded once and repeated with other PTX
trial      runs of one mutant: under schedules, then with the sanitizer
survivors  the list of mutants that nothing notices, each with its reason
results    outcomes of mutants, as files keep them
score      counts by kind and by program
silence    unchanged kernels, of which the sanitizer reports nothing
"""
