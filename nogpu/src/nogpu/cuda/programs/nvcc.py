"""Runs NVIDIA's nvcc, or the host's C++ compiler, for programs on the device; toolkit.home()/bin calls it.

    python nvcc.py nvcc ARGS...     NVIDIA's nvcc with ARGS, for PTX that the device runs and our CUDA runtime
    python nvcc.py g++ ARGS...      g++ with ARGS

Object files are kept in the user's cache and found there by what decides them: compiler, options, source, headers.
"""

from __future__ import annotations

import hashlib
import itertools
import marshal
import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":  # run as a file, to start fast: the package has to be found from here
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from nogpu import store
from nogpu.cuda.programs import missing_libraries, tensor_headers, toolkit
from nogpu.errors import EmulatorError
from nogpu.hardware.properties import of_process

_WITH_VALUE = (
    "-gencode",
    "--generate-code",
    "-arch",
    "--gpu-architecture",
    "-code",
    "--gpu-code",
    "-cudart",
    "--cudart",
)
_DEVICE_LINK = ("-dlink", "--device-link")
_NO_PROGRAM = ("-c", "--compile", "-dc", "--device-c", *_DEVICE_LINK, "-ptx", "-cubin", "-fatbin", "-E", "-M", "-MM")
_OPTIONS_FILES = ("-optf", "--options-file")
# Environment variables that g++ and nvcc read.
_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")
_PARTS = re.compile(r"(?:compute|sm|lto)_(\d+)([af]?)")
_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c", ".C")
_TORCH = re.compile(r"#\s*include\s*[<\"](?:torch|ATen|c10)/")
# A use of what the short headers of torch leave out
_WHOLE = re.compile(
    r"\btorch(?:::|/)(?:data|fft|jit|mps|nested|nn|optim|python|serialize|save|load|sparse|special|xpu)\b"
)
_QUOTED = re.compile(r"^\s*#\s*include\s*\"(.+?)\"", re.MULTILINE)
MAX_ENTRIES = 16  # per command and source, one for each version of headers


class Usage(Exception):
    """The error for options that cannot be followed."""


def architecture(values: list[str]) -> str:
    """The architecture to compile for, of those that options name: "100a" for "arch=compute_100a,code=sm_100a".

    Raises Usage if the device runs none of them (PTX ISA, ".target").
    """
    found = {(int(number), suffix) for value in values for number, suffix in _PARTS.findall(value)}
    properties = of_process()
    own = properties.architecture
    if not found or any(value in ("native", "all", "all-major") for value in values):
        found.add((own, "a"))
    runs = [(number, suffix) for number, suffix in found if properties.runs(number, suffix)]
    if not runs:
        names = ", ".join(sorted(f"sm_{number}{suffix}" for number, suffix in found))
        chip = "a Rubin" if properties.is_rubin else "a B200"
        raise Usage(f"the device, {chip}, runs no code for {names}: compile for sm_{own}a")
    number, suffix = max(runs)
    # "f" of the device's own architecture is the same to it as "a".
    return f"{number}{'a' if suffix and number == own else suffix}"


def rewritten(arguments: list[str]) -> list[str]:
    """nvcc's arguments for the device. Raises Usage for options that cannot be followed."""
    kept, architectures, rest = [], [], iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name not in _WITH_VALUE:
            # The driver takes a fat binary with PTX in the place of machine code.
            kept.append("-fatbin" if name in ("-cubin", "--cubin") else argument)
        else:
            value = value if equals else next(rest, "")
            if "cudart" not in name:
                architectures.append(value)
    missing = missing_libraries.of_options(kept)
    if missing:
        raise Usage(missing)
    target = architecture(architectures)
    # nvcc calls the device linker only beside a runtime: without machine code it names what the runtime has to link.
    relocatable = _may_be_relocatable(kept)
    # The device linker of 13.0 refuses the names of PTX alone ("specified arch exceeds buffer length").
    also = f",sm_{target}" if relocatable and "release 13.0" in toolkit.version() else ""
    kept += ["-gencode", f"arch=compute_{target},code=[compute_{target}{also}]"]
    kept += ["-cudart", "shared" if relocatable else "none"]
    # torch for CUDA pins the runtime's headers, to a version before the compiler's; they fit.
    kept += ["--compress-mode=none", "-DCCCL_DISABLE_CTK_COMPATIBILITY_CHECK"]
    if not any(a in _NO_PROGRAM for a in arguments):
        library = any(a in ("-shared", "--shared", "-lib", "--lib") for a in arguments)
        folder = toolkit.home() / "lib64"
        kept += [f"-L{folder}", f'-Xlinker=-rpath="{folder}"'] if library else [f"-L{folder / 'program'}"]
        kept += ["-lcudart"]
    return kept


def _may_be_relocatable(arguments: list[str]) -> bool:
    """True if nvcc's arguments ask for relocatable device code, or for a link of objects, which may have it."""
    if any(re.fullmatch(r"-rdc=(true|1)|--relocatable-device-code=(true|1)", a) for a in arguments):
        return True
    if any(
        after == "true" and a in ("-rdc", "--relocatable-device-code") for a, after in itertools.pairwise(arguments)
    ):
        return True
    if any(a in ("-dc", "--device-c", *_DEVICE_LINK) for a in arguments):
        return True
    return not any(a in _NO_PROGRAM for a in arguments) and any(a.endswith((".o", ".obj", ".a")) for a in arguments)


def expanded(arguments: list[str], options_files: tuple[str, ...] = ()) -> list[str]:
    """The arguments, with those of response files in place of each @FILE that exists.

    options_files: options whose value names response files, too. Raises Usage for a file that cannot be read.
    """
    found, rest = [], iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in options_files:
            files = (value if equals else next(rest, "")).split(",")
        elif argument.startswith("@") and Path(argument[1:]).is_file():
            files = [argument[1:]]
        else:
            found.append(argument)
            continue
        for file in files:
            try:
                words = shlex.split(Path(file).read_text())
            except (OSError, ValueError) as error:
                raise Usage(f"response file {file}: {error}") from None
            found += expanded(words, options_files)
    return found


def _output(arguments: list[str]) -> Path | None:
    """The object file that the arguments ask for; None if they ask for anything else."""
    if not any(a in ("-c", "--compile") for a in arguments):
        return None
    if sum(a.endswith(_SUFFIXES) for a in arguments) != 1 or "-o" not in arguments[:-1]:
        return None
    return Path(arguments[arguments.index("-o") + 1])


def _dependencies(text: str) -> list[str]:
    """The files that a makefile's rule names as prerequisites."""
    words = text.replace("\\\n", " ").partition(":")[2].replace("\\ ", "\0").split()
    return [word.replace("\0", " ") for word in words]


def _digest(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def _identity(command: list[str], output: Path) -> str:
    """A hash of all that decides an object but headers: compiler, options but names of outputs, variables, source."""
    options = ["-" if a in (str(output), f"{output}.d") else a for a in command]
    source = next(a for a in command if a.endswith(_SUFFIXES))
    compiler = toolkit.version() if command[0] == str(toolkit.nvcc()) else _version(command[0])
    torch = [folder.name for place in sys.path for folder in Path(place).glob("torch-*.dist-info")]
    environment = [os.environ.get(name) for name in _VARIABLES]
    contents = repr((options, environment, compiler, _version("c++"), torch, str(toolkit.home()), _digest(source)))
    return hashlib.sha256(contents.encode()).hexdigest()[:32]


def _version(compiler: str) -> str:
    return subprocess.run([compiler, "-v"], capture_output=True, text=True, check=False).stderr


def run(command: list[str]) -> int:
    """Run a compiler, or take the object from the cache. Returns the exit code."""
    output = _output(command)
    if output is None:
        done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
        _tell(command, done.returncode, done.stderr.decode(errors="replace"))
        return done.returncode
    if _is_kept(command, output):
        return 0
    short = _with_short_headers(command)
    if short and (_is_kept(short, output) or not _compile(short, output, is_last=False)):
        return 0
    return _compile(command, output)


def _folder(command: list[str], output: Path) -> Path:
    return store.root() / "compiled_objects" / _identity(command, output)


def _is_kept(command: list[str], output: Path) -> bool:
    """Take the object from the cache. Returns False if it is not there."""
    for entry in sorted(_folder(command, output).glob("*.sealed")):
        kept = store.read(entry)
        if kept is None:
            continue
        digests, made, rule, messages = marshal.loads(kept)
        if all(_digest(path) == digest for path, digest in digests.items()):
            output.write_bytes(made)
            if rule is not None:
                Path(f"{output}.d").write_bytes(rule)
            sys.stderr.write(messages)
            return True
    return False


def _with_short_headers(command: list[str]) -> list[str] | None:
    """The command with torch's short headers (tensor_headers.py); None for a source that needs none, or the whole ones.

    nvcc's -O is for host code alone, which calls torch and launches kernels there.
    """
    folder = toolkit.home() / "short"
    places = [Path(a[2:]) for a in command if a.startswith("-I") and Path(a[2:]) not in toolkit.include_folders()]
    text = _text(Path(next(a for a in command if a.endswith(_SUFFIXES))), places, set())
    if not folder.exists() or tensor_headers.SHORT in command or not _TORCH.search(text) or _WHOLE.search(text):
        return None
    compiler, *rest = command
    if compiler == str(toolkit.nvcc()):
        rest = ["-O1" if a in ("-O2", "-O3") else a for a in rest]
    return [compiler, f"-I{folder}", *tensor_headers.short_options(text), *rest]


def _text(source: Path, folders: list[Path], seen: set[Path]) -> str:
    """A source with the files that it includes by quoted names, beside it or in the folders."""
    seen.add(source)
    try:
        text = source.read_text(errors="replace")
    except OSError:
        return ""
    included = {folder / name for name in _QUOTED.findall(text) for folder in (source.parent, *folders)} - seen
    return "\n".join([text, *(_text(path, folders, seen) for path in sorted(included))])


def _tell(command: list[str], code: int, messages: str) -> None:
    """Print what a compiler has printed, and which of NVIDIA's libraries it has missed."""
    sys.stderr.write(messages)
    missing = missing_libraries.of_messages(messages) if code else None
    if missing:
        print(f"{Path(command[0]).name}: {missing}", file=sys.stderr)


def _compile(command: list[str], output: Path, is_last: bool = True) -> int:
    """Run a compiler and keep the object it makes, with the contents of the headers that may change.

    is_last: whether to print why it makes none. Returns the exit code.
    """
    rule = Path(f"{output}.d")
    asked = str(rule) in command
    done = subprocess.run(
        command if asked else [*command, "-MD", "-MF", str(rule)], stderr=subprocess.PIPE, check=False
    )
    messages = done.stderr.decode(errors="replace")
    if is_last or not done.returncode:
        _tell(command, done.returncode, messages)
    if done.returncode or not rule.exists():
        return done.returncode
    # Headers in these folders are of a version, which the identity has.
    fixed: tuple[str, ...] = ("/usr/include/c++/", "/usr/lib/gcc/")
    folders = [toolkit.nvcc().parents[1], toolkit.home(), *(Path(place) / "torch" for place in sys.path if place)]
    fixed += tuple(f"{os.path.realpath(folder)}/" for folder in folders)
    headers = [path for path in _dependencies(rule.read_text()) if not os.path.realpath(path).startswith(fixed)]
    digests = {path: _digest(path) for path in headers}
    key = hashlib.sha256(repr(digests).encode()).hexdigest()[:16]
    content = digests, output.read_bytes(), rule.read_bytes() if asked else None, messages
    if not asked:
        rule.unlink()
    folder = _folder(command, output)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        store.write(folder / f"{key}.sealed", marshal.dumps(content), MAX_ENTRIES)
    return 0


def main(arguments: list[str]) -> int:
    """Run the compiler that the first argument names. Returns the exit code."""
    compiler, rest = arguments[0], arguments[1:]
    try:
        headers = [f"-I{folder}" for folder in toolkit.include_folders()]
        if compiler == "nvcc":
            return run([str(toolkit.nvcc()), *headers, *rewritten(expanded(rest, _OPTIONS_FILES))])
        rest = expanded(rest)
        if "-c" not in rest and "-ltorch" in rest:  # TensorBase.h calls runtime/ in host code, too
            rest = [*rest, f"-L{toolkit.home() / 'lib64'}", "-lcudart"]
        return run([compiler, *headers, *rest])
    except (Usage, EmulatorError, RuntimeError) as error:
        print(f"{compiler}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
