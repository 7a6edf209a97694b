"""nogpu COMMAND [OPTIONS] PROGRAM ARGS...: restarts this process as the program, on the emulated device."""

from __future__ import annotations

import os
import sys

from nogpu import commands, settings, store, toolchain, verdict
from nogpu.activation import environment
from nogpu.cuda.programs import libraries, programs
from nogpu.errors import EmulatorError


def interpreter_options() -> list[str]:
    """The options that Python itself was started with, without the -m that names this module."""
    options = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv)]
    if options and options[-1].startswith("-") and options[-1].endswith("m"):
        options[-1:] = [options[-1][:-1]] if len(options[-1]) > 2 else []
    return options


def prepare(device: str) -> None:
    """Make the libraries that programs on the device load. Raises RuntimeError as `toolchain.build` does."""
    libraries.library(libraries.CUTE_DSL)
    for source in () if device == "hopper" else ("cuda/torch_allocations.c", "native"):
        toolchain.build(source)


def main() -> None:
    """Runs the command that the command line names. Ends the process, or replaces it by the program."""
    arguments = sys.argv[1:]
    try:
        if not arguments:
            print(f"{commands.overview()}\nnogpu: error: a program is needed", file=sys.stderr)
            sys.exit(commands.EXIT_USAGE)
        if arguments in (["-h"], ["--help"]):
            print(commands.overview(), end="")
        elif arguments == ["--version"]:
            print(f"nogpu {commands.version()}")
        elif arguments[0] == "bench":
            from nogpu import bench

            bench.main(arguments[1:])
        elif arguments[0] == "support":
            from nogpu import support

            support.main(arguments[1:])
        else:
            start(arguments)
    except KeyboardInterrupt:
        print("nogpu: interrupted", file=sys.stderr)
        sys.exit(commands.EXIT_INTERRUPTED)


def start(arguments: list[str]) -> None:
    """Replace this process by the program, or run the program in a child and judge it."""
    options = commands.parse(arguments)
    values = {name: getattr(options, name, None) for name in settings.SETTINGS}
    try:
        settings.check(environment(options.device, **values))
    except ValueError as error:
        commands.wrong_usage(options.command, str(error))

    def run() -> None:
        replace(options.program, options.device, values)

    if options.is_judged:
        verdict.judged(options.command, options.program, options.json, run)
    run()


def replace(program: list[str], device: str, values: dict[str, object]) -> None:
    """Replace this process by the program on a device, with these settings. Exits if that cannot be prepared."""
    try:
        prepare(device)
    except RuntimeError as error:
        print(f"nogpu: {error}", file=sys.stderr)
        sys.exit(commands.EXIT_SETUP)
    variables = environment(device, **values)
    command = [sys.executable, *interpreter_options(), *program]
    if programs.is_program(program[0]):
        try:
            command, variables = programs.command(program, variables)
        except (EmulatorError, RuntimeError) as error:
            print(f"nogpu: {error}", file=sys.stderr)
            sys.exit(commands.EXIT_SETUP if isinstance(error, store.SetupError) else 1)
    for output in filter(None, (sys.stdout, sys.stderr)):  # a closed one is None
        output.flush()
    os.execve(command[0], command, variables)


if __name__ == "__main__":
    main()
