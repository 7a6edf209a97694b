"""Programs of others on the emulator: lists of them, runs, verdicts, what the sanitizer reports, tables."""
