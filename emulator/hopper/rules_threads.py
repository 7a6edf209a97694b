"""Rules for barriers and for the end of threads: extra warps must not count in either."""

from __future__ import annotations

from emulator.hopper.context import CONTROL, EXIT, PHASE, Context
from emulator.hopper.statements import Block, Statement


def cluster_arrive(statement: Statement, context: Context) -> str | None:
    """barrier.cluster.arrive: beside extra warps, an arrival of each warp on every CTA's Control."""
    if not context.extra:
        return None
    block = Block()
    elected, remote = block.register("pred"), block.register()
    block.add("bar.warp.sync -1;")
    block.add(f"elect.sync _|{elected}, -1;")
    for rank in range(context.ctas):
        block.add(f"mapa.shared::cluster.u32 {remote}, {CONTROL}, {rank};")
        block.add(f"@{elected} mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{remote}];")
    return block.text(statement)


def cluster_wait(statement: Statement, context: Context) -> str | None:
    """barrier.cluster.wait: beside extra warps, a wait on the own Control's barrier."""
    if not context.extra:
        return None
    block = Block()
    done = block.register("pred")
    again = f"$hopper_wait_{statement.parsed.place.start}"
    block.add(f"{again}:")
    block.add(f"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 {done}, [{CONTROL}], {PHASE};")
    block.add(f"@!{done} bra {again};")
    block.add(f"xor.b32 {PHASE}, {PHASE}, 1;")
    return block.text(statement)


def cta_barrier(statement: Statement, context: Context) -> str | None:
    """bar.sync and barrier.sync: beside extra warps, for the kernel's own threads. EmulatorError for .red."""
    if not context.extra:
        return None
    if ".red" in statement.opcode:
        raise context.refuse(statement, "the extra warps would take part in it")
    if len(statement.operands) > 1:
        return None
    return f"{statement.guard} {statement.opcode} {statement.operands[0]}, {context.threads};"


def leave(statement: Statement, context: Context) -> str | None:
    """ret and exit: beside extra warps, a branch to the common end."""
    return f"{statement.guard} bra {EXIT};" if context.extra else None


def set_registers(statement: Statement, context: Context) -> str | None:
    """setmaxnreg: dropped beside extra warps, whose registers the kernel's budget does not include."""
    return "" if context.extra else None
