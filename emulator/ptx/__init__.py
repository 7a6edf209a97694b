"""PTX text to entries, instructions and operands: the one parser, for the emulator and for the Hopper path."""
