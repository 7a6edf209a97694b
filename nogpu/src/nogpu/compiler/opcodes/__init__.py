"""The opcode table: a row maps a family of opcodes to its kernels and its Python text."""
