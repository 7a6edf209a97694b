"""PTX text to entries, instructions and operands: one parser for the emulator and the Hopper path."""
