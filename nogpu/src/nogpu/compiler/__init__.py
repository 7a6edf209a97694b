"""Entry -> Program: PTX instructions become row code, arrays of compiled operations, which warps run.

ptx.ir.Entry
  | linking     calls expanded, brx.idx as branches
  | carry       the flag CC.CF as a register
  | steps       row of the opcode table (opcodes/) per instruction, registers read and written, branch targets
  | flow        basic blocks, reconvergence points, live registers, uniform registers
  | nesting     short branches that need not end a turn
  | rowcode     slots and operations
  | python_rows a Python function per instruction: sources (operands), code
  | segments    control flow
  v translate   addresses of kernels, the runner
hardware.program.Program
"""
