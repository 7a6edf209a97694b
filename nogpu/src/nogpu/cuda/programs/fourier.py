"""The entry point behind cuda_headers/cufft.h: plans, and Fourier transforms by NumPy, in float64, rounded once.

As cuFFT's, transforms are not divided by the number of elements (cuFFT, "Fourier Transform Types").
"""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass, field

import numpy as np

from nogpu import headers
from nogpu.cuda import graphs, queues
from nogpu.cuda.backends import current
from nogpu.cuda.handles import Table
from nogpu.cuda.programs import devices
from nogpu.cuda.programs.entries import ADDRESS, copied, entry, store
from nogpu.errors import EmulatorError, Fault, UnknownHandle

_HEADER = "cuda/programs/cuda_headers/cufft.h"
CREATE, PLAN, STREAM, EXECUTE, DESTROY = headers.constants(
    _HEADER, *(f"EMULATOR_FFT_{name}" for name in ("CREATE", "PLAN", "STREAM", "EXECUTE", "DESTROY"))
)
_FORWARD, _INVERSE = -1, 1
_TYPES = {  # cufftType -> (input, output)
    0x29: (np.complex64, np.complex64),
    0x2A: (np.float32, np.complex64),
    0x2C: (np.complex64, np.float32),
    0x69: (np.complex128, np.complex128),
    0x6A: (np.float64, np.complex128),
    0x6C: (np.complex128, np.float64),
}


@headers.mirrors(_HEADER, "emulator_fft_request", input=ctypes.c_size_t, output=ctypes.c_size_t)
class Request(ctypes.Structure):
    """A call of cuFFT."""


@dataclass
class _Plan:
    request: Request = field(default_factory=Request)
    queue: int = queues.LEGACY

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.request.sizes[: self.request.rank])


_plans = Table[_Plan]("plan of cuFFT")


@entry("emulator_fft", ADDRESS)
def fft(address: int) -> None:
    asked = copied(Request, address)
    devices.emulated("cuFFT")
    if asked.operation == CREATE:
        asked.plan = _plans.add(_Plan())
        store(address, asked)
    elif asked.operation == PLAN:
        if asked.type not in _TYPES or min(asked.sizes[: asked.rank]) < 1 or asked.batch < 1:
            raise Fault(f"a plan of type {asked.type}, sizes {asked.sizes[: asked.rank]}, batch {asked.batch}")
        _plans[asked.plan].request = asked
    elif asked.operation == STREAM:
        queues.check(asked.stream)
        _plans[asked.plan].queue = queues.resolved(asked.stream)
    elif asked.operation == DESTROY:
        _plans.take(asked.plan)
    else:
        _submit(_plans[asked.plan], asked)


def _submit(plan: _Plan, asked: Request) -> None:
    if plan.request.type != asked.type:
        raise UnknownHandle(f"plan {asked.plan} is not of the type that is executed")
    if asked.direction not in (_FORWARD, _INVERSE):
        raise Fault(f"direction {asked.direction}: must be CUFFT_FORWARD or CUFFT_INVERSE")
    graphs.submit(functools.partial(_run, plan.request, asked, plan.queue), plan.queue, graphs.KERNEL)


def _run(plan: Request, asked: Request, queue: int) -> None:
    """Transform. Raises EmulatorError, as a kernel does, for an access outside of allocations."""
    current().finish()
    kinds, n = _TYPES[plan.type], tuple(plan.sizes[: plan.rank])
    half = (*n[:-1], n[-1] // 2 + 1)
    try:
        source, of = _values(plan, asked, "input", kinds, half)
        target, to = _values(plan, asked, "output", kinds, half)
    except Fault as fault:
        raise EmulatorError(f"cuFFT: {fault.reason}") from None
    queues.accessed(queue, "cuFFT", [of], [to])
    axes = tuple(range(1, plan.rank + 1))
    made: np.ndarray
    if kinds[0] == kinds[1]:
        wide = source.astype(np.complex128)
        made = np.fft.fftn(wide, axes=axes) if asked.direction == _FORWARD else np.fft.ifftn(wide, axes=axes)
        scale = 1 if asked.direction == _FORWARD else math.prod(n)
    elif np.issubdtype(kinds[0], np.complexfloating):
        made, scale = np.fft.irfftn(source.astype(np.complex128), n, axes), math.prod(n)
    else:
        made, scale = np.fft.rfftn(source.astype(np.float64), n, axes), 1
    target[...] = made * scale


def _values(
    plan: Request, asked: Request, side: str, kinds: tuple[type, type], half: tuple[int, ...]
) -> tuple[np.ndarray, queues.Box]:
    """The elements of one side (batch, *sizes), and the bytes from the first to the last one (cuFFT, "Data Layout").

    In place, rows of real numbers are as long as those of the complex numbers that they become.
    """
    kind, n = np.dtype(kinds[side == "output"]), tuple(plan.sizes[: plan.rank])
    is_mixed = kinds[0] != kinds[1]
    shape = half if is_mixed and np.issubdtype(kind, np.complexfloating) else n
    if plan.is_embedded:
        rows = tuple(getattr(plan, f"{side}_embedding")[: plan.rank])
        stride, distance = getattr(plan, f"{side}_stride"), getattr(plan, f"{side}_distance")
    else:
        is_padded = is_mixed and shape == n and asked.input == asked.output and shape != half
        rows = (*n[:-1], 2 * half[-1]) if is_padded else shape
        stride, distance = 1, math.prod(rows)
    steps = [distance, *(stride * math.prod(rows[axis + 1 :]) for axis in range(plan.rank))]
    dimensions = (plan.batch, *shape)
    count = 1 + sum((size - 1) * step for size, step in zip(dimensions, steps))
    address, nbytes = getattr(asked, side), count * kind.itemsize
    flat = current().view(address, nbytes, "load" if side == "input" else "store")  # type: ignore[union-attr]
    values = np.ndarray(dimensions, kind, flat, 0, tuple(step * kind.itemsize for step in steps))
    return values, queues.run_of(address, nbytes)
