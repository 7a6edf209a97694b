"""Entry -> Program: PTX instructions become Python functions, which warps run.

ptx.ir.Entry
  | linking     calls expanded, brx.idx as branches
  | carry       the flag CC.CF as a register
  | steps       row of the opcode table (opcodes/) per instruction, registers read and written, branch targets
  | flow        basic blocks, reconvergence points, live registers, uniform registers
  | nesting     short branches as `if` statements
  | segments    Python text of one function per segment: sources (operands), code (instructions)
  v translate   text compiled in the names of namespace
hardware.program.Program
"""
