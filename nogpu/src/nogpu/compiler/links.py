"""Descriptions of chains for the kernel of native/chains.c."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nogpu import headers
from nogpu.compiler.chains import Chain, is_integer
from nogpu.compiler.rowcode.assembler import Assembler
from nogpu.ptx.ir import Instruction

_HEAD, _PLACE, _LINK = (headers.packer("native/chains.c", name) for name in ("Chain", "Place", "Link"))
_ROW, _ONE, _LAST = headers.constants("native/chains.c", "FROM_ROW", "FROM_ONE", "FROM_LAST")
_COPIED, _INTEGER, _FUSED = headers.constants("native/chains.c", "COPIED", "INTEGER", "MULTIPLIED_AND_SUMMED")
_OPERATIONS = dict(
    zip(("add", "sub", "mul"), headers.constants("native/chains.c", "SUMMED", "SUBTRACTED", "MULTIPLIED"), strict=True)
)


def described(
    code: Assembler, chain: Chain, instructions: Sequence[Instruction], ops: Mapping[int, int], length: int
) -> bytes:
    """The description of a chain. ops: instruction -> distance to its operation; length: distance to the one behind."""
    of_base: dict[str, list[int]] = {}
    for index in chain.loads:
        of_base.setdefault(instructions[index].operands[1].base.name, []).append(index)
    places: list[tuple[int, int, int]] = []
    distances: dict[int | None, tuple[int, int]] = {}  # load -> its place, distance from the least displacement
    for number, loads in enumerate(of_base.values()):
        at = [instructions[index].operands[1].offset for index in loads]
        places.append((ops[loads[0]], min(at) - at[0], max(at) - min(at)))
        distances.update({index: (number, x - min(at)) for index, x in zip(loads, at, strict=True)})

    last: int | None = None
    needed = set(chain.kept)  # members whose results are written
    links: list[tuple[int, int, list[int]]] = []
    for index in sorted(chain.kept.intersection(chain.loads).union(chain.arithmetic)):
        operation, operands = _COPIED, list[object]()
        makers: list[int | None] = [index]
        integer = is_integer(instructions[index])
        if index in chain.sources:
            name, operands = instructions[index].opcode.split(".")[0], list(instructions[index].operands[1:])
            makers = chain.sources[index]
            operation = _OPERATIONS.get(name, _FUSED)
            first = 2 if operation == _FUSED else int(name != "sub" and makers[1] == last)
            operands.insert(0, operands.pop(first))
            makers = [makers[first], *makers[:first], *makers[first + 1 :]]
            operation += _INTEGER * integer
        sources: list[int] = []
        for i, maker in enumerate(makers):
            if maker in distances:
                sources += distances[maker]
            elif i == 0 and maker is not None and maker == last and is_integer(instructions[maker]) == integer:
                sources += _LAST, 0
            else:
                if maker is not None:
                    needed.add(maker)
                source = code.source(operands[i], "u32" if integer else "f32")
                sources += _ROW if source.row else _ONE, source.offset
        links.append((index, operation, sources + [0] * (6 - len(sources))))
        last = index
    slots = {index: code.slots[instructions[index].operands[0].name].offset for index in needed}
    head = _HEAD.pack(len(places), len(links), length)
    packed = [_LINK.pack(operation, slots.get(index, -1), *sources) for index, operation, sources in links]
    return b"".join([head, *(_PLACE.pack(*place) for place in places), *packed])
