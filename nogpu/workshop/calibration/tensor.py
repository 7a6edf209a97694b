"""Constants of the tensor core and tensor memory (sm_100a)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from workshop.calibration.launches import Launch, Measurement, Sizes, cycles_per

SHARED_BYTES = 64 << 10  # tensor.cu's kShared
THREADS = 128
COUNTS = (0, 1, 2, 4, 16, 64)  # MMAs before a commit; the slope gives the interval
# Bits of an instruction descriptor beside M and N (PTX ISA, "Instruction descriptor").
F32_SUMS, S32_SUMS, E8M0_SCALES = 1 << 4, 2 << 4, 1 << 23
KINDS = {
    "f16": F32_SUMS,
    "tf32": F32_SUMS | 2 << 7 | 2 << 10,
    "f8f6f4": F32_SUMS,
    "i8": S32_SUMS | 1 << 7 | 1 << 10,
    "mxf8f6f4": E8M0_SCALES,
    "mxf4": E8M0_SCALES | 1 << 7 | 1 << 10,
    "mxf4nvf4": 1 << 7 | 1 << 10,
}
ACCESSES = (  # tcgen05.ld and st; the last word is their number before a wait
    *("load_8_single", "load_32_single", "load_8_four", "load_32_four"),
    *("store_8_single", "store_32_single", "store_32_four"),
)


def measurements(sizes: Sizes) -> Iterator[Measurement]:
    """Every measurement of this module."""
    rounds = sizes.rounds
    each = cycles_per(rounds)
    counts = COUNTS if rounds > 1 else (0, 2)
    for kind, group, n, count in product(KINDS, (1, 2), (32, 64, 128, 192, 256), counts):
        if group == 1 or n > 32:
            arguments = ("out", rounds, count, KINDS[kind] | n // 8 << 17 | 128 * group // 16 << 24)
            launch = Launch("tensor", f"mma_{kind}_{group}", arguments, group, THREADS, SHARED_BYTES, group)
            name = f"mma.{kind}.{128 * group}x{n}.cta_group_{group}.{count}_in_a_chain"
            yield Measurement(name, "cycles per chain and commit", launch, each)
    for shape, count in product(("scales", "128", "256"), (1, 4, 16)):
        launch = Launch("tensor", f"tensor_copy_{shape}", ("out", rounds, count), 1, THREADS, SHARED_BYTES)
        yield Measurement(f"tensor.copy.{shape}.{count}_in_a_row", "cycles per row and commit", launch, each)
    for kind, warps in product(ACCESSES, (1, 4)):
        launch = Launch("tensor", f"tensor_{kind}", ("out", 4 * rounds), 1, 32 * warps, SHARED_BYTES)
        yield Measurement(f"tensor.{kind}.{warps}_warps", "cycles per access", launch, cycles_per(4 * rounds))
    for columns in (32, 512):
        launch = Launch("tensor", "tensor_alloc", ("out", rounds, columns))
        yield Measurement(f"tensor.alloc_and_dealloc.{columns}", "cycles per pair", launch, each)
