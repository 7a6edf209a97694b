"""A clock: what a recorded launch should take on a chip, from a discrete-event simulation of it."""
