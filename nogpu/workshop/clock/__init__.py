"""The clock on what others have published of a B200: microbenchmarks, and ladders of a kernel's versions."""
