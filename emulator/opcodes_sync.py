"""Rows of the opcode table: barriers, fences, mbarriers (PTX ISA, "Parallel Synchronization and Communication")."""

from __future__ import annotations

from emulator.rows import Row, always_uniform, called, ignored

_SCOPE = r"(?:\.(?:cta|cluster|gpu|sys))"
_SEM = r"(?:\.(?:sc|acq_rel|acquire|release))"
_BARRIER_SPACE = r"(?:\.(?P<space>shared::cta|shared::cluster|shared))?"
_WAIT_ORDER = r"(?:\.(?:acquire|relaxed))?(?:\.(?:cta|cluster))?"
_ARRIVE_ORDER = r"(?:\.(?:release|relaxed))?(?:\.(?:cta|cluster))?"

BARRIERS = [
    called(r"(?P<bar>bar|barrier)(?:\.cta)?\.sync(?P<aligned>\.aligned)?", "wait_barrier(g, {m}, {bar} == 'bar' or {aligned:b}, {0:i}, {1:i}, {who})", writes=0, flow="wait"),
    called(r"(?P<bar>bar|barrier)(?:\.cta)?\.arrive(?P<aligned>\.aligned)?", "barrier_arrive(g, {m}, {bar} == 'bar' or {aligned:b}, {0:i}, {1:i}, {who})", writes=0),
    called(r"bar\.warp\.sync", "wait_warp_barrier(g, {m}, {0:i}, {who})", writes=0, flow="wait"),
    called(
        r"barrier\.cluster\.arrive(?:\.(?:release|relaxed))?(?P<aligned>\.aligned)?",
        "cluster_arrive(g, {m}, {aligned:b}, {who})",
        writes=0,
    ),
    called(
        r"barrier\.cluster\.wait(?:\.acquire)?(?P<aligned>\.aligned)?",
        "wait_cluster(g, {m}, {aligned:b}, {who})",
        writes=0,
        flow="wait",
    ),
    called(r"griddepcontrol\.wait", "wait_for_grids(g, {who})", writes=0, flow="wait"),
    called(r"griddepcontrol\.launch_dependents", "launch_dependents(g, {who})", writes=0, flow="wait"),
    ignored(rf"fence{_SEM}?{_SCOPE}|membar\.(?:cta|gl|sys)"),
    ignored(r"fence\.(?:acquire|release)\.sync_restrict::shared::(?:cta|cluster)\.cluster"),
    ignored(r"fence\.mbarrier_init\.release\.cluster"),
    ignored(r"fence\.proxy\.(?:alias|async(?:\.(?:global|shared::cta|shared::cluster))?)"),
    ignored(r"fence\.proxy\.async::generic\.(?:acquire|release)\.sync_restrict::shared::(?:cta|cluster)\.cluster"),
    ignored(rf"fence\.proxy\.tensormap::generic\.(?:acquire|release){_SCOPE}"),
]  # fmt: skip

MBARRIERS = [
    called(rf"mbarrier\.init{_BARRIER_SPACE}\.b64", "init_barrier(g, {m}, {space}, {0:x}, {1:v}, {who})", writes=0),
    called(rf"mbarrier\.inval{_BARRIER_SPACE}\.b64", "invalidate_barrier(g, {m}, {space}, {0:a}, {who})", writes=0),
    called(
        rf"mbarrier\.arrive(?P<drop>_drop)?{_ARRIVE_ORDER}{_BARRIER_SPACE}\.b64",
        "arrive(g, {m}, {space}, {1:x}, {2:v}, None, {drop:b}, {who})",
        kind=always_uniform,
    ),
    called(
        rf"mbarrier\.arrive(?P<drop>_drop)?\.expect_tx{_ARRIVE_ORDER}{_BARRIER_SPACE}\.b64",
        "arrive(g, {m}, {space}, {1:x}, None, {2:v}, {drop:b}, {who})",
        kind=always_uniform,
    ),
    called(rf"mbarrier\.expect_tx(?:\.relaxed)?{_SCOPE}?{_BARRIER_SPACE}\.b64", "expect_bytes(g, {m}, {space}, {0:x}, {1:v}, {who})", writes=0),
    called(rf"mbarrier\.complete_tx(?:\.relaxed)?{_SCOPE}?{_BARRIER_SPACE}\.b64", "complete_bytes(g, {m}, {space}, {0:x}, {1:v}, {who})", writes=0),
    called(
        rf"mbarrier\.(?P<mode>test|try)_wait\.parity{_WAIT_ORDER}{_BARRIER_SPACE}\.b64",
        "test_parity(g, {m}, {space}, {1:a}, {2:i}, {who})",
        kind=always_uniform,
    ),
    called(
        rf"mbarrier\.(?P<mode>test|try)_wait{_WAIT_ORDER}{_BARRIER_SPACE}\.b64",
        "test_state(g, {m}, {space}, {1:a}, {2:l}, {who})",
        kind=always_uniform,
    ),
]  # fmt: skip

ROWS: list[Row] = [*BARRIERS, *MBARRIERS]
