"""The opcode table: a row maps a family of opcodes to its kernels and its call of Python."""
