"""Torch's memory is watched for writes, so that launches which repeat compare nothing."""

from tests.support.emulated import run, succeed


def test_writes_between_launches():
    succeed("watch_checks.py")


def test_operations_of_torch():
    succeed("repeat_checks.py")


FAULT = "import ctypes, torch; from nogpu.cuda import torch_watches as w; x = torch.zeros(1 << 20, device='cuda'); {}"


def test_an_access_that_is_wrong_ends_the_program():
    watched = "assert w.watch(x.data_ptr(), True); "
    for first in (watched, watched + "__import__('faulthandler').enable(); "):
        assert run("-c", FAULT.format(first + "ctypes.memset(64, 0, 1)")).returncode == -11
    assert run("-c", FAULT.format(watched + "__import__('os').kill(__import__('os').getpid(), 11)")).returncode == -11


MANY = """
import torch
resident = lambda: int(open("/proc/self/statm").read().split()[1]) >> 8
torch.zeros(4, device="cuda")
before, peak = resident(), 0
for n in range(40):
    torch.full(((24 << 20) + 4096 * n,), 1, dtype=torch.uint8, device="cuda")
    peak = max(peak, resident())
assert 200 < peak - before < 300, peak - before
"""


def test_blocks_that_wait_to_be_given_out_again_are_few():
    done = run("-c", MANY)
    assert done.returncode == 0, done.stderr
