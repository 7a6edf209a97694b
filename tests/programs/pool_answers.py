"""Answers in the place of the soak's workers."""

import os


class SoakAnswers:
    """A replacement of tests.support.soak_worker.Runner: problem 1 kills its process, 2 is wrong, all others pass."""

    about = {"device": "none", "configurations": 7}

    def __init__(self, seed, path, command):
        self.seed = seed
        path.read_text()  # a read as in the real runner, which runs the submission

    def __call__(self, number):
        if number == 1:
            os._exit(3)
        figures = {"calls": 2, "work": 100, "seconds": 0.5, "compile_seconds": 0.25}
        errors = ["late: call 0, group 0, c: 1 of 8 elements differ"] if number == 2 else []
        traits = [("schedule", "late"), ("configuration", f"{number % 2}")]
        texts = {"kind": "gemm", "text": f"problem {number} of seed {self.seed}", "errors": errors, "restart": False}
        return {"number": number, "traits": traits, **figures, **texts}
