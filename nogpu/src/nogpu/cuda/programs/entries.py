"""The table of entry points: name -> the C function that runtime/cudart.c calls.

A function here takes integers (addresses among them) and returns nothing for success, or a code. It refuses with
status.Refused, Fault or EmulatorError.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from nogpu.cuda import queues
from nogpu.cuda.programs import status
from nogpu.errors import EmulatorError, Fault

ADDRESS = SIZE = HANDLE = ctypes.c_size_t
U64 = ctypes.c_uint64
INT = ctypes.c_int32
UINT = ctypes.c_uint32
QUEUE = type("QUEUE", (ctypes.c_size_t,), {})  # a cudaStream_t or CUstream: the entry point refuses an unknown one
_RESULT = ctypes.c_size_t  # a cudaError_t, a CUresult or an address


class Function(NamedTuple):
    """An entry point: a function, and the C types of its arguments."""

    call: Callable[..., int | None]
    types: tuple[Any, ...]


FUNCTIONS: dict[str, Function] = {}
"""Name of an entry point -> the function here."""
ENTRIES: dict[str, Any] = {}
"""Name of an entry point -> its C function, whose exceptions become codes. They live as long as the process."""


def c_function(function: Function, call: Callable[..., int]) -> Any:
    """`call` as a C function with the arguments of an entry point. A caller in C needs it to stay alive."""
    plain = [HANDLE if kind is QUEUE else kind for kind in function.types]
    return ctypes.CFUNCTYPE(_RESULT, *plain)(call)


_connected: list[tuple[Any, dict[str, Any]]] = []  # libraries, and their functions, which stay alive


def entry(names: str, *types: Any, always: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function the entry points `names`, separated by spaces, with arguments of these C types.

    always: it is called even where an earlier kernel has failed for good.
    """

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            function = FUNCTIONS[name] = Function(call, types)
            added = ENTRIES[name] = c_function(function, _guarded(name, function, always))
            for library, functions in _connected:
                if functions is ENTRIES:
                    _connect(library, name, added)
        return call

    return register


def check_queue(handle: int) -> None:
    """Raise Refused for the handle of no queue. On a Hopper GPU, handles are those of its own driver, too."""
    if os.environ.get("NOGPU") != "hopper":
        try:
            queues.check(handle)
        except Fault as fault:
            raise status.Refused(status.INVALID_HANDLE, fault.reason) from None


def _guarded(name: str, function: Function, always: bool) -> Callable[..., int]:
    """The function as C calls it: exceptions become codes."""
    queue_places = [place for place, kind in enumerate(function.types) if kind is QUEUE]

    def guarded(*arguments: int) -> int:
        if not always and status.sticky():
            return status.sticky()
        try:
            given = list(arguments)
            for place in queue_places:
                check_queue(given[place])
                given[place] = queues.resolved(given[place])
            return function.call(*given) or status.SUCCESS
        except status.Refused as refused:
            return status.failed(name, refused.code, refused.reason)
        except Fault as fault:
            return status.failed(name, status.INVALID_VALUE, fault.reason)
        except EmulatorError as error:
            return status.kernel_failed(name, error)
        except BaseException as error:  # nothing may pass through the C code
            return status.broken(name, error)

    return guarded


def connect(library: Any, functions: dict[str, Any]) -> None:
    """Let a library of runtime/ call C functions, by the names of entry points; of ENTRIES those that come later, too.

    Raises ValueError for a name that it does not have.
    """
    _connected.append((library, functions))
    library.emulator_connect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    for name, function in functions.items():
        _connect(library, name, function)


def _connect(library: Any, name: str, function: Any) -> None:
    if not library.emulator_connect(name.encode(), ctypes.cast(function, ctypes.c_void_p)):
        raise ValueError(f"runtime/entries.h has no entry point {name}")


def address_of_entry(library: Any, name: str) -> int:
    """The address of the driver's entry point `name`, whose newest version may be meant; 0 if there is none."""
    found = next((n for n in (name, f"{name}_v2", f"{name}_v4") if n in ENTRIES and not n.startswith("cuda")), None)
    return ctypes.cast(library[found], ctypes.c_void_p).value or 0 if found else 0


def put(address: int, kind: Any, value: Any) -> None:
    """Store an output argument of a C type. Raises Refused for a null pointer."""
    if not address:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a result")
    kind.from_address(address).value = value


def text(address: int) -> str:
    """A C string. Raises Refused for a null pointer."""
    if not address:
        raise status.Refused(status.INVALID_VALUE, "a null pointer for a name")
    return ctypes.string_at(address).decode(errors="replace")
