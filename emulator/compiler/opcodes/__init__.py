"""The opcode table: a row maps a family of opcodes to the code that a segment gets for it."""
