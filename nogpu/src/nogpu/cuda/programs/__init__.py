"""CUDA C++ programs on the device: torch extensions, programs that nvcc has linked, and single .cu files.

runtime/        C: stands in for libcudart.so and libcuda.so; passes each call on to the function here that has its name
connection      connects the entry points to `entries`, of which memory, queues, devices, launches, driver are full
status          error codes, sticky errors, and how an EmulatorError becomes one
fatbin, modules what a program registers: PTX out of fat binaries, kernels, variables (cuda.modules, cuda.handles)
toolkit, nvcc   a folder that looks like a CUDA toolkit, with NVIDIA's compiler from PyPI behind it
extensions      torch.utils.cpp_extension, with torch_headers/ for what torch's CPU build lacks
runtime_compilation   torch.cuda._compile_kernel by nvcc
graphs          CUDA graphs
programs        `nogpu run a.out` and `nogpu run file.cu`
"""
