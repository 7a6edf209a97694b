"""Tensor maps whose elements are padded in shared memory: b4x16_p64 and b6x16_p32, against single elements."""

import numpy as np
import pytest

from nogpu.errors import EmulatorError, Fault
from nogpu.hardware.memory import GlobalMemory
from nogpu.hardware.shared_memory import SharedMemory
from nogpu.hardware.tensor.elements import unpad
from nogpu.hardware.tma import boxes, rules
from nogpu.hardware.tma.swizzle import swizzle
from nogpu.hardware.tma.tensor_map import TensorMap
from tests.support.encoding import tensor_map
from tests.support.small_kernels import aligned, launch

BITS = {"b4x16_p64": 4, "b6x16_p32": 6}
DIMS, BOX, AT = (384, 5), (128, 4), 0x1800
PLACES = [(0, 0), (256, 1), (128, -2), (-128, 0), (384, 4)]
SWIZZLES = [(0, "16B"), (128, "16B"), (128, "32B"), (128, "64B")]
FORMS = pytest.mark.parametrize("element", BITS)


def packed(codes, bits):
    """Rows of codes as packed bytes."""
    digits = np.unpackbits(codes.astype(np.uint8)[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(digits.reshape(len(codes), -1), axis=-1, bitorder="little")


class Tensor:
    """Codes uint8[5, 384] and their map."""

    def __init__(self, element, span=0, atom="16B", box=BOX):
        self.bits = BITS[element]
        self.codes = np.random.default_rng(1).integers(0, 1 << self.bits, DIMS[::-1]).astype(np.uint8)
        rows = packed(self.codes, self.bits)
        self.data = aligned(rows)
        self.memory = GlobalMemory()
        self.memory.register(self.data.ctypes.data, self.data.nbytes, "tensor")
        self.raw = tensor_map(self.data.ctypes.data, DIMS, (rows.shape[1],), box, element, span, atom=atom)
        self.map, self.span, self.atom = TensorMap.decode(self.raw), span, int(atom[:2])

    def box(self, coords):
        """Codes uint8[4, 128], zeros outside of the tensor."""
        found = np.zeros(BOX[::-1], np.uint8)
        for row, column in np.ndindex(*found.shape):
            x, y = coords[0] + column, coords[1] + row
            if 0 <= x < DIMS[0] and 0 <= y < DIMS[1]:
                found[row, column] = self.codes[y, x]
        return found

    def chunk(self, row, group):
        """Address of the 16 bytes that hold elements [16 group, 16 group + 16) of a row of the box."""
        return 16 * int(swizzle(np.array([(AT + 128 * row) // 16 + group]), self.span, self.atom)[0])


@FORMS
@pytest.mark.parametrize("span,atom", SWIZZLES)
@pytest.mark.parametrize("coords", PLACES)
def test_loads(element, span, atom, coords):
    tensor, shared = Tensor(element, span, atom), SharedMemory(8192)
    boxes.load_tile(tensor.map, coords, tensor.memory, shared, AT)
    expected, used = tensor.box(coords), 2 * tensor.bits
    for row, group in np.ndindex(4, 8):
        chunk = shared.data[tensor.chunk(row, group) :][:16]
        codes = expected[row, 16 * group : 16 * group + 16]
        assert np.array_equal(chunk[:used], packed(codes[None], tensor.bits)[0])
        assert np.array_equal(unpad(np.ascontiguousarray(chunk), tensor.bits), codes)  # the tensor core's view of it
    assert rules.tile_bytes(tensor.map) == 512 and rules.counted_bytes(tensor.map) == 64 * tensor.bits
    untouched = np.ones(len(shared.data), bool)
    untouched[AT : AT + 512] = False
    assert (shared.data[untouched] == 0xFF).all()


@FORMS
def test_gathered_rows(element):
    tensor, shared = Tensor(element, 128, box=(128, 1)), SharedMemory(8192)
    boxes.load_tile(tensor.map, (128, 3, 0, 4, 9), tensor.memory, shared, AT, mode="rows")
    for i, row in enumerate((3, 0, 4, 9)):
        for group in range(8):
            chunk = np.ascontiguousarray(shared.data[tensor.chunk(i, group) :][:16])
            codes = tensor.codes[row, 128 + 16 * group :][:16] if row < DIMS[1] else np.zeros(16, np.uint8)
            assert np.array_equal(unpad(chunk, tensor.bits), codes)
    assert rules.counted_bytes(tensor.map, mode="rows") == 64 * tensor.bits


@pytest.mark.parametrize("span,atom", SWIZZLES)
def test_stores(span, atom):
    tensor, shared = Tensor("b6x16_p32", span, atom), SharedMemory(8192)
    before = tensor.codes.copy()
    boxes.load_tile(tensor.map, (128, 1), tensor.memory, shared, AT)
    tensor.data[...] = 0
    box = boxes.read_tile(tensor.map, (128, 1), shared, AT)
    assert boxes.write_tile(tensor.map, (256, 3), tensor.memory, box) == 2 * 96
    expected = np.zeros_like(before)
    expected[3:5, 256:] = before[1:3, 128:256]
    assert np.array_equal(tensor.data, packed(expected, 6))


def test_stores_that_do_not_exist():
    tensor, shared = Tensor("b4x16_p64"), SharedMemory(8192)
    with pytest.raises(Fault, match="does not have b4x16_p64 elements"):
        boxes.read_tile(tensor.map, (0, 0), shared, AT)


@FORMS
def test_coordinates(element):
    tensor, shared = Tensor(element), SharedMemory(8192)
    with pytest.raises(Fault, match="coordinate 64 of .* elements is not a multiple of 128"):
        boxes.load_tile(tensor.map, (64, 0), tensor.memory, shared, AT)


LOAD = """
    mov.u32 %r10, smem; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %tid, 0; mov.u32 %r1, 128; mov.u32 %r2, 1;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r11], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r11], {expected};
    cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r10], [%a1, {{%r1, %r2}}], [%r11];
    READY: bar.sync 0; W: mbarrier.try_wait.parity.shared.b64 %p2, [%r11], 0; @!%p2 bra W;
    mad.lo.u32 %r3, %tid, 16, %r10; ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3];
    mad.wide.u32 %rd1, %tid, 16, %a0; st.global.v4.b32 [%rd1], {{%r4, %r5, %r6, %r7}};
"""


@FORMS
@pytest.mark.parametrize("schedule", ["late", "eager", "random:1"])
def test_the_barrier_counts_elements_without_padding(element, schedule):
    tensor, out = Tensor(element), np.zeros(512, np.uint8)
    raw = aligned(tensor.raw)
    launch(LOAD.format(expected=64 * tensor.bits), out, raw, tensor.data, schedule=schedule)
    assert np.array_equal(unpad(out, tensor.bits).reshape(4, 128), tensor.box((128, 1)))
    with pytest.raises(EmulatorError, match="hangs|bytes outstanding"):
        launch(LOAD.format(expected=512), out, raw, tensor.data, schedule=schedule)
