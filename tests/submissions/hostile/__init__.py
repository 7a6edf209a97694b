"""Hostile submissions and their legal twins, a module per family; `submission.py` is the file that eval.py is given.

`python tests/hostile.py` runs them.
"""
