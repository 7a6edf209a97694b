"""Worker processes: every question is answered or reported once, whatever happens to its worker."""

import argparse
import itertools
import multiprocessing
import os
import signal
import time
from functools import partial

import pytest
from rich.console import Console

from tests.workshop.pool_answers import Answers
from workshop import processes
from workshop.processes import Pool, PoolError, forked


def run(units, jobs=1, limit_s=60, **options):
    """({question: (answer, reason)}, the pool), and no worker is left."""
    pool = Pool(Answers, ("about",), units, jobs, limit_s)
    found = {}
    for question, answer, reason in pool.answers(**options):
        assert question not in found
        found[question] = answer, reason
    assert not multiprocessing.active_children()
    return found, pool


def questions(*units):
    return [[f"{what} {index}.{place}" for place, what in enumerate(unit)] for index, unit in enumerate(units)]


def test_a_worker_answers_whole_units():
    units = questions(["ask"] * 3, ["ask"] * 3, ["ask"] * 2)
    found, pool = run(units, jobs=2)
    assert list(map(sorted, units)) == [sorted(q for q in found if q.startswith(f"ask {i}.")) for i in range(3)]
    assert all(answer["number"] == question.split()[1] and not reason for question, (answer, reason) in found.items())
    processes = [{found[question][0]["process"] for question in unit} for unit in units]
    assert all(len(of_unit) == 1 for of_unit in processes) and pool.about == "about"


def test_a_worker_that_dies_is_reported_and_replaced():
    found, _ = run(questions(["ask", "die", "ask"]))
    first, (answer, reason), last = found.values()
    assert answer is None and reason == "the process died, exit code 3"
    assert first[0]["process"] != last[0]["process"]


def test_a_worker_that_hangs_is_reported_and_replaced(capfd):
    found, _ = run(questions(["hang", "ask"]), limit_s=0.5)
    (answer, reason), last = found.values()
    assert answer is None and reason == "no end within 0.5 s" and last[0]
    assert "pool_answers.py" in capfd.readouterr().err, "it prints where it was"


def test_an_answer_may_end_its_worker():
    found, _ = run(questions(["ask", "restart", "ask"]))
    first, second, third = (answer["process"] for answer, _ in found.values())
    assert first == second != third


def test_workers_are_replaced_after_some_units(monkeypatch):
    monkeypatch.setattr(processes, "UNITS_PER_WORKER", 2)
    found, _ = run(questions(*[["ask"]] * 3))
    first, second, third = (answer["process"] for answer, _ in found.values())
    assert first == second != third


def test_a_pool_can_be_stopped():
    """Though its units have no end, and what has been asked is answered."""
    found, units = [], ([f"ask {number}", f"ask {number + 1}"] for number in itertools.count(0, 2))
    for question, answer, _ in Pool(Answers, ("about",), units, 1, 60).answers(lambda: len(found) == 3):
        found.append((question, answer["number"]))
    assert found == [("ask 0", "0"), ("ask 1", "1"), ("ask 2", "2")]


def test_a_pool_whose_workers_do_not_start_says_so():
    with pytest.raises(PoolError, match="did not start: the process died, exit code 1"):
        list(Pool(Answers, ("cannot start",), questions(["ask"]), 1, 60).answers())
    assert not multiprocessing.active_children()


def test_tasks_are_forked():
    def fails():
        raise ValueError("broken")

    def dies():
        os.kill(os.getpid(), signal.SIGKILL)

    tasks = [lambda: 7, fails, dies, partial(time.sleep, 60), lambda: "x" * 200_000]
    ended = {each.number: each for each in forked(tasks, jobs=3, limit=1.0)}
    assert ended[0].result == 7 and ended[4].result == "x" * 200_000 and not ended[0].failure
    assert ended[1].failure == "ValueError: broken" and ended[2].failure == "the process died, exit code -9"
    assert ended[3].failure == "no end within 1 s" and ended[3].seconds < 30
    assert len(ended) == 5 and not list(forked(tasks, jobs=1, limit=1.0, seconds=-1.0))


def test_an_interrupted_run_is_saved():
    options, saved = argparse.Namespace(jobs=1, limit=60.0, seconds=None), []
    with pytest.raises(KeyboardInterrupt):
        for _ in processes.shown([lambda: 1, partial(time.sleep, 60)], options, Console(), lambda: saved.append(1)):
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
    assert saved == [1]
