"""Torch's operations that need not run again; test_torch_watches.py runs the checks."""

import functools
import itertools
import threading

import torch
from watch_checks import WAYS, tensor

from nogpu.cuda import torch_device, torch_repeats, torch_watches
from nogpu.execution.device import Device

torch_repeats.LEAST = 1
ran = []  # operations that might be known, and have run
on_cpu = torch_device.VirtualDevice._on_cpu


def counted(func, *rest):
    if func in torch_repeats._FUNCTIONS:
        ran.append(func.__name__)
    return on_cpu(func, *rest)


torch_device.VirtualDevice._on_cpu = staticmethod(counted)


def floats(*shape):
    return torch.rand(*(shape or (1 << 16,)), device="cuda")


def runs(call, times=1):
    """Results of calls, and the number of operations that have run for them. The program keeps one result at a time."""
    ran.clear()
    result = None
    for _ in range(times):
        result = call()
    number = len(ran)
    return result, number


def check_a_call_with_the_same_operands_does_not_run_again():
    x, y = floats(), floats()
    for call in (
        *(lambda: torch.nn.functional.gelu(x), lambda: x + y, lambda: torch.add(x, y, alpha=2), lambda: x.sum()),
        lambda: x.view(256, 256) @ y.view(256, 256),
    ):
        expected = call().clone()
        result, number = runs(call, 50)
        assert torch.equal(result, expected) and number <= 4, (result, expected, ran)
        assert result.is_cuda and not result.requires_grad and result.untyped_storage().nbytes() == 4 * result.numel()


def check_tuples_of_results():
    x, start = floats(64, 16, 32), torch.zeros(2, 16, 64, device="cuda")
    start[0, 0, 0] = 1
    with torch.no_grad():
        for layer, rest in (
            (torch.nn.GRU(32, 64, 2), (start,)),
            (torch.nn.LSTM(32, 64, 2), ((start, start.clone()),)),
            (torch.nn.RNN(32, 64, 2), (start,)),
        ):
            layer.cuda()
            expected = [each.clone() for each in layer(x, *rest)[:1]]
            result, number = runs(lambda: layer(x, *rest), 30)  # noqa: B023
            assert 1 <= number <= 4 and torch.equal(result[0], expected[0]) and type(result) is tuple, (layer, number)
            result[0].zero_()
            del result
            for _ in range(4):
                assert torch.equal(layer(x, *rest)[0], expected[0])
    x = floats(256, 256)
    for call in lambda: x.sort(), lambda: torch.topk(x, 100), lambda: torch.max(x, 1):
        expected = call()
        values, places = expected[0].clone(), expected[1].clone()
        del expected
        result, number = runs(call, 30)
        assert torch.equal(result.values, values) and torch.equal(result.indices, places) and 1 <= number <= 4


def check_a_default_device():
    x, y = floats(), floats()
    expected = (x + y).clone()
    torch.set_default_device("cuda")
    try:
        result, number = runs(lambda: x + y, 9)
        assert torch.equal(result, expected) and result.is_cuda and 1 <= number <= 4
    finally:
        torch.set_default_device(None)


def check_settings_are_part_of_a_call():
    x = torch.full((1 << 14,), 1e-40, device="cuda")  # few enough for one thread, which has its own mode
    halve = lambda: x * 0.5  # noqa: E731
    runs(halve, 9)
    assert torch.set_flush_denormal(True)
    try:
        assert not halve().any() and runs(halve, 9)[1]
    finally:
        torch.set_flush_denormal(False)
    assert halve().all()
    with torch.backends.mkldnn.flags(enabled=False):
        assert runs(halve)[1] == 1


def check_out_is_left_as_it_is_while_nothing_writes():
    x, y, z = floats(), floats(), torch.zeros(1 << 16, device="cuda")
    add = lambda: torch.add(x, y, out=z)  # noqa: E731
    result, number = runs(add, 50)
    assert result is z and torch.equal(z, x + y) and number <= 3
    for _ in range(6):
        z.zero_()
        add()
        assert torch.equal(z.cpu(), x.cpu() + y.cpu())
        x[7] += 1
        add()
        assert torch.equal(z.cpu(), x.cpu() + y.cpu())


def check_each_write_to_an_operand_or_a_result_counts():
    for name, write in WAYS.items():
        x, y = tensor(), tensor()
        for n in (5, 9, 13):
            expected, sums = x.cpu() + y.cpu(), []
            result, number = runs(functools.partial(torch.add, x, y), 6)
            assert torch.equal(result.cpu(), expected) and (n > 5 or number < 6), name
            write((x, result, y)[n % 3], n)
            del result
            for _ in range(3):
                sums.append(torch.add(x, y))
                assert torch.equal(sums[-1].cpu(), x.cpu() + y.cpu()), name


def check_chains_with_small_results_do_not_run_again():
    x, small = floats(256, 256), [torch.rand(256, 1, device="cuda") for _ in range(2)]

    def chain(factor=1):
        return x * torch.rsqrt(torch.mean(x**2, dim=1, keepdim=True)) * factor

    expected = chain().clone()
    result, number = runs(chain, 50)
    assert torch.equal(result, expected) and number <= 20, ran
    for n in range(12):
        assert torch.equal(chain(small[n % 2]), expected * small[n % 2].clone())
        small[n % 2].add_(n == 9)
    whole = torch.rand(256, 2, device="cuda")
    for _ in range(8):
        for column in whole[:, :1], whole[:, 1:]:
            assert torch.equal((x + column).cpu(), x.cpu() + column.cpu())


def check_results_that_the_program_keeps_are_apart():
    x, y = floats(), floats()
    expected = (x + y).cpu()
    kept = [x + y for _ in range(9)]
    for n, each in enumerate(kept):
        each.add_(n)
    for n, each in enumerate(kept):
        assert torch.equal(each.cpu(), expected + n)
    assert len({each.data_ptr() for each in kept}) == 9
    del kept, each
    assert torch.equal((x + y).cpu(), expected)


def check_a_result_outlives_what_is_known_of_it():
    x, y = floats(), floats()
    result, _ = runs(lambda: x + y, 6)
    expected = result.cpu().clone()
    torch_repeats._calls.clear()
    other = [floats() for _ in range(9)]
    assert torch.equal(result.cpu(), expected)
    result.add_(1)
    del other


def check_results_of_a_loop_are_in_the_same_places():
    for size in (1, 100, 5000, 1 << 15, 1 << 20):
        result, places = None, set()
        for n in range(40):
            result = torch.full((size + n % 2 * 99,), n, device="cuda")
            places.add(result.data_ptr())
            assert result.data_ptr() % 512 == 0 and (result == n).all()
        assert len(places) <= 4, (size, places)
        kept = [torch.full((size,), n, device="cuda") for n in range(20)]
        assert all((each == n).all() for n, each in enumerate(kept)) and len({each.data_ptr() for each in kept}) == 20


def check_a_block_that_is_watched_has_pages_of_its_own():
    """Blocks of one size that are below and at the least size that is watched are not taken for each other."""
    least, below = 1 << 16, (1 << 16) - 64
    for _ in range(8):
        unwatched = [torch.zeros(below, dtype=torch.uint8, device="cuda") for _ in range(9)]
        del unwatched
        watched = [torch.zeros(least, dtype=torch.uint8, device="cuda") for _ in range(9)]
        assert all(each.data_ptr() % 4096 == 0 and torch_watches.watch(each.data_ptr(), True) for each in watched)
        del watched


def check_memory_of_a_dropped_result_is_free():
    x, y = floats(), floats()
    before = torch.cuda.memory_allocated()
    result, _ = runs(lambda: x + y, 6)
    assert torch.cuda.memory_allocated() == before + 4 * (1 << 16)
    address = result.data_ptr()
    del result
    assert torch.cuda.memory_allocated() == before and Device.current().memory.allocation(address) is None


def check_arguments_that_are_equal_but_differ_are_apart():
    x = torch.arange(1 << 15, device="cuda")
    for other in itertools.chain.from_iterable([(1, 1.0, True)] * 6):
        assert torch.add(x, other).dtype == (torch.float32 if isinstance(other, float) else torch.int64)
    z = floats()
    for zero in [0.0, -0.0] * 6:
        assert (z / zero)[z > 0].sign().min() == (-1 if str(zero) == "-0.0" else 1)


def check_memory_in_the_place_of_other_memory_is_other_memory():
    places = set()
    for n in range(20):
        x, y = tensor().fill_(n), tensor()
        result, _ = runs(functools.partial(torch.add, x, y), 6)
        assert result.unique().tolist() == [n]
        places.add(x.data_ptr())
        del x, y, result
    assert len(places) < 20


def check_gradients_random_numbers_and_views_are_made_each_time():
    x = floats().requires_grad_()
    for _ in range(6):
        x.grad = None
        torch.nn.functional.gelu(x).sum().backward()
        assert x.grad is not None
    dropped = [torch.nn.functional.dropout(x.detach(), 0.5) for _ in range(6)]
    assert not torch.equal(dropped[4], dropped[5])
    q, layer, steps = floats(1, 4, 64, 64), torch.nn.GRU(64, 64, 2, dropout=0.5).cuda(), floats(32, 16, 64)
    with torch.no_grad():
        for call in (
            lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, None, 0.5),
            lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5),
            lambda: layer(steps)[0],
        ):
            assert runs(call, 9)[1] == 9
    y, z = floats(), floats()
    for _ in range(6):
        torch.add(y, z, out=y)
        before = y.clone()
        y.add_(1)
        assert torch.equal(y, before + 1)
        assert torch.clamp(y, min=0).data_ptr() != y.data_ptr()


def check_threads_have_results_of_their_own():
    x, y, found = floats(), floats(), []
    expected = (x + y).cpu()

    def work():
        for n in range(40):
            result = x + y
            assert torch.equal(result.cpu(), expected), n
            result.add_(n)
            assert torch.equal(result.cpu(), expected + n), n
        found.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 3


def check_results_that_are_written_to_each_time_are_watched_ever_more_rarely():
    x, y = floats(), floats()
    _, number = runs(lambda: (x + y).add_(1), 64)
    begun = [call for call in torch_repeats._calls.values() if call.in_vain]
    assert number > 60 and all(call.in_vain <= 7 for call in begun)
