"""Modules that the contests of GPU MODE place beside a submission, which imports `utils`."""
