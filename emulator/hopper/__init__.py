"""B200 kernels on a Hopper GPU: their PTX is lowered to sm_90a and launched there, with real CUDA tensors.

    python -m emulator --device hopper SCRIPT ARGS...

Memory, TMA, mbarriers, clusters and launches are the hardware's. Tensor memory and the tensor core, which a Hopper
lacks, are software in exact mode, so that results are those of a B200, and left out in timing mode, so that the time
of everything else can be measured. Bare mode also leaves out what stands in for conversions from e2m1, which a B200 has
in hardware: one instruction each, with wrong values.

    lower       the PTX of one kernel -> sm_90a; rules and rules_* have the instructions, statements reads the text
    maps        tensor maps of 4-bit elements, which a Hopper does not know
    library     the device functions that lowered PTX calls, in library.cu, compiled by NVRTC
    gpu         the CUDA driver
    launch      kernels that have been loaded, and their launches
    plain_read  a measure of the memory's speed, to time beside kernels
"""

MODES = ("exact", "timing", "bare")
