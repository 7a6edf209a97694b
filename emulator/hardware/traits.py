"""What a kernel as a whole uses, where rules depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.ptx.ir import Entry

_READERS = ("tcgen05.mma", "tcgen05.cp.", "cp.async.bulk.", "cp.reduce.async.bulk.")


@dataclass(frozen=True)
class Traits:
    """tensor_fences: there is a tcgen05.fence. async_reads: the async proxy may read shared memory."""

    tensor_fences: bool
    async_reads: bool

    @staticmethod
    def of(entry: Entry) -> Traits:
        opcodes = {instruction.opcode for instruction in entry.instructions}
        return Traits(
            any(opcode.startswith("tcgen05.fence") for opcode in opcodes),
            any(opcode.startswith(_READERS) and _reads_shared(opcode) for opcode in opcodes),
        )


def _reads_shared(opcode: str) -> bool:
    """Copies name their destination's space before their source's."""
    sources = ".global.shared::cta", ".shared::cluster.shared::cta"
    return opcode.startswith("tcgen05.") or any(source in opcode for source in sources)
