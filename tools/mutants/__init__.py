"""Makes mutants (workshop.mutants) of the kernel, and of kernels that the caller has.

programs        the kernels, and calls that need all of their instructions
survivors.toml  the mutants that nothing notices, each with its reason
tables          counts by kind and by program, as Markdown
"""

from pathlib import Path

SURVIVORS = Path(__file__).with_name("survivors.toml")
