"""The table of entry points: name -> the C function that runtime/cudart.c calls.

The Python function behind an entry point takes integers (addresses among them) and returns nothing for success, or a
code. It refuses by raising status.Refused, Fault or EmulatorError.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from nogpu.cuda import queues
from nogpu.cuda.programs import status
from nogpu.errors import EmulatorError, Fault, UnknownHandle

ADDRESS = SIZE = HANDLE = ctypes.c_size_t
U64 = ctypes.c_uint64
INT = ctypes.c_int32
UINT = ctypes.c_uint32
QUEUE = type("QUEUE", (ctypes.c_size_t,), {})  # a cudaStream_t or CUstream: the entry point refuses an unknown one
DEVICE = type("DEVICE", (ctypes.c_int32,), {})  # a device's number: the entry point refuses all but 0
Structure = TypeVar("Structure", bound=ctypes.Structure)
_IN_C = ("cuIpcOpenMemHandle_v2", "cuIpcOpenEventHandle")  # entry points of the driver that cudart.c itself defines
_RESULT = ctypes.c_size_t  # a cudaError_t, a CUresult or an address


class Function(NamedTuple):
    """An entry point: a function, and the C types of its arguments."""

    call: Callable[..., int | None]
    types: tuple[Any, ...]


FUNCTIONS: dict[str, Function] = {}
"""Name of an entry point -> its Python function."""
ENTRIES: dict[str, Any] = {}
"""Name of an entry point -> its C function, which lives as long as the process. Exceptions in it become codes."""


def c_function(function: Function, call: Callable[..., int]) -> Any:
    """`call` as a C function with the arguments of an entry point. A caller in C needs it to stay alive."""
    plain = [_CHECKED[kind][0] if kind in _CHECKED else kind for kind in function.types]
    return ctypes.CFUNCTYPE(_RESULT, *plain)(call)


_connected: list[tuple[Any, dict[str, Any]]] = []  # libraries, and their functions, which stay alive


def entry(
    names: str, *types: Any, queued: str = "", always: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function the entry points `names`, separated by spaces, with arguments of these C types.

    queued: further names, of entry points that take a queue behind these arguments. always: it is called even where an
    earlier kernel has failed for good.
    """

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            _add(name, call, types, always)
        for name in queued.split():
            _add(name, call, (*types, QUEUE), always)
        return call

    return register


def _add(name: str, call: Callable[..., Any], types: tuple[Any, ...], always: bool) -> None:
    function = FUNCTIONS[name] = Function(_checking(call, types), types)
    added = ENTRIES[name] = c_function(function, _guarded(name, function.call, always))
    for library, functions in _connected:
        if functions is ENTRIES:
            _connect(library, name, added)


def constant(names: str, value: int, *types: Any, kind: Any = INT, place: int = 0) -> None:
    """Make entry points that store a value of a C type in the result, which is the argument at a place."""
    entry(names, *types)(lambda *arguments: put(arguments[place], kind, value))


def ignored(names: str, *types: Any) -> None:
    """Make entry points that do nothing: what they ask for has no effect on results."""
    entry(names, *types)(lambda *arguments: None)


def _queue(handle: int) -> int:
    """The handle of a queue. Raises Fault for that of none; a Hopper GPU's handles are also those of its driver."""
    if os.environ.get("NOGPU") != "hopper":
        queues.check(handle)
    return queues.resolved(handle)


def _device(ordinal: int) -> int:
    if ordinal != 0:
        raise status.Refused(status.INVALID_DEVICE, f"device {ordinal}: there is one, 0")
    return ordinal


_CHECKED: dict[Any, tuple[Any, Callable[[int], int]]] = {QUEUE: (HANDLE, _queue), DEVICE: (INT, _device)}
"""Type of arguments that are checked -> the C type, and the function that gives the argument or refuses it."""


def _checking(call: Callable[..., Any], types: tuple[Any, ...]) -> Callable[..., Any]:
    """The function behind the checks of its arguments."""
    checks = [(place, _CHECKED[kind][1]) for place, kind in enumerate(types) if kind in _CHECKED]

    def checked(*arguments: int) -> int | None:
        given = list(arguments)
        for place, check in checks:
            given[place] = check(given[place])
        return call(*given)

    return checked if checks else call


def _guarded(name: str, call: Callable[..., int | None], always: bool) -> Callable[..., int]:
    """A function as C calls it: exceptions become codes."""

    def guarded(*arguments: int) -> int:
        if not always and status.sticky():
            return status.sticky()
        try:
            return call(*arguments) or status.SUCCESS
        except status.Refused as refused:
            return status.failed(name, refused.code, refused.reason)
        except Fault as fault:
            unknown = isinstance(fault, UnknownHandle)
            return status.failed(name, status.INVALID_HANDLE if unknown else status.INVALID_VALUE, fault.reason)
        except EmulatorError as error:
            return status.kernel_failed(name, error)
        except BaseException as error:  # nothing may pass through the C code
            return status.broken(name, error)

    return guarded


def connect(library: Any, functions: dict[str, Any]) -> None:
    """Let a library of runtime/ call C functions, by the names of entry points; of ENTRIES also those added later.

    Raises ValueError for a name that the library does not have.
    """
    _connected.append((library, functions))
    library.emulator_connect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    for name, function in functions.items():
        _connect(library, name, function)


def _connect(library: Any, name: str, function: Any) -> None:
    if not library.emulator_connect(name.encode(), ctypes.cast(function, ctypes.c_void_p)):
        raise ValueError(f"runtime/entries.h has no entry point {name}")


def address_of_entry(library: Any, name: str) -> int:
    """The address of the driver's entry point `name`, of whatever version; 0 if there is none."""
    known = (n for n in (name, f"{name}_v2", f"{name}_v4") if n in ENTRIES or n in _IN_C)
    found = next((n for n in known if not n.startswith("cuda")), None)
    return ctypes.cast(library[found], ctypes.c_void_p).value or 0 if found else 0


def put(address: int, kind: Any, value: Any) -> None:
    """Store an output argument of a C type. Raises Refused for a null pointer."""
    if not address:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a result")
    kind.from_address(address).value = value


def store(address: int, structure: ctypes.Structure) -> None:
    """Store an output argument that is a structure. Raises Refused for a null pointer."""
    if not address:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a structure")
    ctypes.memmove(address, ctypes.addressof(structure), ctypes.sizeof(structure))


def copied(kind: type[Structure], address: int) -> Structure:
    """A copy of a structure that the program may change after the call. Raises Refused for a null pointer."""
    if not address:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a structure")
    return kind.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(kind)))


def text(address: int) -> str:
    """A C string. Raises Refused for a null pointer."""
    if not address:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a name")
    return ctypes.string_at(address).decode(errors="replace")
