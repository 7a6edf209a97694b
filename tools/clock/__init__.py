"""The emulator's clock beside silicon: times of whole kernels, recordings of the same launches, replays of them.

truth                    times on a GPU, one launch configuration at a time
shapes                   which random shapes' times join them
recorder, recordings     the launches, each recorded once
validate, sensitivity    modelled times beside the measured ones; how far they move with a profile's constants
tables                   their tables
"""
