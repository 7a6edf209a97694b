"""The bytes of a random problem: operands and scales, the tuples for calls, the expected bytes after the calls.

A problem's memory is a list of storages, uint8 tensors. All of it is random, including the padding of reordered scales
and the rows of b that a GEMV does not read, except for the scales that count. The expected bytes are computed call by
call, in float64 and on the CPU.
"""

import random

import torch

import reference
from tests.support.soak_problems import OPERANDS

FP4, FP8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
NAN_BYTE = 0xFF
LOOSE = 0.3  # share of tensors with other strides than torch's in dimensions of size 1
SHOWN = 4  # differing elements in a message


def generator_of(problem):
    return torch.Generator().manual_seed(random.Random(f"{problem.seed} bytes {problem.number}").getrandbits(60))


def bytes_of(storages, block):
    return storages[block.storage][block.offset : block.offset + block.size]


def matrix(memory, dtype, rows, columns, batches):
    """A block's bytes as (rows, columns, batches), columns contiguous; a column of FP4 is a byte."""
    whole = memory if dtype == FP4 else memory.view(dtype)
    return whole.view(batches, rows, columns).view(dtype).permute(1, 2, 0)


def atoms(memory, rows, k, batches):
    """The reordered scales in the order of memory."""
    return memory.view(FP8).view(reference.atoms_shape(batches, rows, k // reference.SF_VECTOR))


def operand(storages, group, name):
    return matrix(bytes_of(storages, group.blocks[name]), FP4, group.rows(name), group.k // 2, group.l)


def output(storages, group, products):
    columns = group.n if products else 1
    return matrix(bytes_of(storages, group.blocks["c"]), torch.float16, group.m, columns, group.l)


def scales_of(storages, group, name):
    """The scales that the kernel reads, in reordered form."""
    memory = bytes_of(storages, group.blocks[name])
    return atoms(memory, group.rows(name), group.k, group.l).permute(3, 4, 1, 5, 2, 0)


def contents(problem):
    """The storages on the CPU, and {(call, group, name): row-major scales that count, (rows, K/16, L)}."""
    generator = generator_of(problem)
    storages = [torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator) for size in problem.storages]
    scales = {}
    for number, call in enumerate(problem.calls):
        palette = torch.tensor(call.palette).to(FP8)
        for index, group in enumerate(call.groups):
            for name in OPERANDS[call.products]:
                rows = 1 if call.products == 0 and name == "b" else group.rows(name)
                drawn = torch.randint(0, len(palette), (group.l, rows, group.k // 16), generator=generator)
                values = palette.view(torch.uint8)[drawn].view(FP8).permute(1, 2, 0)
                scales[number, index, name] = values
                padding = atoms(bytes_of(storages, group.blocks[f"sf{name}"]), group.rows(name), group.k, group.l)
                scales_of(storages, group, f"sf{name}").copy_(reference.reorder_scales(values, padding))
    return storages, scales


def expected(problem, storages, scales):
    """The storages after all calls, one after the other."""
    after = [storage.clone() for storage in storages]
    for number, call in enumerate(problem.calls):
        for index, group in enumerate(call.groups):
            c = output(after, group, call.products)
            a, *others = (
                (operand(after, group, name), scales[number, index, name]) for name in OPERANDS[call.products]
            )
            results = []
            for batch in range(group.l if group.m else 0):
                left, *right = ((values[:, :, batch], sf[:, :, batch]) for values, sf in (a, *others))
                if call.products == 0:
                    ((b, sfb),) = right  # the vector is the left operand: float64_mm splits its right one
                    results.append(reference.float64_mm(b[:1], left[0], sfb, left[1]).T)
                    continue
                gate, *up = (reference.float64_mm(left[0], b, left[1], sfb) for b, sfb in right)
                results.append(torch.nn.functional.silu(gate) * up[0] if up else gate)
            for batch, exact in enumerate(results):
                c[:, :, batch] = reference.round_to_float16(exact)
    return after


def loosened(rng, tensor):
    """The tensor, sometimes with other strides in dimensions with one entry."""
    if rng.random() >= LOOSE or tensor.numel() == 0:
        return tensor
    pairs = zip(tensor.shape, tensor.stride())
    strides = [stride if size > 1 else rng.choice((0, 1, 5, 1 << 20)) for size, stride in pairs]
    return torch.as_strided(tensor, tensor.shape, strides, tensor.storage_offset())


def unread(rng, group, name):
    """Row-major scales that no kernel may read: all of them NaN, on any device."""
    shape, device = (group.l, group.rows(name), group.k // reference.SF_VECTOR), rng.choice(("cpu", "cuda"))
    return torch.full(shape, NAN_BYTE, dtype=torch.uint8, device=device).view(FP8).permute(1, 2, 0)


def arguments(problem, number, storages):
    """The tuple of a call and its outputs, in these storages."""
    call, rng = problem.calls[number], random.Random(f"{problem.seed} strides {problem.number} {number}")
    operands, row_major, reordered, outputs = [], [], [], []
    for group in call.groups:
        names = OPERANDS[call.products]
        operands.append([loosened(rng, operand(storages, group, name)) for name in names])
        reordered.append([loosened(rng, scales_of(storages, group, f"sf{name}")) for name in names])
        row_major.append([unread(rng, group, name) for name in names])
        outputs.append(loosened(rng, output(storages, group, call.products)))
    if call.kind != "group_gemm":
        return (*operands[0], *row_major[0], *reordered[0], outputs[0]), outputs
    abc = [(a, b, c) for (a, b), c in zip(operands, outputs)]
    sizes = [(group.m, group.n, group.k, group.l) for group in call.groups]
    return (abc, list(map(tuple, row_major)), list(map(tuple, reordered)), sizes), outputs


# ---- Comparison ----


def ordered(values):
    """Ranks of float16 values in ascending order; both zeros have 0."""
    bits = values.contiguous().view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


def close(want, found):
    """True if all values are equal or neighbours: gate and up are exact, silu and product are within a few fp32 ulps
    of the exact value, and where float16's rounding turns over, the nearest value is one of two."""
    return bool(found.isnan().equal(want.isnan()) and ((ordered(found) - ordered(want)).abs() <= 1).all())


def describe(want, found):
    """The differing elements of (M, N, L) float16 tensors, as text."""
    places = (want.contiguous().view(torch.int16) != found.contiguous().view(torch.int16)).nonzero().tolist()
    shown = [
        f"at {place}: got {found[tuple(place)].item():g}, want {want[tuple(place)].item():g}"
        for place in places[:SHOWN]
    ]
    return "\n      ".join([f"{len(places)} of {want.numel()} elements differ", *shown])


def differences(problem, want, found):
    """Differences of each output, and of bytes beside outputs, from the expected ones, as text; found is changed."""
    texts = []
    for number, call in reversed(list(enumerate(problem.calls))):
        for index, group in enumerate(call.groups):
            ours, theirs = (bytes_of(storages, group.blocks["c"]) for storages in (found, want))
            if ours.equal(theirs):
                continue
            values = [output(storages, group, call.products) for storages in (want, found)]
            if call.products < 2 or not close(*values):
                texts.insert(0, f"call {number}, group {index}, c: {describe(*values)}")
            ours.copy_(theirs)  # overwritten because an earlier call's output may overlap it
    for index, (ours, theirs) in enumerate(zip(found, want)):
        places = (ours != theirs).nonzero().flatten().tolist()
        if places:
            texts.append(f"storage {index}: {len(places)} bytes beside every output are changed, the first {places[0]}")
    return texts
