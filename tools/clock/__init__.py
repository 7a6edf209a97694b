"""Compares the emulator's clock with silicon: times of whole kernels, recordings of the same launches, and replays.

truth                    times on a GPU, one launch configuration at a time
shapes                   the random shapes whose times join them
recorder, recordings     the launches, each recorded once
validate, sensitivity    modelled times beside the measured ones; how far they move with a profile's constants
tables                   tables of all these times
"""
