"""Modules that the contests of GPU MODE lay beside a submission: what a program imports as `utils`."""
