"""Workers for tests of workshop.processes."""

import os
import time


class Answers:
    """Answers, dies, hangs or wants to be replaced, as the question says."""

    def __init__(self, about):
        self.about = about
        if about == "cannot start":
            raise RuntimeError(about)

    def __call__(self, question):
        what, _, number = question.partition(" ")
        if what == "die":
            os._exit(3)
        if what == "hang":
            time.sleep(600)
        return {"number": number, "process": os.getpid(), "restart": what == "restart"}
