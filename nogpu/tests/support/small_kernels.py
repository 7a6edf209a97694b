"""Small PTX kernels for the emulator's tests: a header, a body, and arrays as parameters."""

import re

import numpy as np

from nogpu.compiler import stored, translate
from nogpu.execution.meter import MAX_INSTRUCTIONS, Meter, Tally
from nogpu.execution.runs import run_grids
from nogpu.hardware.async_operations import Schedule
from nogpu.hardware.counters import LaunchCounters
from nogpu.hardware.grid import Grid
from nogpu.hardware.memory import GlobalMemory
from nogpu.hardware.properties import LaunchConfig
from nogpu.hardware.variables import module_memory
from nogpu.ptx import module as ptx
from tests.support.calls import called

BEGIN = """
    .reg .b32 %tid, %rank;
    mov.u32 %tid, %tid.x;
    mov.u32 %rank, %cluster_ctarank;
"""
FAMILIES = {"p": ("pred", 20), "h": ("b16", 40), "r": ("b32", 80), "rd": ("b64", 40)}
"""Letters of registers that a body may use: their type, and how many there are."""
_NAMES = re.compile(r"%(p|h|r|rd)(\d+)\b")


def _registers(body):
    """Declarations of the families up to the last register that a body names: all that is declared costs time."""
    counts = dict.fromkeys(FAMILIES, 0)
    for family, number in set(_NAMES.findall(body)):
        counts[family] = max(counts[family], int(number) + 1)
    sizes = {family: min(count, FAMILIES[family][1]) for family, count in counts.items() if count}
    return " ".join(f".reg .{FAMILIES[family][0]} %{family}<{size}>;" for family, size in sizes.items())


def module(body, arguments=1, declarations=""):
    """PTX with entry `k` and parameters a0, a1, ... (pointers, loaded into %a0, %a1, ...)."""
    parameters = ", ".join(f".param .u64 a{i}" for i in range(arguments))
    loads = "".join(f"    .reg .b64 %a{i}; ld.param.b64 %a{i}, [a{i}];\n" for i in range(arguments))
    return (
        ".version 8.8\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
        f"{declarations}\n.visible .entry k({parameters})\n{{\n{_registers(body)}{BEGIN}{loads}{body}\n    ret;\n}}\n"
    )


def entry(body, arguments=1, declarations=""):
    return ptx.parse(module(body, arguments, declarations)).entries["k"]


def launch(body, *arrays, declarations="", threads=32, block=None, **options):
    """Run a body with the arrays' addresses as parameters. Returns the launch's counters.

    options: keyword arguments of launch_entry.
    """
    # Tests run one body under several schedules: a long one is translated once, and kept for the next session.
    kernel = stored.module(module(body, len(arrays), declarations)).entries["k"]
    return launch_entry(kernel, addresses(arrays), arrays, block=block or (threads, 1, 1), **options)


def addresses(arrays):
    """The values of parameters that point at arrays."""
    return [array.ctypes.data.to_bytes(8, "little") for array in arrays]


def launch_entry(
    kernel,
    values,
    arrays,
    block=(32, 1, 1),
    grid=1,
    cluster=1,
    shared=4096,
    schedule="late",
    properties=None,
    max_instructions=MAX_INSTRUCTIONS,
    traffic=None,
    sanitizer=None,
    kernels=True,
    program=None,
    **translation,
):
    """Run an entry. Returns the launch's counters.

    values: bytes of each parameter. arrays: global memory. traffic: a Traffic that counts it. kernels: False has
    Python execute what it can (`calls.called`). program: the entry's translation, if there is one. translation: further
    arguments of translate.translate.
    """
    if program is None:
        with called(not kernels):
            program = translate.translate(kernel, follows_registers=sanitizer is not None, **translation)
    memory = GlobalMemory()
    for i, array in enumerate(arrays):
        memory.register(array.ctypes.data, array.nbytes, f"a{i}")
    module_memory(kernel.scope).register(memory)
    packed = kernel.pack(values)
    parameters = aligned(np.frombuffer(packed, np.uint8), 128)
    memory.register(parameters.ctypes.data, max(len(packed), 1), "parameters")
    memory.traffic = traffic
    config = LaunchConfig((grid, 1, 1), block, (cluster, 1, 1), shared)
    counters = LaunchCounters("k", config.grid, config.cluster, schedule)
    launched = Grid(program, config, parameters, memory, counters, properties)
    launched.observers = [] if sanitizer is None else [sanitizer]
    run_grids([launched], Schedule.parse(schedule), Meter(Tally(max_instructions)))
    return counters


def aligned(words, alignment=256):
    """A copy of words, or as many zeros, at a multiple of a number of bytes."""
    words = np.zeros(words, np.uint32) if isinstance(words, int) else words
    storage = np.zeros(words.nbytes + alignment, np.uint8)
    found = storage[-storage.ctypes.data % alignment :][: words.nbytes].view(words.dtype).reshape(words.shape)
    found[...] = words
    return found


STORE_LANE = """
    mul.wide.u32 %rd1, %tid, {size};
    add.s64 %rd1, %a0, %rd1;
    st.global.{type} [%rd1], {value};
"""


def store(value, type_name="b32"):
    """PTX that stores a register of each thread to a0[tid]."""
    return STORE_LANE.format(value=value, type=type_name, size=int(type_name[1:]) // 8)
