"""The clock on what others have published of a B200: ladders of a kernel's versions, phases of a launch."""
