"""B200 kernels on a Hopper GPU: their PTX is lowered to sm_90a and launched there, with real CUDA tensors.

    nogpu run --device hopper SCRIPT ARGS...

Memory, TMA, mbarriers, clusters and launches are the GPU's own. A Hopper has no tensor memory and no tcgen05 tensor
core. The mode says what replaces them:

    exact       software on the GPU; results are a B200's
    timing      nothing; results are worthless, all other instructions take their real time
    bare        nothing, and a conversion from e2m1 is one instruction with wrong values: a B200 has one, and exact and
                timing mode need several on a Hopper

Modules:

    lower       the PTX of one kernel -> sm_90a, by the rules of rules and rules_*
    statements  instructions as they are written, and the blocks of PTX that replace them
    maps        tensor maps of 4-bit elements, which a Hopper does not have
    library     the device functions that lowered PTX calls (library.cu), compiled by NVRTC
    gpu         the CUDA driver
    launch      loaded kernels and their launches
    plain_read  a plain read of global memory, to time beside kernels
"""

__all__ = ["MODES", "gpu", "library", "lower", "plain_read"]

MODES = ("exact", "timing", "bare")
