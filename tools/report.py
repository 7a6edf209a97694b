"""Prints static figures of the compiled kernel in every configuration: plan, ptxas, machine code; needs no GPU.

    python -m tools.report                 the tables; `make report` sets up the environment first
    python -m tools.report --keep FOLDER   keep PTX, cubin and SASS of each configuration as well

Configurations are the token tiles, CTA groups, CTAs per SM and neighbours of the kernel: for one product at
CONTEST_GROUPS groups, for two products at one group, and, for each CTA group and number of neighbours, at the most
groups of a launch. A line names groups, products, tokens of a tile, CTAs per MMA, CTAs per SM and tiles that a cluster
computes side by side. Sources of the figures:

    SMEM, stages        the plan (`submission.Plan`): dynamic SMEM in bytes per CTA / its limit
    TMEM                32-bit columns, used by the plan / allocated by tcgen05.alloc in the PTX
    parameters          bytes of the PTX entry's .param declarations, aligned as PTX aligns them / a launch's limit
    registers, stack,   `ptxas -v` for sm_100a: 32-bit registers per thread, bytes of stack per thread, bytes of spill
    spills              stores / loads (static, over the whole kernel)
    local               LDL and STL instructions in the SASS, whatever they are for
    compile s           wall seconds of cute.compile, tracing to machine code; the first includes the DSL's warm-up
    SASS, loops         nvdisasm on the DSL's own cubin, which a launch loads; padding at the end is left out
    same code           whether ptxas here makes the machine code of that cubin, byte for byte. If not, registers and
                        spills are those of another compiler. nvidia-cuda-nvcc-cu12 12.9.86 makes the same code as
                        nvidia-cutlass-dsl 4.5.2 and 4.8.1, which contain ptxas 12.9.83; ptxas 13 does not.

A main loop is the innermost region between a label and a branch back to it that contains TMA loads (load role) or
block-scaled MMAs (MMA role). Its counts are static: predicated and skipped instructions count; the retry of a wait does
not, since ptxas places it outside of the loop. The source does not unroll the loop, so one iteration is one k-tile.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import submission
from harness.console import make_console, make_table
from harness.dsl import ARCH
from nogpu.ptx import Entry, parse
from tools import circumstances
from tools.binaries import Assembled, ReportError, assemble, check_installed, disassembly, machine_code, release
from tools.sass import Sass, read_sass
from workshop import records
from workshop.console import command_parser, tracked

CONTEST_GROUPS = 8  # the most groups of a contest case
CALL_GROUPS = {1: CONTEST_GROUPS, 2: 1}  # products -> the most groups of a contest case
ROLES = {"load": ("UTMALDG",), "MMA": ("UTCOMMA", "UTCQMMA")}  # role -> SASS opcodes that only its main loop has
LOCAL = ("LDL", "STL")
PARAMETER_BYTES = 32764  # kernel parameters per launch (PTX ISA, "Kernel Function Parameters")


@dataclass(frozen=True)
class Compiled:
    """The DSL's output for a plan."""

    plan: submission.Plan
    ptx: str
    cubin: bytes
    seconds: float  # wall time of cute.compile

    @cached_property
    def entry(self) -> Entry:
        """The kernel of the PTX."""
        (entry,) = parse(self.ptx).entries.values()
        return entry

    @property
    def parameter_bytes(self) -> int:
        """Size of the packed parameters (PTX ISA, "Kernel Function Parameters")."""
        return self.entry.param_offsets()[""]

    @property
    def tmem_allocated(self) -> list[int]:
        """Columns of each tcgen05.alloc (PTX ISA, "tcgen05.alloc")."""
        return [int(columns) for columns in re.findall(r"tcgen05\.alloc\S+ \[\S+\], (\d+);", self.ptx)]


def configurations() -> list[submission.Plan]:
    """The plans of every configuration of the kernel, for a GEMM at CONTEST_GROUPS groups and for a dual GEMM at one.

    The largest launches of both follow, with the widest tile for each CTA group and number of neighbours.
    """
    plans: list[submission.Plan] = []
    largest: dict[tuple[int, ...], submission.Plan] = {}
    for products, groups in CALL_GROUPS.items():
        for shape in submission.legal_configurations(products):
            plans.append(submission.Plan(groups, *shape, products))
            if plans[-1].ctas_per_sm == 1:  # tiles come in ascending order, so that the widest stays
                largest[products, *shape[1:]] = submission.Plan(submission.MAX_GROUPS, *shape, products)
    return plans + list(largest.values())


@contextlib.contextmanager
def kept_artifacts() -> Iterator[None]:
    """A context in which cute.compile keeps PTX and cubin. Its options, which all other calls share, are restored."""
    from cutlass import cute
    from cutlass.base_dsl.compiler import DumpDir, KeepCUBIN, KeepPTX

    with tempfile.TemporaryDirectory(prefix="report-") as folder:
        with mock.patch.object(cute, "compile", cute.compile[KeepPTX, KeepCUBIN, DumpDir(folder)]):
            yield


def compile_plan(plan: submission.Plan) -> Compiled:
    """Compile the kernel as `solve` does, without its cache; needs no GPU."""
    with kept_artifacts():
        start = time.perf_counter()
        artifacts = submission.compile_kernel(plan).artifacts
        seconds = time.perf_counter() - start
    # The PTX of nvidia-cutlass-dsl 4.5.2 ends with the NUL of a C string.
    return Compiled(plan, artifacts.PTX.rstrip("\0"), artifacts.CUBIN, seconds)


@dataclass(frozen=True)
class Row:
    """One configuration with all of its figures."""

    compiled: Compiled
    assembled: Assembled
    sass: Sass  # disassembly of the DSL's cubin

    @property
    def name(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.configuration.items())

    @property
    def configuration(self) -> dict[str, str]:
        """The first columns of the table, which name the plan."""
        plan = self.compiled.plan
        return {
            "groups": f"{plan.groups}",
            "products": f"{plan.products}",
            "tokens": f"{plan.token_tile}",
            "CTAs per MMA": f"{plan.cta_group}",
            "per SM": f"{plan.ctas_per_sm}",
            "side by side": f"{plan.neighbours}",
        }

    @cached_property
    def figures(self) -> dict[str, str]:
        """The other columns of the table."""
        plan, assembled = self.compiled.plan, self.assembled
        total = self.sass.counts()
        tmem_used = plan.weight_sf_column + plan.sf_columns
        return {
            "SMEM": f"{plan.at.end}/{plan.smem_capacity}",
            "stages": f"{plan.stages}",
            "TMEM": f"{tmem_used}/{','.join(map(str, self.compiled.tmem_allocated))}",
            "parameters": f"{self.compiled.parameter_bytes}/{PARAMETER_BYTES}",
            "registers": f"{assembled.registers}",
            "spills": f"{assembled.spill_store_bytes}/{assembled.spill_load_bytes}",
            "stack": f"{assembled.stack_bytes}",
            "local": f"{sum(total[opcode] for opcode in LOCAL)}",
            "compile s": f"{self.compiled.seconds:.2f}",
            "SASS": f"{total.total()}",
            **{
                f"{role} loop": ", ".join(str(loop.total()) for loop in loops)
                for role, loops in self.main_loops.items()
            },
            "same code": "yes" if self.same_code else "no",
        }

    @cached_property
    def main_loops(self) -> dict[str, list[Counter[str]]]:
        """Instruction counts of the main loops of each role."""
        return {role: self.sass.main_loops(opcodes) for role, opcodes in ROLES.items()}

    @property
    def same_code(self) -> bool:
        """True if this machine's ptxas makes the machine code of the DSL's cubin."""
        return machine_code(self.assembled.cubin) == machine_code(self.compiled.cubin)


def examine(compiled: Compiled) -> Row:
    """Assemble and disassemble one configuration. Raises ReportError if a tool is missing or refuses it."""
    return Row(compiled, assemble(compiled.ptx), read_sass(disassembly(compiled.cubin)))


def keep(folder: Path, row: Row) -> None:
    """Write PTX, cubin and SASS of a configuration."""
    plan = row.compiled.plan
    stem = folder / (
        f"groups{plan.groups}-products{plan.products}-tokens{plan.token_tile}-sm{plan.cta_group}"
        f"-residents{plan.ctas_per_sm}-neighbours{plan.neighbours}"
    )
    stem.with_suffix(".ptx").write_text(row.compiled.ptx)
    stem.with_suffix(".cubin").write_bytes(row.compiled.cubin)
    stem.with_suffix(".sass").write_text(row.sass.text)


def record(rows: list[Row]) -> dict[str, Any]:
    """All figures of the rows, for --save."""
    return {
        "ptxas": sorted({release(row.assembled.ptxas) for row in rows}),
        "configurations": [{**row.configuration, **row.figures, "loops": row.main_loops} for row in rows],
    }


def show(rows: list[Row]) -> None:
    """Print the tables of configurations and main loops, and ptxas's warnings."""
    console = make_console(190, highlight=False)
    for ptxas in sorted({row.assembled.ptxas for row in rows}):
        console.print(f"ptxas {release(ptxas)} for {ARCH}: {ptxas}", soft_wrap=True)
    names = (*rows[0].configuration, *rows[0].figures)
    figures = make_table([], names, title="Configurations", title_justify="left")
    for column in figures.columns:
        column.vertical = "bottom"
    for row in rows:
        figures.add_row(*row.configuration.values(), *row.figures.values())
    console.print(figures)

    title = "SASS of the main loops, instructions per k-tile"
    loops = make_table(["role", "configuration", "total", "opcodes"], [], title=title, title_justify="left")
    loops.columns[2].justify = "right"
    for column in loops.columns[:3]:
        column.no_wrap = True
    for role in ROLES:
        for row in rows:
            for loop in row.main_loops[role]:
                opcodes = ", ".join(f"{opcode} {count}" for opcode, count in loop.most_common())
                loops.add_row(role, row.name, str(loop.total()), opcodes)
    console.print(loops)
    for warning in sorted({warning for row in rows for warning in row.assembled.warnings}):
        console.print(warning)


def main(arguments: list[str] | None = None) -> None:
    parser = command_parser(__doc__, "tools.report")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep PTX, cubin and SASS of each configuration")
    records.add_save(parser)
    options = parser.parse_args(arguments)
    try:
        check_installed()
        rows = [examine(compile_plan(plan)) for plan in tracked(configurations(), "compiling")]
    except ReportError as error:
        sys.exit(f"tools.report: {error}")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        for row in rows:
            keep(options.keep, row)
    show(rows)
    records.save(options.save, {**circumstances.versions(arguments), **record(rows)})


if __name__ == "__main__":
    main()
