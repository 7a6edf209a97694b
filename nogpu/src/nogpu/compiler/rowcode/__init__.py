"""Row code: a program as an array of compiled operations on the warp's register file (native/engine.h)."""
