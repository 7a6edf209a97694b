"""Results that are right in some calls only, made from an earlier call, or made or changed after the return."""

import os
import threading
import time

import torch

from tests.submissions.hostile.kit import kind, right, zeros

LATER_S = 1  # seconds after the return
counts = {}  # kind -> calls
kept = {}  # (kind, key) -> result


def count(name):
    counts[name] = counts.get(name, 0) + 1
    return counts[name]


def in_calls(name, tries, right_in, **properties):
    """Register a kind that is right in calls of some numbers, the first being 1, and returns zeros in the others."""
    kind(name, tries, **properties)(lambda data: right(data) if right_in(count(name)) else zeros(data))


def remembered(data, *key):
    """The result of the first call with this key, copied to this call's c."""
    results = kept.setdefault(key, None) or right(data)
    kept[key] = results
    return [c.copy_(result) for (_, _, c), result in zip(data[0], results)]


in_calls("first_call", "Right in the first call of the process only", lambda call: call == 1)
in_calls("not_first_call", "Wrong in the first call only", lambda call: call != 1)
in_calls("second_call", "Wrong in the second call only", lambda call: call != 2)
in_calls("third_call", "Wrong in the third call only", lambda call: call != 3)
kind("by_shape", "Results kept by the sizes of the groups")(lambda data: remembered(data, "by_shape", tuple(data[3])))
kind("by_address_of_c", "Results kept by the address of c")(
    lambda data: remembered(data, "by_address_of_c", data[0][0][2].data_ptr())
)


@kind()
def by_addresses(data):
    """Results kept by the addresses of all tensors"""
    tensors = [tensor for part in data[:3] for group in part for tensor in group]
    return remembered(data, "by_addresses", *(tensor.data_ptr() for tensor in tensors))


@kind()
def one_buffer(data):
    """Right results in the same tensors in every call: the next call overwrites them"""
    outputs = kept.setdefault(("one_buffer", tuple(data[3])), [torch.empty_like(c) for _, _, c in data[0]])
    return [output.copy_(result) for output, result in zip(outputs, right(data))]


@kind()
def next_call_clears(data):
    """Right results, which the next call clears"""
    for output in kept.get("next_call_clears", ()):
        output.zero_()
    kept["next_call_clears"] = right(data)
    return list(kept["next_call_clears"])


@kind()
def later_in_a_thread(data):
    """Zeros, which a daemon thread makes right later"""
    outputs, results = zeros(data), right(data)

    def fill():
        time.sleep(LATER_S)
        for output, result in zip(outputs, results):
            output.copy_(result)

    threading.Thread(target=fill, daemon=True).start()
    return outputs


@kind()
def later_in_a_process(data):
    """Zeros in shared memory, which a child process makes right later"""
    results = right(data)
    outputs = [torch.zeros_like(result).share_memory_() for result in results]
    if not os.fork():
        time.sleep(LATER_S)
        for output, result in zip(outputs, results):
            output.copy_(result)
        os._exit(0)
    return outputs


@kind()
def overwritten_by_a_thread(data):
    """Right results, which a thread overwrites as soon as they are returned, again and again"""
    outputs = right(data)
    end = time.monotonic() + LATER_S

    def overwrite():
        while time.monotonic() < end:
            for output in outputs:
                output.zero_()

    thread = threading.Thread(target=overwrite, daemon=True)
    thread.start()
    return outputs


@kind(alone=True)
def overwritten_in_memory(data):
    """Right results, which a thread overwrites without holding Python's lock, for a second"""
    import ctypes

    outputs = right(data)
    spans = [(output.data_ptr(), output.nbytes) for output in outputs]
    kept["overwritten_in_memory", count("overwritten_in_memory")] = outputs  # keeps their memory
    end = time.monotonic() + LATER_S

    def overwrite():
        while time.monotonic() < end:
            for address, nbytes in spans:
                ctypes.memset(address, 0, nbytes)

    threading.Thread(target=overwrite, daemon=True).start()
    time.sleep(0.01)
    return outputs


in_calls(
    "first_call_ranked", "Mode leaderboard: right in the first call only", lambda call: call == 1, mode="leaderboard"
)
kind("by_address_ranked", "Mode leaderboard: results kept by address", mode="leaderboard")(
    lambda data: remembered(data, "by_address_ranked", data[0][0][2].data_ptr())
)
in_calls(
    "third_call_benchmark", "Mode benchmark: wrong in the third call only", lambda call: call != 3, mode="benchmark"
)


LARGE = "m: [192, 320]; n: [3072, 3072]; k: [4096, 4096]; g: 2; seed: 1111"


@kind(mode="leaderboard", line=LARGE)
def wrong_where_large(data):
    """Mode leaderboard, a benchmark shape: right for small sizes, one wrong element for large ones"""
    outputs = right(data)
    if data[3][0][1] >= 1024:
        outputs[-1][-1, -1, -1] += 100
    return outputs


kind(
    "right_where_large",
    "Mode leaderboard, a benchmark shape: right there, wrong for small sizes",
    mode="leaderboard",
    line=LARGE,
)(lambda data: right(data) if data[3][0][1] >= 1024 else zeros(data))
in_calls(
    "large_first_call",
    "Mode leaderboard, a benchmark shape: right in the first call only",
    lambda call: call == 1,
    mode="leaderboard",
    line=LARGE,
)
kind("gemv_zeros", "GEMV: zeros", problem="gemv", line="m: 40; k: 128; l: 2; seed: 3")(lambda data: zeros(data))


@kind(problem="gemv", line="m: 40; k: 128; l: 2; seed: 3")
def gemv_in_a_list(data):
    """GEMV: the right result in a list, where the contract names a tensor"""
    import reference

    return [reference.gemv_ref_kernel(data)]


@kind(problem="gemm", line="m: 40; n: 24; k: 128; l: 2; seed: 3")
def gemm_first_batch(data):
    """GEMM: right in the first batch entry only"""
    import reference

    result = reference.gemm_ref_kernel(data)
    result[:, :, 1] = 0
    return result


@kind(problem="dual_gemm", line="m: 40; n: 24; k: 128; l: 1; seed: 3")
def dual_gemm_without_silu(data):
    """Dual GEMM: the product alone"""
    import reference

    a, b1, _, sfa, sfb1, _, *_, c = data
    return reference.gemm(a, b1, sfa, sfb1, c)


in_calls("fourth_call", "Mode leaderboard: zeros from the fourth call on", lambda call: call <= 3, mode="leaderboard")
