"""The trace of a launch: the instructions and waits of each warp, and the data of its asynchronous operations.

A record is the words of one warp instruction; records of a warp are in the order in which it executed them. The first
word is `pc | n << 24 | part << 23`: the index of the instruction, the number n of operand words that follow, and
`part`, 1 if some of the 32 lanes did not execute it. If no lane did, there are no operands. Of MANY words or more, n is
MANY, and the second word is their number.

"place" is an address in shared memory: offset in the CTA's window, and the CTA's rank in its cluster in bits 24 and up.
Numbers of 64 bits are two words, low first.

Operand words by instruction:

- ld, st, atom, red, cp.async (its source), st.async, red.async, ldmatrix, stmatrix, prefetch: an index of SPACES |
  bytes per lane << 8 | lanes << 16. In global memory follow the touched lines of 128 bytes: the line's number, two
  words, with the mask of its 32-byte sectors in the top four bits. In shared memory follows the number of wavefronts,
  and of another CTA its rank. st.async and red.async end in the mbarrier's place and bytes.
- mbarrier.init: place, count. mbarrier.inval: place.
- mbarrier.arrive, arrive_drop, expect_tx, complete_tx, cp.async.mbarrier.arrive: place, arrivals, bytes that are
  expected in addition, negative for complete_tx. These, init and inval have a group of words for each mbarrier that
  lanes name.
- mbarrier.test_wait, try_wait: place; the phase that has to be over, 0 after initialisation, -1 for the one before;
  1 if it is over, else 0. A loop that does nothing but wait is recorded once, when it is over.
- cp.async.bulk, cp.async.bulk.tensor to shared memory: 1, destination's offset, mbarrier's place, ranks that receive it
  as a mask, 1 with .cta_group::2, number of boxes, boxes.
- Such copies to global memory, cp.reduce.async.bulk: 2, source's offset, 1 for a reduction, number of boxes, boxes.
- cp.async.bulk between CTAs: 3, bytes, destination's place, mbarrier's place.
- cp.async.bulk.prefetch: 4, number of boxes, boxes.
- commit_group, wait_group, wait_all of cp.async and cp.async.bulk: groups that may be pending, 0 for a commit; 1 with
  .read.
- tcgen05.mma: an index of KINDS, M, N, K, cta_group, 1 if A is in tensor memory, 1 if it accumulates. With .ws M is
  128 and N the number of columns that D fills.
- tcgen05.cp: bytes written to the tensor memory of each CTA, cta_group.
- tcgen05.commit: mbarrier's place, ranks that are signalled as a mask, cta_group.
- tcgen05.ld, st: registers per lane, lanes of the shape (32 or 16), 1 for st.
- tcgen05.alloc, dealloc: columns, cta_group.
- bar, barrier with sync, red, arrive: number, threads that take part, 1 for arrive.
- barrier.cluster: 0 for arrive, 1 for wait. griddepcontrol: 0 for wait, 1 for launch_dependents.
- clusterlaunchcontrol.try_cancel: mbarrier's place, number of the cluster whose work is taken over, or NOTHING.
- nanosleep: nanoseconds.
- All others have none.

A box has BOX_WORDS words: bytes that it fills in shared memory; address of its first byte inside of the tensor (two
words); bytes of a row inside of the tensor; for dimensions 1 to 4 the number of rows inside and their distance in bytes
(two words); bytes that it completes on an mbarrier, which leave out the padding of 4- and 6-bit elements. A number of 0
says that nothing is inside. Each lane that issues a copy leaves a record.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from nogpu import headers
from nogpu.clock.dataflow import Flow, flows_of
from nogpu.hardware.properties import Dim3
from nogpu.ptx.ir import Instruction

SPACES = ("global", "shared", "shared of another CTA", "local", "constant")
KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
(BOX_WORDS,) = headers.constants("clock/native/copies.c", "BOX_WORDS")
NOTHING = 0xFFFFFFFF
PC_BITS, PART_BIT, COUNT_SHIFT = 23, 23, 24
MANY = 255
_ARRAYS = ("header", "words", "starts", "params")
_PRESET = 1  # lzma preset: sizes within a few percent of the highest, at ten times its speed
_FIELDS = ("name", "grid", "block", "cluster", "shared_bytes", "registers", "min_ctas", "programmatic", "cooperative")


class Record(NamedTuple):
    """The record of one warp instruction."""

    pc: int
    part: bool
    """True if some lanes did not execute the instruction."""
    words: tuple[int, ...]
    """Operand words."""


@dataclass
class Trace:
    """The trace of one launch."""

    name: str
    """Name of the kernel."""
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    """Bytes of a CTA, static and dynamic."""
    registers: int
    """Registers per thread, by .maxnreg; 0 if unknown."""
    min_ctas: int
    """CTAs per SM, by .minnctapersm; 0 if unknown."""
    programmatic: bool
    """True if the launch may start before the previous one has ended."""
    cooperative: bool
    instructions: list[Instruction]
    """Instructions of the kernel with its calls expanded, by pc. Those of a loaded trace have no operands."""
    words: np.ndarray
    """Records of all warps: uint32."""
    starts: np.ndarray
    """Record places, int64[CTAs, warps + 1]: words[starts[c, w] : starts[c, w + 1]] of warp w of CTA c, x fastest."""
    params: bytes
    """The parameters, as the kernel reads them."""
    known_flows: list[Flow] | None = field(default=None, repr=False)
    """Flows of a trace from a file; see `flows`."""

    @property
    def flows(self) -> list[Flow]:
        """The registers of each instruction, indexed by pc."""
        return flows_of(self.instructions) if self.known_flows is None else self.known_flows

    def records(self, cta: int, warp: int) -> Iterator[Record]:
        """The records of a warp."""
        words = self.words[self.starts[cta, warp] : self.starts[cta, warp + 1]].tolist()
        at = 0
        while at < len(words):
            head, count = words[at], words[at] >> COUNT_SHIFT
            at += 1
            if count == MANY:
                count = words[at]
                at += 1
            yield Record(head & (1 << PC_BITS) - 1, bool(head >> PART_BIT & 1), tuple(words[at : at + count]))
            at += count

    def save(self, path: str | Path | BinaryIO) -> None:
        """Write an .npz file of arrays of compressed bytes."""
        header = {name: getattr(self, name) for name in _FIELDS}
        header["instructions"] = [(i.opcode, i.line, i.text, i.source) for i in self.instructions]
        header["known_flows"] = self.flows
        header["ctas, warps + 1"] = self.starts.shape
        # deflate, zip's own compression, does not see the distances at which warps repeat each other.
        np.savez(
            path,
            header=_packed(json.dumps(header).encode()),
            words=_packed(self.words.tobytes()),
            starts=_packed(self.starts.tobytes()),
            params=_packed(self.params),
        )

    @staticmethod
    def load(path: str | Path) -> Trace:
        """The trace in a file that `save` has written. Raises ValueError for other files."""
        try:
            with np.load(path, allow_pickle=False) as file:
                header, words, starts, params = (lzma.decompress(file[name]) for name in _ARRAYS)
        except (KeyError, TypeError, lzma.LZMAError) as error:
            raise ValueError(f"{path}: no trace of a launch, or of another version: {error}") from error
        fields = json.loads(header)
        found = [Instruction(opcode, (), None, *rest) for opcode, *rest in fields.pop("instructions")]
        shape = fields.pop("ctas, warps + 1")
        for name in ("grid", "block", "cluster"):
            fields[name] = tuple(fields[name])
        fields["known_flows"] = [Flow(tuple(d), tuple(u), special) for d, u, special in fields["known_flows"]]
        return Trace(
            **fields,
            instructions=found,
            words=np.frombuffer(words, np.uint32),
            starts=np.frombuffer(starts, np.int64).reshape(shape),
            params=params,
        )


def _packed(data: bytes) -> np.ndarray:
    """The bytes, compressed: uint8."""
    return np.frombuffer(lzma.compress(data, preset=_PRESET), np.uint8)
