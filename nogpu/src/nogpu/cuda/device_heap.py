"""A heap in each module whose device code calls malloc and free, directly or by C++'s new and delete.

The functions are PTX at the end of the module, so that lines keep their numbers. A place is taken at the heap's end;
the heap is empty again when all of its places have been freed.
"""

from __future__ import annotations

import re

limit = 8 << 20
"""Bytes of the heap of modules that are read from now on: cudaLimitMallocHeapSize."""

_MOST = (1 << 40) - 1  # bytes; the state's word has the heap's end below bit 40 and the number of places above
_DECLARED = re.compile(r"\.extern\s+\.func\s+(?:\([^()]*\)\s*malloc|free)\b")
_PTX = """
.global .align 8 .u64 nogpu_heap_state;
.global .align 16 .b8 nogpu_heap[{limit}];
.func (.param .b64 func_retval0) malloc(.param .b64 malloc_param_0)
{{
    .reg .pred %p<2>;
    .reg .b64 %rd<6>;
    ld.param.b64 %rd1, [malloc_param_0];
    setp.gt.u64 %p1, %rd1, {limit};
    @%p1 bra NONE;
    add.u64 %rd1, %rd1, 15;
    and.b64 %rd1, %rd1, -16;
    add.u64 %rd2, %rd1, {place};
    atom.acq_rel.gpu.global.add.u64 %rd3, [nogpu_heap_state], %rd2;
    and.b64 %rd3, %rd3, {end};
    add.u64 %rd4, %rd3, %rd1;
    setp.gt.u64 %p1, %rd4, {limit};
    @%p1 bra FULL;
    mov.u64 %rd5, nogpu_heap;
    cvta.global.u64 %rd5, %rd5;
    add.u64 %rd5, %rd5, %rd3;
    st.param.b64 [func_retval0], %rd5;
    ret;
FULL:
    neg.s64 %rd2, %rd2;
    atom.acq_rel.gpu.global.add.u64 %rd3, [nogpu_heap_state], %rd2;
NONE:
    st.param.b64 [func_retval0], 0;
    ret;
}}
.func free(.param .b64 free_param_0)
{{
    .reg .pred %p<2>;
    .reg .b64 %rd<4>;
    ld.param.b64 %rd1, [free_param_0];
    setp.eq.u64 %p1, %rd1, 0;
    @%p1 bra END;
    atom.acq_rel.gpu.global.add.u64 %rd2, [nogpu_heap_state], -{place};
    sub.u64 %rd2, %rd2, {place};
    setp.gt.u64 %p1, %rd2, {end};
    @%p1 bra END;
    atom.acq_rel.gpu.global.cas.b64 %rd3, [nogpu_heap_state], %rd2, 0;
END:
    ret;
}}
"""


def with_heap(text: str) -> str:
    """A module's PTX, with a heap if it declares malloc or free."""
    if not _DECLARED.search(text):
        return text
    return text.rstrip("\0") + _PTX.format(limit=limit, place=_MOST + 1, end=_MOST)
