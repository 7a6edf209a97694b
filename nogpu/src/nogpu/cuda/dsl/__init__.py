"""CuTe DSL on the device: its compiled host code calls the CUDA runtime of cuda.programs, and its PTX is kept."""
