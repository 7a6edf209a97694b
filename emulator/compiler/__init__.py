"""Instructions to Python functions: linking, control flow, operands, segments and the opcode table."""
