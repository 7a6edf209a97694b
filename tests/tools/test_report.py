"""The compiled kernel in every configuration: the order of the PTX's instructions, and their cost by ptxas."""

import functools
import importlib.util
import json
import re

import pytest

import submission
from nogpu import store
from nogpu.hopper import MODES, library
from nogpu.hopper.lower import lower
from nogpu.hopper.maps import MapFacts, is_map
from nogpu.ptx.syntax import without_comments
from tests.support.configurations import EVERY
from tests.support.ptx_rules import FORBIDDEN, ORDER, START, broken
from tests.support.ptxas import assembles
from tests.support.slow import sampled
from tools import binaries, report, sass

PLANS = report.configurations()
compile_plan = functools.cache(report.compile_plan)
needs_tools = pytest.mark.skipif(
    not (binaries.installed("ptxas") and binaries.installed("nvdisasm")),
    reason="no ptxas or no nvdisasm in site-packages or on PATH; the extra `report` brings both",
)

SMALL, LARGEST = ([p for p in PLANS if (p.groups <= report.CONTEST_GROUPS) == small] for small in (True, False))
# The largest launches take seconds to compile.
COMPILED = sampled(SMALL, 18) + [pytest.param(plan, marks=pytest.mark.slow) for plan in LARGEST]
LOWERED = [plan for plan in PLANS if plan.groups == report.CONTEST_GROUPS]


@pytest.fixture(scope="module", params=COMPILED, ids=str)
def compiled(request):
    return compile_plan(request.param)


@pytest.fixture(scope="module")
def row(compiled):
    return report.examine(compiled)


@pytest.fixture(
    scope="module",
    params=sampled([(1, 1, 1, 1), (2, 1, 1, 1), (1, 1, 2, 1), (2, 1, 2, 2)], 3),
    ids="cta_group={0[0]}, neighbours={0[2]}, products={0[3]}".format,
)
def ptx(request):
    """The PTX to break: one tile for each way the kernel is written."""
    return compile_plan(submission.Plan(1, 128, *request.param)).ptx


def test_every_configuration_is_there():
    """A configuration that `solve` can choose and the report leaves out would go unseen."""
    reported = [
        ((plan.token_tile, plan.cta_group, plan.ctas_per_sm, plan.neighbours), plan.products)
        for plan in PLANS
        if plan.groups == {1: 8, 2: 1}[plan.products]
    ]
    assert reported == EVERY
    largest = [plan for plan in PLANS if plan.groups == submission.MAX_GROUPS]
    assert {(p.products, p.cta_group, p.neighbours) for p in largest} == {
        (products, cta_group, neighbours) for (_, cta_group, _, neighbours), products in EVERY
    }
    assert len(reported) + len(largest) == len(PLANS)


def test_the_compiled_kernel(compiled):
    """Ordering instructions are there; parameters and TMEM fit."""
    assert broken(compiled.ptx) == {}
    assert compiled.parameter_bytes <= report.PARAMETER_BYTES
    assert compiled.tmem_allocated == [compiled.plan.tmem_columns]


@needs_tools
def test_machine_code(row):
    """Nothing is spilled, a main loop holds the loads and MMAs of one stage, and the table has every figure."""
    assembled, counts = row.assembled, row.sass.counts()
    assert (assembled.spill_store_bytes, assembled.spill_load_bytes, assembled.stack_bytes) == (0, 0, 0)
    assert counts["EXIT"] and not any(counts[opcode] for opcode in report.LOCAL)
    plan = row.compiled.plan
    loads, mmas = (row.sass.main_loops(opcodes) for opcodes in report.ROLES.values())
    tensors = plan.products * plan.neighbours + 1
    assert {(load["UTMALDG"], load["UBLKCP"]) for load in loads} == {(tensors, tensors - 1 + plan.atoms)}
    assert {mma["UTCOMMA"] for mma in mmas} == {submission.K_BLOCKS}
    assert all(row.figures.values()) and all(row.configuration.values())
    assert row.figures["registers"] == str(row.assembled.registers)
    (saved,) = json.loads(json.dumps(report.record([row])))["configurations"]
    assert row.configuration.items() <= saved.items() and row.figures.items() <= saved.items()
    assert saved["loops"] == row.main_loops


@pytest.mark.slow
@pytest.mark.parametrize("compiled", LOWERED, ids=str, indirect=True)
@pytest.mark.parametrize("mode", MODES)
def test_what_is_lowered_for_a_hopper_gpu_assembles(compiled, mode):
    entry = compiled.entry
    maps = {param.name: MapFacts(index < 2, 4096) for index, param in enumerate(entry.params) if is_map(param)}
    result = lower(compiled.ptx, entry.name, mode, maps, compiled.plan.cta_group, library.ptx)
    assert result.extra_threads == 128 * (mode == "exact") and not result.forwards
    assert result.uses_tmem == (mode == "exact")
    assert bool(result.control_bytes) == bool(result.extra_threads)
    assert not re.search(r"tcgen05|cta_group|sm_100", without_comments(result.ptx))
    assert assembles(result.ptx)


# ---- Each check fails where it should ----


def without_each(pattern, text):
    """The text without one of the instructions that match, for each of them."""
    for match in re.finditer(rf"{pattern}[^;]*;", text):
        yield text[: match.start()] + text[match.end() :]


@pytest.mark.parametrize("rule", ORDER)
def test_a_broken_ordering_instruction_is_noticed(ptx, rule):
    """Some are needed twice over; no other rule may notice, so that each is known to notice by itself."""
    found = [set(broken(mutated)) for mutated in without_each(re.escape(rule), ptx)]
    assert {rule} in found
    assert all(rules <= {rule} for rules in found)
    predicated = re.sub(rf"({re.escape(rule)}[^;]*;)", r"{ .reg .pred p; @p \1 }", ptx)
    assert set(broken(predicated)) == {rule}


@pytest.mark.parametrize("rule", [name for name, rule in ORDER.items() if rule.first != START])
def test_rule_without_anything_to_order_is_noticed(ptx, rule):
    """The kernel may come to use another instruction that the rule does not know."""
    instructions = re.compile(rf"^\s*(@\S+ )?({ORDER[rule].first})[^;]*;", re.M)
    assert rule in broken(instructions.sub("", ptx))


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("local memory", "{ .local .align 4 .b8 depot[64]; }"),
        ("local memory", "{ .reg .b32 a; .reg .b64 p; st.local.b32 [p], a; }"),
        ("local memory", "{ .reg .b32 a; .reg .b64 p; ld.volatile.local.v4.b32 {a, a, a, a}, [p]; }"),
        ("global atomics", "{ .reg .b32 a; .reg .b64 p; atom.add.u32 a, [p], a; }"),
        ("global atomics", "{ .reg .b32 a; .reg .b64 p; atom.relaxed.gpu.global.add.u32 a, [p], a; }"),
        ("global atomics", "{ .reg .b32 a; .reg .b64 p; red.global.add.u32 [p], a; }"),
        ("global atomics", "{ .reg .b32 a; .reg .b64 p; multimem.red.relaxed.sys.global.add.u32 [p], a; }"),
        (
            "global atomics",
            "{ .reg .b32 a; .reg .b64 p; cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [p], [a], a; }",
        ),
        (
            "device-side tensormap.replace",
            "{ .reg .b64 p; tensormap.replace.tile.global_address.global.b1024.b64 [p], p; }",
        ),
    ],
)
def test_forbidden_instruction_is_noticed(ptx, rule, code):
    assert rule in FORBIDDEN and set(broken(added(ptx, code))) == {rule}


def test_shared_atomics_are_allowed(ptx):
    assert not broken(added(ptx, "{ .reg .b32 a; atom.shared::cta.add.u32 a, [a], a; red.shared.add.u32 [a], a; }"))


def added(ptx, code):
    """The PTX with more code at the start of the kernel."""
    end_of_registers = list(re.finditer(r"^\s*\.reg\s[^;]*;\n(?!\s*\.reg)", ptx, re.M))[0].end()
    return ptx[:end_of_registers] + code + ptx[end_of_registers:]


FEW = 50


@needs_tools
def test_spills_are_noticed():
    """FEW registers do not hold 64 columns."""
    ptx = compile_plan(submission.Plan(1, 128, 1, 1, 1, 1)).ptx  # one of those of `ptx`
    assembled = binaries.assemble(re.sub(r"(\.reqntid[^\n]*)", rf"\1 .maxnreg {FEW}", ptx))
    assert assembled.registers <= FEW
    assert assembled.spill_store_bytes > 0 and assembled.spill_load_bytes > 0 and assembled.stack_bytes > 0
    counts = sass.read_sass(binaries.disassembly(assembled.cubin)).counts()
    assert all(counts[opcode] for opcode in report.LOCAL)


@needs_tools
def test_local_memory_is_noticed(ptx):
    """An array with an index that is known only at run time stays in memory."""
    code = """{ .local .align 4 .b8 depot[64]; .reg .b32 a, p; .reg .pred q;
        mov.b32 a, %tid.x; and.b32 a, a, 60; mov.b32 p, depot; add.u32 p, p, a;
        st.local.b32 [p], a; ld.local.b32 a, [depot]; setp.eq.b32 q, a, 5; @q trap; }"""
    assembled = binaries.assemble(added(ptx, code))
    counts = sass.read_sass(binaries.disassembly(assembled.cubin)).counts()
    assert (assembled.stack_bytes, counts["STL"], counts["LDL"]) == (64, 1, 1)


@needs_tools
def test_ptx_that_is_refused(ptx):
    with pytest.raises(binaries.ReportError, match=r"refuses the PTX:\n.*no_such"):
        binaries.assemble(ptx.replace("fence.mbarrier_init", "fence.no_such"))
    with pytest.raises(
        binaries.ReportError, match=r"no ptxas knows this PTX version:\n.*ptxas: Unsupported .version 99.0"
    ):
        binaries.assemble(re.sub(r"\.version \S+", ".version 99.0", ptx))
    code, again, other = (
        binaries.machine_code(binaries.assemble(text).cubin)
        for text in (ptx, ptx, re.sub(r"(shfl\.sync\.bfly\.b32 other, \S+) 1,", r"\1 2,", ptx))
    )
    assert code and code == again and code != other


TOOL = """#!/bin/sh
echo "$@" >> {log}
cat "$2"
grep -q refused "$2" && exit 1
test "$3" = -o && cp "$2" "$4"
exit 0
"""


def test_a_tool_runs_once_on_the_same_bytes(tmp_path, monkeypatch):
    kept, tool, log = tmp_path / "kept", tmp_path / "tool", tmp_path / "log"
    kept.mkdir()
    monkeypatch.setattr(store, "_folder", lambda name: kept)
    tool.write_text(TOOL.format(log=log))
    tool.chmod(0o700)

    def runs(options, source, writes=False):
        """(how often the tool runs for two calls, their result)."""
        log.write_text("")
        first, second = (binaries.run(str(tool), options, source, writes) for _ in range(2))
        assert first == second
        return log.read_text().count("\n"), first

    assert runs(["-a"], b"text") == (1, binaries.Ran(0, "text", "", b""))
    assert runs(["-a"], b"text", writes=True) == (1, binaries.Ran(0, "text", "", b"text"))
    assert runs(["-a"], b"text")[0] == 0
    assert runs(["-b"], b"text")[0] == 1 and runs(["-a"], b"more")[0] == 1
    assert runs(["-a"], b"refused") == (2, binaries.Ran(1, "refused", "", b""))
    for entry in kept.iterdir():
        entry.write_bytes(entry.read_bytes()[:-1])
    assert runs(["-a"], b"text")[0] == 1
    tool.write_text(TOOL.format(log=log) + "\n")
    assert runs(["-a"], b"text")[0] == 1
    monkeypatch.setattr(store, "_folder", lambda name: None)
    assert runs(["-a"], b"text")[0] == 2


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr(binaries, "installed", lambda tool: [])
    with pytest.raises(
        binaries.ReportError, match="ptxas is neither in site-packages nor on PATH.*nvidia-cuda-nvcc-cu12"
    ):
        binaries.assemble("")
    monkeypatch.setattr(binaries, "installed", lambda tool: [tool])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(binaries.ReportError, match=r"no package pyelftools; `pip install '\.\[report\]'` brings it"):
        binaries.check_installed()


def test_innermost_loop_of_a_listing():
    """Loops within loops, two branches back to one label, a retry that branches back from outside its loop, padding."""
    found = sass.read_sass("""
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_0:
        /*0010*/                   UIADD3 UR4, UPT, UPT, UR4, 0x1, URZ ;
.L_x_1:
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2 ;
        /*0030*/              @!P0 BRA `(.L_x_3) ;
.L_x_2:
        /*0040*/              @UP4 UTMALDG.2D [UR8], [UR28], desc[UR30] ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/                   NOP ;
        /*0070*/                   BRA.U UP0, `(.L_x_1) ;
        /*0080*/               @P2 BRA `(.L_x_0) ;
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2 ;
        /*00b0*/              @!P0 BRA `(.L_x_3) ;
        /*00c0*/                   BRA `(.L_x_2) ;
        /*00d0*/                   NOP;
        /*00e0*/                   NOP;
.L_x_4:
""")
    assert len(found.opcodes) == 13 and found.opcodes[4] == "UTMALDG.2D"
    assert found.main_loops(("UTMALDG",)) == [{"SYNCS": 1, "BRA": 3, "UTMALDG": 1, "NOP": 1}]
    assert found.main_loops(("UTCOMMA",)) == []


def test_compilations_after_a_report_keep_nothing():
    """The options that keep PTX and cubin, and write files, must not stay behind in the DSL."""
    plan = submission.Plan(1)
    assert report.compile_plan(plan).cubin
    assert submission.compile_kernel(plan).artifacts.CUBIN is None
