"""What host programs talk to: the DSL's runtime, cuda.bindings, torch's device "cuda", PTX modules."""
