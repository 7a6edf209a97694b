"""The instruction set: one table of opcodes, a row for each family of forms."""
