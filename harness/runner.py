"""The worker process, which imports the submission and calls it on request. The judge trusts none of its replies.

    python -m harness.runner SUBMISSION SOCKET MEMORY    descriptors of its end of the socket and of the shared memory

The process is confined before it starts (harness.nursery_process). If it hangs or dies with a submission, the judge
notices and starts another.
"""

from __future__ import annotations

import inspect
import os
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from harness import ROOT, messages
from harness.interpreter import without_collection
from harness.modules import load_module
from harness.timing import release_memory, time_calls
from task import GROUP_GEMM

if TYPE_CHECKING:  # an import of torch, which takes seconds
    from harness.shared_memory import SharedMemory
    from nogpu.clock import Loop, Study, Trace

CONTEST = str(ROOT / "nogpu" / "src" / "nogpu" / "contest")


def load_submission(path: str) -> ModuleType:
    """The module `submission` from the file at `path`, imported once; it can import the contest's `utils`."""
    if CONTEST not in sys.path:
        sys.path.append(CONTEST)  # behind a module `utils` of the submission's own
    with without_collection():
        return sys.modules.get("submission") or load_module("submission", path)


class Runner:
    """Carries out the judge's requests. A slot holds an input and the result of the last call on that input."""

    def __init__(self, load: Callable[[], ModuleType], memory: SharedMemory):
        """load: returns the submission's module, or raises the exception of its import."""
        self.load, self.memory = load, memory
        self.inputs: dict[int, Any] = {}
        self.outputs: dict[int, tuple[Any, Any]] = {}  # slot -> (the input or its copy, the output)
        self.traces: list[Trace] = []  # launches of the last recorded call
        self.study: Study | None = None  # replays of the recorded call, until they are complete
        self.forced: Callable[[Any], Any] | None = None  # custom_kernel in the plan that was requested
        self.handlers: dict[type, Callable[[Any], messages.Reply]] = {
            kind: getattr(self, kind.__name__.lower()) for kind in get_args(messages.Request)
        }

    def answer(self, request: messages.Request) -> messages.Reply:
        """Carry out a request and return its reply: Failed, with the exception as text, if it raises one."""
        try:
            return self.handlers[type(request)](request)
        except BaseException as error:  # includes SystemExit
            text = "".join(traceback.format_exception(error))
            message = f"{type(error).__name__}: {error}"
            return messages.Failed(printable(message, messages.MAX_TEXT), printable(text, messages.MAX_TEXT))

    @property
    def custom_kernel(self) -> Callable[[Any], Any]:
        return self.forced or self.load().custom_kernel

    def store(self, request: messages.Store) -> messages.Reply:
        from harness.shared_memory import fill_all, load

        self.memory.map(request.memory_bytes)
        if request.in_place:
            fill_all(self.inputs[request.slot], request.data, self.memory.bytes)
        else:
            self.inputs[request.slot] = load(request.data, self.memory.bytes)
        return messages.Done()

    def call(self, request: messages.Call) -> messages.Reply:
        import torch

        from harness.shared_memory import clone

        kernel = self.custom_kernel

        def call_all() -> None:
            for slot in request.slots:
                data = clone(self.inputs[slot]) if request.clone else self.inputs[slot]
                self.outputs[slot] = data, kernel(data)

        torch.cuda.synchronize()
        within: AbstractContextManager[None] = nullcontext()
        if request.recorded:
            from nogpu.clock import recording

            self.traces.clear()
            self.study = None
            within = recording(self.traces.append)
        with within:
            if request.counted:
                return messages.Called(count_launches(call_all))
            call_all()
            torch.cuda.synchronize()
        return messages.Called()

    def fetch(self, request: messages.Fetch) -> messages.Reply:
        from harness.outputs import describe, save_expected

        self.memory.map(request.memory_bytes)
        data, output = self.outputs[request.slot]
        save_expected(output, request.places, self.memory.bytes)
        return describe(data, output)

    def time(self, request: messages.Time) -> messages.Reply:
        inputs = [self.inputs[slot] for slot in range(request.slots)]
        nanoseconds, outputs = time_calls(self.custom_kernel, inputs)
        self.outputs = dict(enumerate(zip(inputs, outputs)))
        return messages.Timed(nanoseconds)

    def clock(self, request: messages.Clock) -> messages.Reply:
        from nogpu.clock import Views, modelled_loop, profile, summary

        if not self.traces:
            raise ValueError("the call has launched no kernel: a clock has nothing to replay")
        chip = profile(request.chip)
        views = Views(*(Path(name) if name else None for name in (request.timeline, request.picture)))
        ordinary = modelled_loop(self.traces, chip, request.calls, programmatic=False, spans=views.spans)
        files = views.write(ordinary.replay, self.traces * (len(ordinary.replay.ends) // len(self.traces)))
        programmatic = any(trace.programmatic for trace in self.traces)
        return messages.Clocked(
            chip=printable(chip.name),
            band=summary.error_band(chip),
            ordinary=modelled(ordinary),
            programmatic=modelled(modelled_loop(self.traces, chip, request.calls)) if programmatic else None,
            files=tuple(printable(line, messages.MAX_TEXT) for line in files),
        )

    def why(self, request: messages.Why) -> messages.Reply:
        from nogpu.clock import profile, why

        if self.study is None:
            self.study = why.study_of_loop(self.traces, profile(request.chip), request.calls, programmatic=False)
            return messages.Explained(0, self.study.total)
        study = self.study
        study.advance()
        if study.done < study.total:
            return messages.Explained(study.done, study.total)
        self.study = None
        text = why.lines(study, f"a call of {request.calls} in a loop")
        return messages.Explained(study.done, study.total, tuple(printable(line, messages.MAX_TEXT) for line in text))

    def overwrite(self, request: messages.Overwrite) -> messages.Reply:
        from harness.outputs import leaves

        for slot in range(request.slots):
            for tensor in leaves(self.outputs[slot][1]):
                tensor.fill_(float("nan"))
        return messages.Done()

    def profile(self, request: messages.Profile) -> messages.Reply:
        from harness.profiling import profile

        report = profile(self.custom_kernel, self.inputs[request.slot])
        return messages.Profiled(printable(report, messages.MAX_TEXT))

    def plan(self, request: messages.Plan) -> messages.Reply:
        plan = plan_of(self.load(), request.problem, list(request.sizes))
        return messages.Planned({printable(label): printable(figure) for label, figure in plan.items()})

    def offer(self, request: messages.Offer) -> messages.Reply:
        choices = choices_of(self.load())
        if choices is None:
            return messages.Offered(())
        plans, chosen = choices.plans(list(request.sizes), request.problem)
        return messages.Offered(tuple(plans), chosen)

    def force(self, request: messages.Force) -> messages.Reply:
        choices = choices_of(self.load())
        if choices is None:
            raise ValueError(f"the submission offers no plans, {request.plan!r} among them")
        self.forced = choices.forced(request.plan)
        return messages.Done()

    def finish(self, request: messages.Finish) -> messages.Reply:
        self.forced = None
        self.inputs.clear()
        self.outputs.clear()
        self.traces.clear()
        self.study = None
        release_memory()
        return messages.Finished(device_is_usable())


def printable(value: object, limit: int = messages.MAX_NAME) -> str:
    """Text that JSON can hold, of at most `limit` characters."""
    return str(value).encode(errors="backslashreplace").decode()[:limit]


def device_is_usable() -> bool:
    """False after an error that CUDA reports from every later call."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


def count_launches(call: Callable[[], None]) -> tuple[messages.Launch, ...]:
    """The emulator's counts of each launch that the call makes."""
    import torch

    nogpu = sys.modules["nogpu"]
    nogpu.reset_counters()
    call()
    torch.cuda.synchronize()
    return tuple(messages.Launch(**counters.as_dict()) for counters in nogpu.counters())


def modelled(loop: Loop) -> messages.Modelled:
    """The figures of a loop for the judge: time, utilisation, and each role's longest wait."""
    waits = {}
    for role, parts in loop.report.waits.items():
        waited = {reason: share for reason, share in parts.items() if reason != "issue"}
        if waited:
            reason = max(waited, key=lambda name: waited[name])
            waits[role] = reason, waited[reason]
    return messages.Modelled(loop.us, loop.report.utilisation, waits)


def plan_of(submission: ModuleType, problem: str, sizes: list[tuple[int, int, int, int]]) -> dict[str, Any]:
    """The submission's account of its launches: label -> figure; empty for a submission without one.

    The account comes from a function plan_report(problem_sizes) of the submission, called for group GEMM only, or
    plan_report(problem_sizes, problem), called for every problem. For the project's own it is in harness.plan_report.
    """
    plan_report: Callable[..., dict[str, Any]] | None = getattr(submission, "plan_report", None)
    if Path(getattr(submission, "__file__", None) or "").resolve() == ROOT / "submission.py":
        from harness.plan_report import plan_report
    if plan_report is None:
        return {}
    if "problem" in inspect.signature(plan_report).parameters:
        return plan_report(sizes, problem=problem)
    return plan_report(sizes) if problem == GROUP_GEMM.name else {}


def choices_of(submission: ModuleType) -> ModuleType | None:
    """The module harness.plan_report if the submission has the project's functions for forcing a plan, else None."""
    if not all(hasattr(submission, name) for name in ("solve", "candidates", "configure", "legal_configurations")):
        return None
    from harness import plan_report

    return plan_report


def serve(path: str, socket_fd: int, memory_fd: int) -> None:
    """Carry out the judge's requests for a submission until the socket ends."""
    with without_collection():
        import torch

        from harness.shared_memory import SharedMemory

    for fd in (socket_fd, memory_fd):
        os.set_inheritable(fd, False)
    runner = Runner(partial(load_submission, path), SharedMemory(memory_fd))
    connection = socket.socket(fileno=socket_fd)
    ready = messages.Ready(torch.cuda.get_device_name())
    connection.sendall(messages.encode(messages.NumberedReply(0, ready)))
    while (text := messages.receive(connection)) is not None:
        request = messages.REQUESTS.decode(text)
        connection.sendall(messages.encode(messages.NumberedReply(request.number, runner.answer(request.body))))


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))  # plain end, at which a profiler of the GPU reports
