"""Worker processes that answer one question each at a time, within a limit of time.

A worker may die or hang: it is ended, its question is reported, and a new worker takes over the rest of its unit.
"""

import collections
import contextlib
import faulthandler
import itertools
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import wait

START_LIMIT_S = 300  # time for imports, before the first question
UNITS_PER_WORKER = 25  # units until a new worker takes over: a process keeps all that it has compiled in memory
POLL_S = 0.5  # time between checks of the limits
STACK_S = 1  # time for a hanging worker to print its stack
END_S = 10  # time for a worker to end after the order

_SPAWN = multiprocessing.get_context("spawn")  # new processes without this one's imports


class PoolError(Exception):
    """A worker that did not start."""


def _serve(pipe, make, arguments):
    """Answer questions in the worker until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # signal that the parent answers by ending the worker
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    answer = make(*arguments)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(answer.about)
        while True:
            pipe.send(answer(pipe.recv()))


class _Worker:
    def __init__(self, make, arguments, unit):
        self.pipe, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.questions, self.units = collections.deque(unit), 1
        self.starting, self.question, self.deadline = True, None, time.monotonic() + START_LIMIT_S

    def ask(self, limit_s):
        self.question, self.deadline = self.questions.popleft(), time.monotonic() + limit_s
        with contextlib.suppress(OSError):  # a worker that has died, which the next check of its pipe shows
            self.pipe.send(self.question)

    def kill(self):
        self.pipe.close()
        self.process.kill()
        self.process.join()


class Pool:
    """make(*arguments), called in each worker, returns a function from question to answer, a dict, with an attribute
    `about`. An answer with a true "restart" is its worker's last. units: lists of questions that one worker answers, in
    order. jobs: workers at once. limit_s: seconds for an answer."""

    def __init__(self, make, arguments, units, jobs, limit_s):
        self.make, self.arguments, self.units, self.jobs, self.limit_s = make, arguments, iter(units), jobs, limit_s
        self.workers, self.retired = [], []
        self.about = None  # `about` of the last worker that started

    def answers(self, stop=lambda: False):
        """Yield (question, answer, "") or (question, None, what went wrong). stop() is asked again and again; once it
        is true, no more questions are put. Raises PoolError for a worker that does not start.
        """
        try:
            while True:
                self._deal(stop())
                if not self.workers:
                    return
                ready = wait([worker.pipe for worker in self.workers], POLL_S)
                for worker in list(self.workers):
                    if worker.pipe in ready:
                        yield from self._receive(worker)
                    elif time.monotonic() > worker.deadline:
                        yield from self._lost(worker, f"no end within {self.limit_s:g} s")
        finally:
            for worker in self.workers:
                worker.kill()
            for process in self.retired:
                process.join(END_S)
                process.kill()

    def _deal(self, stopped):
        """Give every idle worker a question or its leave, and start workers while there are units."""
        for worker in list(self.workers):
            if worker.starting and stopped:
                worker.kill()
                self.workers.remove(worker)
            if worker.starting or worker.question is not None:
                continue
            if not worker.questions and not stopped and worker.units < UNITS_PER_WORKER:
                worker.questions.extend(next(self.units, ()))
                worker.units += 1
            if worker.questions and not stopped:
                worker.ask(self.limit_s)
            else:
                self._retire(worker)
        while not stopped and len(self.workers) < self.jobs and (unit := next(self.units, None)):
            self.workers.append(_Worker(self.make, self.arguments, unit))

    def _retire(self, worker):
        self.workers.remove(worker)
        self.retired.append(worker.process)
        self._give_back(worker)
        worker.pipe.close()

    def _give_back(self, worker):
        if worker.questions:
            self.units = itertools.chain([list(worker.questions)], self.units)

    def _receive(self, worker):
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(END_S)
            yield from self._lost(worker, f"the process died, exit code {worker.process.exitcode}")
            return
        if worker.starting:
            worker.starting, worker.deadline, self.about = False, float("inf"), answer
            return
        question, worker.question, worker.deadline = worker.question, None, float("inf")
        if answer["restart"]:
            self._retire(worker)
        yield question, answer, ""

    def _lost(self, worker, reason):
        """End a worker that died or hangs."""
        if worker.process.is_alive():
            os.kill(worker.process.pid, signal.SIGUSR1)
            worker.process.join(STACK_S)
        worker.kill()
        self.workers.remove(worker)
        if worker.starting:
            raise PoolError(f"a worker did not start: {reason}")
        self._give_back(worker)
        yield worker.question, None, reason
