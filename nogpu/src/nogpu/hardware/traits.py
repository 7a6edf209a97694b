"""Features of a whole kernel that rules of order depend on."""

from __future__ import annotations

from dataclasses import dataclass

from nogpu.ptx.ir import Entry

_READERS = ("tcgen05.mma", "tcgen05.cp.", "cp.async.bulk.", "cp.reduce.async.bulk.")


@dataclass(frozen=True)
class Traits:
    """Features that a kernel uses anywhere."""

    tensor_fences: bool  # the kernel has a tcgen05.fence
    async_reads: bool  # the kernel has an instruction by which the async proxy reads shared memory

    @staticmethod
    def of(entry: Entry) -> Traits:
        """Features of an entry with its calls expanded."""
        opcodes = {instruction.opcode for instruction in entry.instructions}
        return Traits(
            any(opcode.startswith("tcgen05.fence") for opcode in opcodes),
            any(opcode.startswith(_READERS) and _reads_shared(opcode) for opcode in opcodes),
        )


def _reads_shared(opcode: str) -> bool:
    """True if a reader's source is shared memory. Copies name their destination's space before their source's."""
    sources = ".global.shared::cta", ".shared::cluster.shared::cta"
    return opcode.startswith("tcgen05.") or any(source in opcode for source in sources)
