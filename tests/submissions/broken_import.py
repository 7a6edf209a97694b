"""A submission that cannot be imported."""

raise ImportError("no module named tvm_ffi")
