"""Programs of others on the emulator: lists of them, runs, verdicts, the sanitizer's reports, tables."""
