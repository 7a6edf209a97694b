"""CUDA C++ programs on the device: torch extensions, programs that nvcc has linked, and single .cu files.

runtime/        C: stands in for libcudart.so and libcuda.so; passes each call on to the function here that has its name
connection      connects runtime/ to the table of `entries`, which memory, queues, devices, launches, driver fill
status          error codes, sticky errors, and the code of an EmulatorError
fatbin, modules what a program registers: PTX out of fat binaries, kernels, variables (cuda.modules, cuda.handles)
toolkit, nvcc   a folder that looks like a CUDA toolkit, with NVIDIA's compiler from PyPI behind it
builds          torch.utils.cpp_extension, with torch_headers/ for what torch's CPU build lacks
extensions      calls of torch's extensions
runtime_compilation   torch.cuda._compile_kernel by nvcc
graphs          CUDA graphs
arrays, driver_arrays, textures   CUDA arrays, textures and surfaces, by the runtime's and the driver's structures
programs        `nogpu run a.out` and `nogpu run file.cu`
"""
