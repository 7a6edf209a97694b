"""Calibration: every launch fits its kernel, kernels are legal in the emulator, and figures follow from records."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from workshop.calibration import __main__ as calibrate
from workshop.calibration import copies, device, starts
from workshop.calibration.launches import RECORD, SMOKE, Launch, Sizes

ARCHITECTURES = ("sm_90a", "sm_100a")


def every(arch, sizes=SMOKE):
    """All measurements for a GPU of an architecture."""
    gpu = SimpleNamespace(arch=arch, sms=132, data_bytes=device.DATA_BYTES, address=lambda name: 0)
    return calibrate.measurements(gpu, sizes, [])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_launch_has_the_arguments_of_its_kernel(arch):
    launches = {m.launch for m in every(arch, Sizes())}
    for launch in launches:
        kinds = device.parameter_types(launch.file, launch.kernel, arch)
        assert len(kinds) == len(launch.arguments), launch
        assert [kind == "b8" for kind in kinds] == [str(x).startswith("rows:") for x in launch.arguments], launch
        assert launch.grid % launch.cluster == 0, launch


def test_names_are_unique():
    names = [m.name for m in every("sm_100a")]
    assert len(names) == len(set(names))


def test_a_tensor_core_is_measured_where_there_is_one():
    kinds = {arch: {m.launch.file for m in every(arch)} for arch in ARCHITECTURES}
    assert kinds["sm_100a"] - kinds["sm_90a"] == {"tensor"}


# One of each kernel, where kernels differ by more than an instruction.
KERNELS = """
    latency.fma_f32 rate.shfl.4 shared.latency.load_16 shared.ldmatrix.stride_16.1_ barrier.barrier_cta.4
    barrier.barrier_cluster.2_ctas.4 mbarrier.turn latency.load.l2 latency.l2_line atomic.latency
    rate.plain_copy.l2.1_ctas tma.read.l2.one_sm.bulk.box_8K.64K tma.write.map.l2.box_16K tma.copy.l2.box_16K
    tma.fill.multicast.l2.box_16K.64K tma.load.map.l2.one_sm.box_1024.burst_4 tma.store.bulk.one_sm.box_1024
    remote.rate.store.256_threads.cluster_4.to_3.all rate.after_writes_rest.8_ tma.fill.share_4_far launch.alone
    remote.latency remote.bulk.box_1K.4 starts.early. starts.in_turn.cluster_4
    launch.period.in_turn.grid_1.block_32.cluster_2
    tensormap.edit_load tensormap.acquire rate.bursts_after_writes.pause_2000
    mma.mxf4nvf4.256x128 mma.f16.128x64 tensor.copy.scales.4 tensor.load_32_four tensor.alloc
""".split()


@pytest.fixture(scope="module")
def emulated():
    return device.Emulated(calibrate.SMOKE_DATA_BYTES)


@pytest.mark.parametrize("prefix", KERNELS)
def test_kernels_are_legal(emulated, prefix):
    constants, errors, _ = calibrate.calibrate(emulated, SMOKE, [prefix], lambda *_: None)
    assert not errors and constants


def test_an_illegal_launch_is_an_error_by_name(emulated, monkeypatch):
    bad = calibrate.Measurement("bad", "", Launch("launch", "stamp", ("data", 0, 0, 0), 4, 2048), lambda records: 0.0)
    monkeypatch.setattr(calibrate, "measurements", lambda *_: [bad])
    constants, errors, _ = calibrate.calibrate(emulated, SMOKE, [], lambda *_: None)
    assert not constants and "2048" in errors["bad"]


def test_the_file_has_samples_and_launches(emulated, monkeypatch, tmp_path):
    monkeypatch.setattr(calibrate, "current", lambda size: emulated)
    saved = tmp_path / "constants.json"
    assert calibrate.main(["--smoke", "--only", "latency.mad", "--save", str(saved)]) == 0
    (constant,) = json.loads(saved.read_text())["constants"].values()
    assert constant["samples"] == [constant["value"]] and constant["launch"]["kernel"] == "latency_mad"


# Figures


def record(start, end, start_ns=0, end_ns=0, sm=0, number=0, waited=0, waited_ns=0):
    return [start, end, start_ns, end_ns, sm, number, waited, waited_ns]


def test_stamps_of_launches_in_turn():
    """Two launches of two CTAs; SM 1's clock is 1000 ahead."""
    first = record(100, 300, 50, 150, 0, 0, 110, 55), record(1120, 1320, 60, 160, 1, 0, 1130, 65)
    second = record(500, 700, 250, 350, 0, 1, 510, 255), record(1510, 1710, 255, 355, 1, 1, 1520, 260)
    records = np.array([*first, *second])
    figures = starts.stamp_figures(records)
    assert records.shape[1] == RECORD
    assert figures["skew_ns"] == 7.5  # 10 and 5
    assert figures["after_last_ns"] == 250 - 160
    assert figures["waited_ns"] == 255 - 160
    assert figures["same_sm_cycles"] == 195  # 200 and 190
    assert figures["cycles_per_ns"] == 2
    assert figures["at_once"] == 2 and figures["neighbours"] == 1


def test_stamps_of_waves_on_one_sm():
    records = np.array([record(0, 100), record(10, 90), record(95, 200), record(130, 230)])
    assert starts.stamp_figures(records)["same_sm_wave_cycles"] == np.median([95 - 90, 130 - 100])


def test_bursts():
    """Two warps that issue two boxes each, in one trial; then a CTA that wrote nothing."""
    words = np.array([[[100, 140, 400, 500], [104, 144, 450, 600]], [[0] * 4, [0] * 4]]).ravel()
    figures = copies.burst_figure(words, burst=2, warps=2)
    assert figures == {"issue": 20, "first_arrival": 300, "last_arrival": 500, "between": 200 / 3}


def test_lines_are_near_or_far():
    """One SM: 40 lines near, 24 far; the rows of other SMs are empty."""
    words = np.zeros((copies.MAX_SMS, copies.LINES), np.int64)
    words[7] = np.where(np.arange(copies.LINES) % 8 < 5, 280, 310) * copies.LINE_LOADS
    figures = copies.line_figure(words.ravel())
    assert (figures["near"], figures["far"], figures["near_share"]) == (280, 310, 40 / 64)


def test_records_that_were_not_written_are_left_out():
    words = np.zeros(3 * RECORD, np.uint64)
    words[RECORD : 2 * RECORD] = record(5, 9)
    assert device.filled(words).tolist() == [record(5, 9)]
