"""Runs random problems in a process: on the emulated chip under each schedule, on a GPU once as they come and once more
queued behind a kernel that keeps it busy, so that calls in a row overlap."""

import dataclasses
import functools
import time

import torch

from harness.modules import load_module
from tests.support import soak_memory
from tests.support.soak_draws import draw
from tests.support.soak_problems import OPERANDS
from tools.circumstances import versions

BUSY_CYCLES = 10_000_000  # the GPU waits until the host has queued all calls
COLD, QUEUED = "as they come", "queued"


class Runner:
    """Answers a problem's number with its result, as a dict."""

    def __init__(self, seed, path, command):
        torch.set_num_threads(1)
        self.seed, self.submission, self.compile_seconds = seed, load_module("submission", path), 0.0
        self.submission.compiled = self.timed(self.submission.compiled)
        self.chip = None
        name = torch.cuda.get_device_name()
        if "emulated" in name:
            from nogpu.execution.device import Device

            self.chip = Device.current()
            self.chip.workers = 1
        self.submission.sm_count(torch.cuda.current_device())  # value for calls that name no number of SMs
        every = [self.submission.legal_configurations(max(1, products)) for products in OPERANDS]
        self.about = {"device": name, "configurations": sum(map(len, every)), **versions(command)}

    def timed(self, function):
        @functools.wraps(function)
        def call(*arguments):
            start = time.perf_counter()
            result = function(*arguments)
            self.compile_seconds += time.perf_counter() - start
            return result

        return call

    def __call__(self, number):
        start, self.compile_seconds, errors, broken = time.perf_counter(), 0.0, [], False
        problem = draw(self.submission, self.seed, number)
        storages, scales = soak_memory.contents(problem)
        want, results = soak_memory.expected(problem, storages, scales), []
        schedules = problem.schedules if self.chip else (COLD, QUEUED)[: len(problem.calls)]
        for schedule in schedules:
            try:
                found = self.run(problem, storages, schedule)
            except Exception as error:  # any exception means a wrong call
                errors.append(f"{schedule}: {type(error).__name__}: {error}")
                broken = True
                break
            results.append([storage.clone() for storage in found])
            errors += [f"{schedule}: {text}" for text in soak_memory.differences(problem, want, found)]
        if any(not ours.equal(first) for result in results for ours, first in zip(result, results[0])):
            errors.append(f"the runs {', '.join(schedules)} left different bytes")
        return {
            "number": number,
            "kind": problem.kind,
            "calls": len(problem.calls) * len(schedules),
            "work": sum(call.work for call in problem.calls) * len(schedules),
            "seconds": time.perf_counter() - start,
            "compile_seconds": self.compile_seconds,
            "traits": problem.traits() if self.chip else [x for x in problem.traits() if x[0] != "schedule"],
            "errors": errors,
            "text": problem.describe(),
            "restart": broken and self.chip is None,  # true after a GPU's error, which stays with its process
        }

    def run(self, problem, storages, schedule):
        """The storages, on the CPU, after all calls in copies of the given ones."""
        if self.chip:
            self.chip.schedules = (schedule,)
            self.chip.properties = dataclasses.replace(self.chip.properties, sm_count=problem.chip)
            self.chip.reset_counters()
        memory = [storage.to("cuda") for storage in storages]
        inputs = [soak_memory.arguments(problem, number, memory) for number in range(len(problem.calls))]
        torch.cuda.synchronize()
        if schedule == QUEUED:
            torch.cuda._sleep(BUSY_CYCLES)
        for call, (data, outputs) in zip(problem.calls, inputs):
            got = self.submission.solve(data, call.ready, call.free, call.configurations, call.sms)
            returned = got if call.kind == "group_gemm" else [got]
            assert [*map(id, returned)] == [*map(id, outputs)], "the outputs that it returns are not the caller's"
        torch.cuda.synchronize()
        return [storage.cpu() for storage in memory]
