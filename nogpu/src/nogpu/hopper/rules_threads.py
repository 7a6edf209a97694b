"""Rules for barriers and for the end of threads, which must not count extra warps."""

from __future__ import annotations

from nogpu.hopper.context import ARRIVED, CONTROL, EXIT, PHASE, Context
from nogpu.hopper.statements import Block, Statement


def cluster_arrive(statement: Statement, context: Context) -> str | None:
    """Lower barrier.cluster.arrive: beside extra warps, each warp arrives on every CTA's Control."""
    if not context.extra:
        return None
    block = Block()
    _arrive(block, context.ctas, "arrive")
    block.add(f"mov.b32 {ARRIVED}, 1;")
    return block.text(statement)


def _arrive(block: Block, ctas: int, operation: str) -> None:
    """Add an operation, "arrive" or "arrive_drop", of each warp on every CTA's Control."""
    elected, remote = block.register("pred"), block.register()
    block.add("bar.warp.sync -1;")
    block.add(f"elect.sync _|{elected}, -1;")
    for rank in range(ctas):
        block.add(f"mapa.shared::cluster.u32 {remote}, {CONTROL}, {rank};")
        block.add(f"@{elected} mbarrier.{operation}.release.cluster.shared::cluster.b64 _, [{remote}];")


def leave_cluster(block: Block, ctas: int) -> None:
    """Add a warp's last arrival, after which cluster barriers do not expect it (PTX ISA, "barrier.cluster").

    A warp that has arrived without waiting has arrived for this barrier, and leaves after it.
    """
    done, arrived = block.register("pred"), block.register("pred")
    block.add(f"setp.ne.b32 {arrived}, {ARRIVED}, 0;")
    block.add("$hopper_last_wait:")
    block.add(f"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 {done}, [{CONTROL}], {PHASE};")
    block.add(f"not.pred {done}, {done};")
    block.add(f"and.pred {done}, {done}, {arrived};")
    block.add(f"@{done} bra $hopper_last_wait;")
    _arrive(block, ctas, "arrive_drop")


def cluster_wait(statement: Statement, context: Context) -> str | None:
    """Lower barrier.cluster.wait: beside extra warps, a wait on the barrier of the CTA's own Control."""
    if not context.extra:
        return None
    block = Block()
    done = block.register("pred")
    again = f"$hopper_wait_{statement.parsed.place.start}"
    block.add(f"{again}:")
    block.add(f"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 {done}, [{CONTROL}], {PHASE};")
    block.add(f"@!{done} bra {again};")
    block.add(f"xor.b32 {PHASE}, {PHASE}, 1;")
    block.add(f"mov.b32 {ARRIVED}, 0;")
    return block.text(statement)


def cta_barrier(statement: Statement, context: Context) -> str | None:
    """Lower bar.sync and barrier.sync: beside extra warps, they count the kernel's own threads only.

    Raises EmulatorError for .red.
    """
    if not context.extra:
        return None
    if ".red" in statement.opcode:
        raise context.refuse(statement, "the extra warps would take part in it")
    if len(statement.operands) > 1:
        return None
    return f"{statement.guard} {statement.opcode} {statement.operands[0]}, {context.threads};"


def leave(statement: Statement, context: Context) -> str | None:
    """Lower ret and exit: beside extra warps, a branch to the common end."""
    return f"{statement.guard} bra {EXIT};" if context.extra else None


def set_registers(statement: Statement, context: Context) -> str | None:
    """Lower setmaxnreg: dropped beside extra warps, whose registers are not in the kernel's budget."""
    return "" if context.extra else None
