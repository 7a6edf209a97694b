"""The host's interfaces to the device: CuTe DSL's runtime, cuda.bindings, torch's device "cuda", PTX modules."""
