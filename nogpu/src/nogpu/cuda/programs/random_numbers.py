"""The entry point behind cuda_headers/curand.h: pseudorandom numbers with cuRAND's distributions, by NumPy's Philox.

The numbers are not those of cuRAND's generators; equal seeds and offsets give equal numbers.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np

from nogpu import headers
from nogpu.cuda import graphs, queues
from nogpu.cuda.backends import current
from nogpu.cuda.programs import devices, status
from nogpu.cuda.programs.entries import ADDRESS, QUEUE, copied, entry
from nogpu.errors import EmulatorError, Fault

_HEADER = "cuda/programs/cuda_headers/curand.h"
BITS, UNIFORM, NORMAL, LOG_NORMAL, POISSON = headers.constants(
    _HEADER, *(f"EMULATOR_{name}" for name in ("BITS", "UNIFORM", "NORMAL", "LOG_NORMAL", "POISSON"))
)
_FIRST_QUASI_RANDOM = 200  # curandRngType_t


@headers.mirrors(_HEADER, "emulator_random_request", result=ctypes.c_size_t)
class Request(ctypes.Structure):
    """Numbers that a program asks for."""


@entry("emulator_random", ADDRESS, QUEUE)
def random(request: int, queue: int) -> None:
    asked = copied(Request, request)
    if asked.type >= _FIRST_QUASI_RANDOM:
        raise status.Refused(status.NOT_SUPPORTED, "quasirandom generators of cuRAND are not modelled")
    devices.emulated("cuRAND")
    if asked.on_host:
        numbers = _drawn(asked)
        ctypes.memmove(asked.result, numbers.ctypes.data, numbers.nbytes)
    else:
        graphs.submit(functools.partial(_store, asked, queue), queue, graphs.KERNEL)


def _store(asked: Request, queue: int) -> None:
    numbers = _drawn(asked)
    current().finish()
    try:
        target = current().view(asked.result, numbers.nbytes, "store")  # type: ignore[union-attr]
    except Fault as fault:
        raise EmulatorError(f"cuRAND: {fault.reason}") from None
    queues.accessed(queue, "cuRAND", writes=[queues.run_of(asked.result, numbers.nbytes)])
    target[:] = numbers.view(np.uint8)


def _drawn(asked: Request) -> np.ndarray:
    """The numbers from the offset on; uniform ones are above 0, up to 1 (cuRAND, "Generation Functions")."""
    source = np.random.Philox(key=asked.seed)
    source.advance(asked.offset)  # by four 64-bit words a number, which is more than all but a few take
    draw = np.random.Generator(source)
    kind = np.float32 if asked.bytes == 4 else np.float64
    if asked.distribution == BITS:
        return draw.integers(0, 1 << 32, asked.count, np.uint32)
    if asked.distribution == POISSON:
        return draw.poisson(asked.mean, asked.count).astype(np.uint32)
    if asked.distribution == UNIFORM:
        return 1 - draw.random((asked.count,), kind)
    values = asked.mean + asked.deviation * draw.standard_normal(asked.count)
    return (np.exp(values) if asked.distribution == LOG_NORMAL else values).astype(kind)
