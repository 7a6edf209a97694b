"""Static report on the compiled kernel: what its plan, ptxas and the machine code say of every configuration; no GPU.

    python report.py                 the tables (`make report` also sets up what it needs)
    python report.py --keep FOLDER   keep PTX, cubin and SASS of each configuration as well

Configurations are the kernel's token tiles, CTA groups, CTAs per SM and shares of K for one product at CONTEST_GROUPS
groups and for two at one, and for every CTA group and number of shares the most groups that a launch takes. A line names
groups, products, tokens of a tile, CTAs per MMA, CTAs per SM and shares of K. Where each figure comes from:

    SMEM, stages        the plan (`submission.Plan`): dynamic SMEM in bytes per CTA / the most that it may ask for
    TMEM                32-bit columns, used by the plan / allocated by the PTX's tcgen05.alloc
    parameters          bytes that the PTX entry's .param declarations span, as PTX aligns them / the plan's limit
    registers, stack,   `ptxas -v` for ARCH: 32-bit registers per thread, bytes of stack per thread, bytes of spill
    spills              stores / loads (static, over the whole kernel)
    local               LDL and STL instructions in the SASS, whatever they are for
    compile s           wall seconds of cute.compile, tracing to machine code; the first includes the DSL's warm-up
    SASS, loops         nvdisasm on the DSL's own cubin, the one that a launch loads; padding at the end left out
    same code           whether ptxas here made the very machine code of that cubin. Where it did not, registers and
                        spills are another compiler's. nvidia-cuda-nvcc-cu12 12.9.86 makes the same code as
                        nvidia-cutlass-dsl 4.5.2 and 4.8.1, which bring ptxas 12.9.83 inside; ptxas 13 does not.

A main loop is the innermost region between a label and a branch back to it that contains TMA loads (load role) or
block-scaled MMAs (MMA role). Its counts are static: predicated and skipped instructions count, the retry of a wait,
which ptxas puts outside of the loop, does not. The source does not unroll it, so one iteration is one k-tile.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")  # read when the DSL is imported; its default is the GPU that is there

import submission  # noqa: E402
from emulator.ptx.module import parse  # noqa: E402

ARCH = "sm_100a"
CONTEST_GROUPS = 8  # the most groups of a contest case
CALL_GROUPS = {1: CONTEST_GROUPS, 2: 1}  # by products: the most groups that a contest's call has
ROLES = {"load": ("UTMALDG",), "MMA": ("UTCOMMA", "UTCQMMA")}  # role -> SASS opcodes that only its main loop has
LOCAL = ("LDL", "STL")
WHEELS = {"ptxas": "nvidia-cuda-nvcc-cu12", "nvdisasm": "nvidia-cuda-nvdisasm"}  # of the extra "report"


class ReportError(Exception):
    """A tool is missing or refuses its input."""


# ----------------------------------------------------------------------------------------------------------------------
# Compiling
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compiled:
    """What the DSL made of a plan."""

    plan: submission.Plan
    ptx: str
    cubin: bytes
    seconds: float  # wall time of cute.compile

    @property
    def parameter_bytes(self) -> int:
        """Size of the packed parameters (PTX ISA, "Kernel Function Parameters")."""
        (entry,) = parse(self.ptx).entries.values()
        return entry.param_offsets()[""]

    @property
    def tmem_allocated(self) -> list[int]:
        """Columns of each tcgen05.alloc (PTX ISA, "tcgen05.alloc")."""
        return [int(columns) for columns in re.findall(r"tcgen05\.alloc\S+ \[\S+\], (\d+);", self.ptx)]


def configurations() -> list[submission.Plan]:
    """Every shape of the kernel: of a GEMM at CONTEST_GROUPS, of a dual GEMM, which comes without groups, at one.

    Then the largest launches of both, of the widest tile for each CTA group and number of shares of K.
    """
    plans, largest = [], {}
    for products, groups in CALL_GROUPS.items():
        for shape in submission.shapes(products):
            plans.append(submission.Plan(groups, *shape, products))
            # Tiles come in ascending order.
            if plans[-1].ctas_per_sm == 1:
                largest[products, *shape[1:]] = submission.Plan(submission.max_groups(products), *shape, products)
    return plans + list(largest.values())


@contextlib.contextmanager
def kept_artifacts() -> Iterator[None]:
    """Calls of cute.compile meanwhile keep PTX and cubin; its own options, shared by all other calls, stay as they are."""
    from cutlass import cute
    from cutlass.base_dsl.compiler import DumpDir, KeepCUBIN, KeepPTX

    before = cute.compile
    with tempfile.TemporaryDirectory(prefix="report-") as folder:
        cute.compile = before[KeepPTX, KeepCUBIN, DumpDir(folder)]
        try:
            yield
        finally:
            cute.compile = before


def compile_plan(plan: submission.Plan) -> Compiled:
    """Compile exactly what `solve` would launch, past its cache; needs no GPU."""
    with kept_artifacts():
        start = time.perf_counter()
        artifacts = submission.compiled.__wrapped__(plan).artifacts
        seconds = time.perf_counter() - start
    # 4.5.2 hands the PTX over with the terminating NUL of a C string.
    return Compiled(plan, artifacts.PTX.rstrip("\0"), artifacts.CUBIN, seconds)


# ----------------------------------------------------------------------------------------------------------------------
# NVIDIA's tools
# ----------------------------------------------------------------------------------------------------------------------


def installed(tool: str) -> list[str]:
    """Paths of a tool: in NVIDIA's wheels, those of CUDA 12 before those of CUDA 13, then on PATH."""
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec is not None else ()
    wheels = [path for folder in folders for path in Path(folder).glob(f"*/bin/{tool}")]
    on_path = shutil.which(tool)
    return [str(path) for path in sorted(wheels, key=lambda path: path.parts[-3] != "cuda_nvcc")] + [
        path for path in (on_path,) if path
    ]


def required(tool: str) -> list[str]:
    """The same, or ReportError where there is none."""
    found = installed(tool)
    if not found:
        raise ReportError(
            f"{tool} is neither in site-packages nor on PATH; `pip install '.[report]'` brings it ({WHEELS[tool]})"
        )
    return found


@dataclass(frozen=True)
class Assembled:
    """What `ptxas -v` says of a kernel; registers and stack are of the function that needs most, spills are sums."""

    ptxas: str  # path
    cubin: bytes
    registers: int  # 32-bit, per thread
    stack_bytes: int  # per thread
    spill_store_bytes: int
    spill_load_bytes: int
    warnings: tuple[str, ...]


def assemble(ptx: str) -> Assembled:
    """Run the first ptxas that knows the PTX's version, at its default -O3, which is the DSL's level too.

    Raises ReportError with ptxas's message where it refuses the PTX.
    """
    refusals = []
    for ptxas in required("ptxas"):
        with tempfile.TemporaryDirectory(prefix="report-") as folder:
            source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
            source.write_text(ptx)
            command = [ptxas, "-v", f"-arch={ARCH}", str(source), "-o", str(target)]
            result = subprocess.run(command, capture_output=True, text=True)
            log = result.stdout + result.stderr
            if result.returncode == 0:
                return _assembled(ptxas, log, target.read_bytes())
        if "Unsupported .version" not in log:
            raise ReportError(f"{ptxas} refuses the PTX:\n{log.strip()}")
        refusals.append(f"{ptxas}: {log.strip().splitlines()[0].rpartition('fatal')[2].strip(' :')}")
    raise ReportError("no ptxas knows this PTX version:\n" + "\n".join(refusals))


def _assembled(ptxas: str, log: str, cubin: bytes) -> Assembled:
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", log)]
    memory = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if not registers or not memory:
        raise ReportError(f"{ptxas} -v does not say what it used:\n{log.strip()}")
    stack, stores, loads = zip(*(map(int, line) for line in memory))
    warnings = tuple(line.strip() for line in log.splitlines() if "warning" in line.lower())
    return Assembled(ptxas, cubin, max(registers), max(stack), sum(stores), sum(loads), warnings)


def release(tool: str) -> str:
    """CUDA release of a tool, "12.9.86"."""
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V([\d.]+)", version)[1]


def machine_code(cubin: bytes) -> bytes:
    """The .text sections of a cubin, an ELF64 file (System V ABI, "Object Files"), without what only names them."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + size * index) for index in range(count)]
    strings = headers[names][4]
    return b"".join(
        cubin[offset : offset + length]
        for name, _, _, _, offset, length in headers
        if cubin[strings + name :].startswith(b".text.")
    )


# ----------------------------------------------------------------------------------------------------------------------
# SASS
# ----------------------------------------------------------------------------------------------------------------------

_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);|^(\.L_\w+):", re.M)


@dataclass(frozen=True)
class Sass:
    """Instructions of a cubin in address order."""

    text: str
    opcodes: tuple[str, ...]  # with modifiers: "UTMALDG.2D"
    operands: tuple[str, ...]
    labels: dict[str, int]  # label -> index of the instruction behind it

    def counts(self, start: int = 0, end: int | None = None) -> Counter[str]:
        """Opcodes without modifiers in [start, end)."""
        return Counter(opcode.partition(".")[0] for opcode in self.opcodes[start:end])

    def main_loops(self, opcodes: tuple[str, ...]) -> list[Counter[str]]:
        """Counts of the innermost loops that contain one of the opcodes, in address order."""
        ends: dict[int, int] = {}  # start of a loop -> its last branch back
        for index, (opcode, operands) in enumerate(zip(self.opcodes, self.operands)):
            target = re.search(r"`\((\.L_\w+)\)", operands)
            if opcode.partition(".")[0] == "BRA" and target and self.labels[target[1]] < index:
                ends[self.labels[target[1]]] = index
        wanted = [i for i, opcode in enumerate(self.opcodes) if opcode.partition(".")[0] in opcodes]
        innermost = set()
        for index in wanted:
            around = [(end - start, start, end) for start, end in ends.items() if start <= index <= end]
            if around:
                innermost.add(min(around)[1:])
        return [self.counts(start, end + 1) for start, end in sorted(innermost)]


def disassemble(cubin: bytes) -> Sass:
    """nvdisasm's listing of the code in a cubin, taken apart."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        result = subprocess.run([required("nvdisasm")[0], "-c", file.name], capture_output=True, text=True)
    if result.returncode:
        raise ReportError(f"nvdisasm refuses the cubin: {result.stderr.strip()}")
    return read_sass(result.stdout)


def read_sass(listing: str) -> Sass:
    opcodes, operands, labels = [], [], {}
    for opcode, rest, label in _LINE.findall(listing):
        if label:
            labels[label] = len(opcodes)
        else:
            opcodes.append(opcode)
            operands.append(rest)
    while opcodes and opcodes[-1] == "NOP":  # padding; the NOPs between instructions take their issue slots
        del opcodes[-1], operands[-1]
    return Sass(listing, tuple(opcodes), tuple(operands), labels)


# ----------------------------------------------------------------------------------------------------------------------
# The tables
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One configuration and all that is known of it."""

    compiled: Compiled
    assembled: Assembled
    sass: Sass  # of the DSL's cubin

    @property
    def name(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.configuration.items())

    @property
    def configuration(self) -> dict[str, str]:
        """The plan, as the table's first columns name it."""
        plan = self.compiled.plan
        return {
            "groups": f"{plan.groups}",
            "products": f"{plan.products}",
            "tokens": f"{plan.token_tile}",
            "CTAs per MMA": f"{plan.cta_group}",
            "per SM": f"{plan.ctas_per_sm}",
            "shares of K": f"{plan.k_split}",
        }

    @property
    def figures(self) -> dict[str, str]:
        plan, assembled = self.compiled.plan, self.assembled
        total = self.sass.counts()
        tmem_used = plan.weight_sf_column + plan.sf_columns
        return {
            "SMEM": f"{plan.at.end}/{plan.smem_capacity}",
            "stages": f"{plan.stages}",
            "TMEM": f"{tmem_used}/{','.join(map(str, self.compiled.tmem_allocated))}",
            "parameters": f"{self.compiled.parameter_bytes}/{submission.PARAMETER_BYTES}",
            "registers": f"{assembled.registers}",
            "spills": f"{assembled.spill_store_bytes}/{assembled.spill_load_bytes}",
            "stack": f"{assembled.stack_bytes}",
            "local": f"{sum(total[opcode] for opcode in LOCAL)}",
            "compile s": f"{self.compiled.seconds:.2f}",
            "SASS": f"{total.total()}",
            **{
                f"{role} loop": ", ".join(str(loop.total()) for loop in self.sass.main_loops(opcodes))
                for role, opcodes in ROLES.items()
            },
            "same code": "yes" if self.same_code else "no",
        }

    @property
    def same_code(self) -> bool:
        return machine_code(self.assembled.cubin) == machine_code(self.compiled.cubin)


def examine(compiled: Compiled) -> Row:
    """Assemble and disassemble one configuration."""
    return Row(compiled, assemble(compiled.ptx), disassemble(compiled.cubin))


def keep(folder: Path, row: Row) -> None:
    plan = row.compiled.plan
    stem = folder / (
        f"groups{plan.groups}-products{plan.products}-tokens{plan.token_tile}-sm{plan.cta_group}"
        f"-residents{plan.ctas_per_sm}-shares{plan.k_split}"
    )
    stem.with_suffix(".ptx").write_text(row.compiled.ptx)
    stem.with_suffix(".cubin").write_bytes(row.compiled.cubin)
    stem.with_suffix(".sass").write_text(row.sass.text)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep PTX, cubin and SASS of each configuration")
    options = parser.parse_args(arguments)
    try:
        for tool in WHEELS:
            required(tool)
        rows = [examine(compile_plan(plan)) for plan in with_progress(configurations())]
    except ReportError as error:
        sys.exit(f"report: {error}")
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        for row in rows:
            keep(options.keep, row)
    show(rows)


def with_progress(plans: list[submission.Plan]) -> Iterable[submission.Plan]:
    """The plans, and a bar on a terminal that says how far it is."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(plans, "compiling", console=console, transient=True, disable=not console.is_terminal)


def show(rows: list[Row]) -> None:
    """Print the tables."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 180, highlight=False)
    for ptxas in sorted({row.assembled.ptxas for row in rows}):
        console.print(f"ptxas {release(ptxas)} for {ARCH}: {ptxas}", soft_wrap=True)
    figures = Table(box=box.SIMPLE_HEAD, title="Configurations", title_justify="left", collapse_padding=True)
    for name in (*rows[0].configuration, *rows[0].figures):
        figures.add_column(name, justify="right", vertical="bottom")
    for row in rows:
        figures.add_row(*row.configuration.values(), *row.figures.values())
    console.print(figures)

    loops = Table(box=box.SIMPLE_HEAD, title="SASS of the main loops, instructions per k-tile", title_justify="left")
    for column in ("role", "configuration", "total", "opcodes"):
        loops.add_column(column, justify="right" if column == "total" else "left", no_wrap=column != "opcodes")
    for role, opcodes in ROLES.items():
        for row in rows:
            for loop in row.sass.main_loops(opcodes):
                names = ", ".join(f"{opcode} {count}" for opcode, count in loop.most_common())
                loops.add_row(role, row.name, str(loop.total()), names)
    console.print(loops)
    for warning in sorted({warning for row in rows for warning in row.assembled.warnings}):
        console.print(warning)


if __name__ == "__main__":
    main()
