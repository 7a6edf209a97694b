"""PTX text to entries, instructions and operands: the one parser, of the emulator and of the Hopper path."""
