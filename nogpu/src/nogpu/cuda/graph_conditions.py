"""The conditions of graphs' conditional nodes: words of global memory, whose addresses are their handles.

cudaGraphSetConditional, which a driver provides, is PTX at the end of the modules that declare it.
"""

from __future__ import annotations

import re

NBYTES = 4
"""Size of a condition."""

_DECLARED = re.compile(r"\.extern\s+\.func\s+cudaGraphSetConditional\b")
_PTX = """
.func cudaGraphSetConditional(.param .b64 handle, .param .b32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.b64 %rd1, [handle];
    ld.param.b32 %r1, [value];
    st.global.b32 [%rd1], %r1;
    ret;
}
"""


def with_conditions(text: str) -> str:
    """A module's PTX, with cudaGraphSetConditional if it declares that."""
    return text.rstrip("\0") + _PTX if _DECLARED.search(text) else text
