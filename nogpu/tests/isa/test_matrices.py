"""ldmatrix, stmatrix and movmatrix: every shape and type, element by element, against the PTX ISA's fragments."""

import numpy as np
import pytest

from tests.support.small_kernels import aligned, launch, store


@pytest.mark.parametrize("transposed", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrix_moves(count, transposed):
    """The fragment is that of PTX ISA, "ldmatrix": thread t holds elements (t / 4, 2 (t % 4)) and the next of each 8x8
    matrix, or of its transpose.
    """
    matrices = np.random.default_rng(2).integers(0, 1 << 16, (count, 8, 8)).astype(np.uint16)
    fragments = (matrices.transpose(0, 2, 1) if transposed else matrices).reshape(count, 32, 2)
    words = np.ascontiguousarray(fragments).view(np.uint32).reshape(count, 32)
    out, source = np.zeros((count, 32), np.uint32), np.zeros((count, 8, 8), np.uint16)
    items = "{" + ", ".join(f"%r{20 + i}" for i in range(count)) + "}"
    copy_in = "".join(
        f"ld.global.b32 %r{30 + i}, [%rd1+{128 * i}]; st.shared.b32 [%r3+{128 * i}], %r{30 + i};" for i in range(count)
    )
    addresses = (
        "mov.u32 %r2, smem; mad.lo.u32 %r3, %tid, 4, %r2; mad.lo.u32 %r4, %tid, 16, %r2; "
        "mad.wide.u32 %rd1, %tid, 4, %a1;"
    )
    save = "".join(f"st.global.b32 [%rd2+{128 * i}], %r{20 + i};" for i in range(count))
    body = (
        f"{addresses} {copy_in} bar.warp.sync -1; "
        f"ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {items}, [%r4]; "
        f"mad.wide.u32 %rd2, %tid, 4, %a0; {save}"
    )
    launch(body, out, matrices)
    np.testing.assert_array_equal(out, words)
    load = "".join(f"ld.global.b32 %r{20 + i}, [%rd1+{128 * i}];" for i in range(count))
    copy_out = "".join(
        f"ld.shared.b32 %r{30 + i}, [%r3+{128 * i}]; st.global.b32 [%rd2+{128 * i}], %r{30 + i};" for i in range(count)
    )
    store_matrix = f"stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [%r4], {items};"
    launch(
        f"{addresses} {load} {store_matrix} bar.warp.sync -1; mad.wide.u32 %rd2, %tid, 4, %a0; {copy_out}",
        source,
        words,
    )
    np.testing.assert_array_equal(source, matrices)


def packed(elements, bits):
    """Rows of 16 packed elements as 16 bytes, padded with ones."""
    rows = np.full((len(elements), 16), 0xFF, np.uint8)
    for i, row in enumerate(elements):
        word = sum(int(element) << bits * j for j, element in enumerate(row))
        rows[i, : 2 * bits] = np.frombuffer(word.to_bytes(2 * bits, "little"), np.uint8)
    return rows


def loaded(instruction, memory, registers, generic=False):
    """The registers after an instruction, uint8[registers, 32 lanes, 4]. Lane i has the address of row i."""
    out = np.zeros((registers, 32), np.uint32)
    items = "{" + ", ".join(f"%r{20 + i}" for i in range(registers)) + "}"
    address = "cvt.u64.u32 %rd3, %r4; cvta.shared.u64 %rd3, %rd3;" if generic else ""
    save = "".join(f"st.global.b32 [%rd2+{128 * i}], %r{20 + i};" for i in range(registers))
    body = f"""
        mov.u32 %r2, smem; mad.lo.u32 %r4, %tid, 16, %r2; mad.wide.u32 %rd1, %tid, 16, %a1;
        mad.wide.u32 %rd2, %tid, 4, %a0;
        ld.global.v2.b64 {{%rd5, %rd6}}, [%rd1]; st.shared.v2.b64 [%r4], {{%rd5, %rd6}}; bar.warp.sync -1; {address}
        {instruction} {items}, [{"%rd3" if generic else "%r4"}]; {save}
    """
    launch(body, out, aligned(np.resize(memory, 512)))
    return out.view(np.uint8).reshape(registers, 32, 4)


FORMATS = [("b8", 8), ("b8x16.b6x16_p32", 6), ("b8x16.b4x16_p64", 4)]


@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
@pytest.mark.parametrize("name,bits", FORMATS)
@pytest.mark.parametrize("count", [1, 2])
def test_square_matrices_of_bytes(count, name, bits, space):
    elements = np.random.default_rng(4).integers(0, 1 << bits, (16 * count, 16))
    opcode = f"ldmatrix.sync.aligned.m16n16.x{count}.trans{space}.{name}"
    got = loaded(opcode, packed(elements, bits), 2 * count, generic=not space)
    for matrix in range(count):
        for lane in range(32):
            for register in range(2):
                for i in range(4):
                    row, column = lane // 4 + 8 * register, 4 * (lane % 4) + i  # place in the transposed matrix
                    assert got[2 * matrix + register, lane, i] == elements[16 * matrix + column, row]


@pytest.mark.parametrize("space", [".shared", ""])
@pytest.mark.parametrize("name,bits", FORMATS[1:])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_flat_matrices_of_bytes(count, name, bits, space):
    elements = np.random.default_rng(5).integers(0, 1 << bits, (8 * count, 16))
    opcode = f"ldmatrix.sync.aligned.m8n16.x{count}{space}.{name}"
    got = loaded(opcode, packed(elements, bits), count, generic=not space)
    for matrix in range(count):
        for lane in range(32):
            for i in range(4):
                assert got[matrix, lane, i] == elements[8 * matrix + lane // 4, 4 * (lane % 4) + i]


@pytest.mark.parametrize("space", [".shared", ""])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stores_of_transposed_bytes(count, space):
    """The fragment of a 16x8 accumulator: rows t / 4 and t / 4 + 8, columns 2 (t % 4) and 2 (t % 4) + 1."""
    fragments = np.random.default_rng(6).integers(0, 256, (count, 32, 4)).astype(np.uint8)
    memory = np.zeros((32, 16), np.uint8)
    load = "".join(f"ld.global.b32 %r{20 + i}, [%rd1+{128 * i}];" for i in range(count))
    items = ", ".join(f"%r{20 + i}" for i in range(count))
    place = "%r4" if space else "%rd3"
    body = f"""
        mov.u32 %r2, smem; mad.lo.u32 %r4, %tid, 16, %r2; mad.wide.u32 %rd1, %tid, 4, %a1;
        mad.wide.u32 %rd2, %tid, 16, %a0;
        mov.u64 %rd5, 0; st.shared.v2.b64 [%r4], {{%rd5, %rd5}}; cvt.u64.u32 %rd3, %r4; cvta.shared.u64 %rd3, %rd3;
        bar.warp.sync -1;
        {load} stmatrix.sync.aligned.m16n8.x{count}.trans{space}.b8 [{place}], {{{items}}}; bar.warp.sync -1;
        ld.shared.v2.b64 {{%rd5, %rd6}}, [%r4]; st.global.b64 [%rd2], %rd5; st.global.b64 [%rd2+8], %rd6;
    """
    launch(body, memory, fragments)
    expected = np.zeros((32, 16), np.uint8)
    for matrix in range(count):
        for lane in range(32):
            for i in range(4):
                row, column = lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2
                expected[8 * matrix + column, row] = fragments[matrix, lane, i]
    np.testing.assert_array_equal(memory, expected)


def test_a_matrix_in_registers():
    matrix = np.random.default_rng(7).integers(0, 1 << 16, (8, 8)).astype(np.uint16)
    out = np.zeros(32, np.uint32)
    body = "mad.wide.u32 %rd1, %tid, 4, %a1; ld.global.b32 %r2, [%rd1]; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;"
    launch(body + store("%r1"), out, matrix)
    np.testing.assert_array_equal(out.view(np.uint16).reshape(8, 8), matrix.T)
