"""The clock beside published times of a B200: ladders of a kernel's versions, phases of a launch."""
