"""The host's interfaces to the device: one driver core, and an adapter for each front.

The modules and what they hold:

modules     Module: text, entries, variables. Kernel, one per name of a module: entry, attributes of the function,
            launches.
handles     numbers of modules and kernels, for the fronts that pass numbers: DSL, Triton, CUDA C++
arguments   bytes of parameters from Python values, for Kernel.launch; other fronts have the bytes
backends    the emulated B200 or a Hopper GPU: memory, variables, attributes of the device, the way of a launch to it
queues, events, graphs    handles of cudaStream_t and cudaEvent_t and what they order; launches that are captured

LaunchConfig (hardware.properties) is a launch's grid, block, cluster, shared memory and flags: each front makes one of
its own structure. The machine below them is execution.device.Device. Errors are EmulatorErrors, which become error
codes in CUDA C++ only (programs.status).

Fronts: loader (PTX text), bindings (cuda.bindings), triton_driver, programs (C functions by the names of CUDA's runtime
and driver), dsl (some of the same functions, for CuTe DSL's host code), torch_*.
"""
