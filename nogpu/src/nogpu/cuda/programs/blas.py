"""The entry point behind cuda_headers/cublas_v2.h and cublasLt.h: products, sums and reductions of matrices, by NumPy.

Products are added in float32, those of 64-bit and complex operands in their own precision, those of integers exactly,
and rounded once, to the type of the result. In which order cuBLAS adds is not documented.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from nogpu import headers
from nogpu.cuda import graphs, queues
from nogpu.cuda.backends import current
from nogpu.cuda.programs import devices, status
from nogpu.cuda.programs.entries import ADDRESS, QUEUE, copied, entry
from nogpu.errors import EmulatorError, Fault

_HEADER = "cuda/programs/cuda_headers/cublas_v2.h"
MULTIPLY, ADD, NORM, ABSOLUTE_SUM, LARGEST, SMALLEST = headers.constants(
    _HEADER, *(f"EMULATOR_{name}" for name in ("MULTIPLY", "ADD", "NORM", "ABSOLUTE_SUM", "LARGEST", "SMALLEST"))
)
"""D = alpha A B + beta C; D = alpha A + beta C; the root of A B; the sum of |A|; the place, from 1, of the largest and
of the smallest |A|.
"""
RELU, GELU = 1, 2
_TYPES: dict[int, Any] = {  # cudaDataType (library_types.h)
    0: np.float32, 1: np.float64, 2: np.float16, 3: np.int8, 4: np.complex64, 5: np.complex128, 8: np.uint8,
    10: np.int32, 14: ml_dtypes.bfloat16, 28: ml_dtypes.float8_e4m3fn, 29: ml_dtypes.float8_e5m2,
}  # fmt: skip
_WIDE = (np.float64, np.complex64, np.complex128)


@headers.mirrors(_HEADER, "emulator_blas_operand", address=ctypes.c_size_t)
class Operand(ctypes.Structure):
    """A batch of matrices: their address, or with `pointers` that of their addresses; steps in elements."""


@headers.mirrors(
    _HEADER,
    "emulator_blas_problem",
    **dict.fromkeys(("a", "b", "c", "d", "bias"), Operand),
    **dict.fromkeys(("alpha", "beta", "scale_a", "scale_b"), ctypes.c_size_t),
)
class Problem(ctypes.Structure):
    """A is (m, k), B (k, n), C and D (m, n), a bias (m, n)."""


class _Matrix(NamedTuple):
    """Matrices in memory, (batch, rows, columns), and the allocation's bytes under the first to the last element."""

    values: np.ndarray
    address: int
    nbytes: int


@entry("emulator_blas", ADDRESS, QUEUE)
def blas(problem: int, queue: int) -> None:
    asked = copied(Problem, problem)
    devices.emulated("cuBLAS")
    # Scalars on the host are read now, since the call may be captured in a graph.
    host = {address: _scalar(asked, address) for address in (asked.alpha, asked.beta) if not _on_device(address)}
    graphs.submit(functools.partial(_run, asked, host, queue), queue, graphs.KERNEL)


def _run(asked: Problem, host: dict[int, Any], queue: int) -> None:
    """Compute. Raises EmulatorError, as a kernel does, for an access outside of allocations."""
    current().finish()
    try:
        _compute(asked, host, queue)
    except Fault as fault:
        raise EmulatorError(f"cuBLAS: {fault.reason}") from None


def _on_device(address: int) -> bool:
    return current().allocation(address) is not None


def _type(number: int) -> Any:
    if number not in _TYPES:
        raise status.Refused(status.NOT_SUPPORTED, f"cudaDataType {number} is not modelled")
    return np.dtype(_TYPES[number])


def _at(address: int, count: int, kind: np.dtype, access: str) -> np.ndarray:
    """Elements of device memory. Raises Fault for a bad access."""
    return current().view(address, count * kind.itemsize, access).view(kind)  # type: ignore[union-attr]


def _scalar(asked: Problem, address: int) -> Any:
    """A scalar of the host's or the device's memory; None for a null pointer."""
    kind = _type(asked.scale_type)
    if not address:
        return None
    if _on_device(address):
        return _at(address, 1, kind, "load")[0]
    return np.frombuffer(ctypes.string_at(address, kind.itemsize), kind)[0]


def _matrix(operand: Operand, rows: int, columns: int, batch: int, access: str) -> _Matrix:
    kind, steps = _type(operand.type), (operand.batch, operand.row, operand.column)
    if min(steps) < 0:
        raise status.Refused(status.NOT_SUPPORTED, "negative steps between elements are not modelled")
    shape = batch, rows, columns
    count = 1 + sum((length - 1) * step for length, step in zip(shape, steps))
    elements = _at(operand.address, count, kind, access)
    values = np.lib.stride_tricks.as_strided(elements, shape, [step * kind.itemsize for step in steps])
    return _Matrix(values, operand.address, count * kind.itemsize)


def _compute(asked: Problem, host: dict[int, Any], queue: int) -> None:
    if not asked.pointers:
        _compute_batch(asked, host, queue)
        return
    lists = {
        name: _at(operand.address, asked.batch, np.dtype(np.uint64), "load")
        for name in "abcd"
        if (operand := getattr(asked, name)).address
    }
    for number in range(asked.batch):
        one = Problem.from_buffer_copy(asked)
        one.pointers, one.batch = 0, 1
        for name, addresses in lists.items():
            getattr(one, name).address = int(addresses[number])
        _compute_batch(one, host, queue)


def _compute_batch(asked: Problem, host: dict[int, Any], queue: int) -> None:
    m, n, k, batch = asked.m, asked.n, asked.k, asked.batch
    if not min(m, n, batch):
        return
    alpha, beta = (host[at] if at in host else _scalar(asked, at) for at in (asked.alpha, asked.beta))
    operation = asked.operation
    k = n if operation == ADD else k
    read: list[_Matrix] = []

    def operand(name: str, rows: int, columns: int) -> np.ndarray:
        matrix = _matrix(getattr(asked, name), rows, columns, batch, "load")
        read.append(matrix)
        kind = matrix.values.dtype
        # Sums of products of integers are exact in float64.
        wide = np.float64 if np.issubdtype(kind, np.integer) else kind if kind.type in _WIDE else np.float32
        values = matrix.values.astype(wide)
        return values.conj() if getattr(asked, name).conjugated else values

    a = operand("a", m, k) if k else None
    found: Any
    if operation in (MULTIPLY, NORM):
        found = np.matmul(a, operand("b", k, n)) if a is not None else np.zeros((batch, m, n), np.float32)
        found = np.sqrt(found.real) if operation == NORM else found
    elif operation == ADD:
        found = a
    elif a is None:  # no element: the sum and the place are 0
        found = np.zeros((1, 1, 1))
    else:
        sizes = np.abs(a.real) + np.abs(a.imag)
        place = {LARGEST: np.argmax, SMALLEST: np.argmin}.get(operation)
        found = (place(sizes) + 1 if place else sizes.sum()) * np.ones((1, 1, 1))
    for scale in (asked.scale_a, asked.scale_b):
        if scale:
            found = found * _at(scale, 1, np.dtype(np.float32), "load")[0]
    if alpha is not None and alpha != 1:
        found = found * _wide(alpha)
    if beta is not None and beta != 0:  # with 0, what C holds does not count, NaN included
        found = found + _wide(beta) * operand("c", m, n)
    if asked.bias.address:
        found = found + operand("bias", m, n)
    if asked.activation & RELU:
        found = np.maximum(found, 0)
    if asked.activation & GELU:
        found = 0.5 * found * (1 + np.tanh(np.sqrt(2 / np.pi) * (found + 0.044715 * found**3)))
    _store(asked, found, read, queue)


def _wide(scalar: Any) -> Any:
    return scalar if type(scalar) in _WIDE or isinstance(scalar, np.integer) else np.float32(scalar)


def _store(asked: Problem, found: np.ndarray, read: list[_Matrix], queue: int) -> None:
    """Write D, which is on the device; what a reduction gives may be on the host, which waits for it then."""
    kind = _type(asked.d.type)
    if np.issubdtype(kind, np.integer):
        limits = np.iinfo(kind)
        found = np.clip(np.rint(found), limits.min, limits.max)
    reads = [queues.run_of(matrix.address, matrix.nbytes) for matrix in read]
    is_reduction = asked.m == asked.n == 1 and not asked.c.address
    if is_reduction and asked.d.address and not _on_device(asked.d.address):
        queues.accessed(queue, "cuBLAS", reads)
        queues.waited(queue)
        ctypes.memmove(asked.d.address, found.astype(kind).tobytes(), kind.itemsize)
        return
    result = _matrix(asked.d, asked.m, asked.n, asked.batch, "store")
    queues.accessed(queue, "cuBLAS", reads, [queues.run_of(result.address, result.nbytes)])
    result.values[...] = found.astype(kind)
