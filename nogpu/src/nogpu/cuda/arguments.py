"""Arguments that a program passes to a launch: sizes, flags and the bytes of parameters, checked.

The functions raise ValueError, TypeError or OverflowError with value and reason; `modules.Kernel` makes one
EmulatorError of them.
"""

from __future__ import annotations

import ctypes
import numbers
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from nogpu.cuda.arrays import address_of, check_type
from nogpu.execution import settings
from nogpu.ptx.ir import Param

_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


def shown(value: object) -> str:
    """A value for messages, in one line; a long one is cut off."""
    if isinstance(value, int) and abs(value) >> 128:
        return f"an integer of {value.bit_length()} bits"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def _is_integer(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def sizes(what: str, value: Any) -> tuple[int, int, int]:
    """(x, y, z) from one size, or from one to three in a list, tuple, range or NumPy array; a missing one is 1."""
    given = (value,) if _is_integer(value) else value
    if isinstance(given, np.ndarray) and given.ndim == 1:
        given = given.tolist()
    if not isinstance(given, list | tuple | range) or not 1 <= len(given) <= 3 or not all(map(_is_integer, given)):
        raise TypeError(f"{what} {shown(value)}: one to three integers are expected")
    x, y, z = map(int, (*given, 1, 1)[:3])
    if max(abs(x), abs(y), abs(z)) >> 63:
        raise ValueError(f"{what} {shown(max(x, y, z, key=abs))}: no size has more than 63 bits")
    return x, y, z


def count(what: str, value: Any) -> int:
    """An argument that is an integer from 0 to 2^63 - 1."""
    if not _is_integer(value):
        raise TypeError(f"{what} {shown(value)}: an integer is expected")
    if not 0 <= int(value) < 1 << 63:
        raise ValueError(f"{what} {shown(int(value))}: must be at least 0 and at most 63 bits")
    return int(value)


def flag(what: str, value: Any) -> bool:
    """An argument that is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{what} {shown(value)}: True or False is expected")
    return bool(value)


def choice(what: str, value: Any) -> bool | None:
    """An argument that is True, False or None."""
    return None if value is None else flag(what, value)


def schedules(value: Any) -> tuple[str, ...] | None:
    """Names of schedules from a text with commas; None for None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"schedule {shown(value)}: a text such as 'late,random:1' is expected")
    return settings.schedules(value)


def arguments(value: Any) -> Sequence:
    """The arguments of a launch, a list or tuple."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"args {shown(value)}: a list or tuple with an argument for each parameter is expected")
    return value


def declared(param: Param) -> str:
    """A parameter's type in PTX, ".b8[128]"."""
    return f".{param.type}[{param.size // (int(param.type[1:]) // 8)}]" if param.array else f".{param.type}"


def packed(param: Param, value: Any) -> bytes:
    """The bytes of an argument, as `modules.Kernel.launch` takes it."""
    return _packed_array(param, value) if param.array else _packed_value(param, value)


def _packed_array(param: Param, value: Any) -> bytes:
    try:
        data = value.numpy() if hasattr(value, "data_ptr") else value
    except RuntimeError as error:
        raise TypeError(f"the tensor has no bytes of its own: {error}") from None
    if isinstance(data, ctypes.Structure | ctypes.Array | bytes | bytearray | memoryview):
        data = bytes(data)
    elif isinstance(data, np.ndarray | np.generic):
        check_type(data.dtype)
        data = data.tobytes()
    else:
        raise TypeError(f"{type(value).__name__} given, bytes expected")
    if len(data) != param.size:
        raise ValueError(f"{len(data)} bytes given, {param.size} expected")
    return data


def _packed_value(param: Param, value: Any) -> bytes:
    size, kind = param.size, param.type[0]
    if hasattr(value, "data_ptr") or isinstance(value, np.ndarray):
        if size != 8 or kind == "f":
            raise TypeError("an array given; its address needs a 64-bit integer parameter")
        return address_of(value).to_bytes(8, "little")
    if isinstance(value, np.generic):
        if value.nbytes != size:
            raise ValueError(f"{value.dtype} has {value.nbytes} bytes, {size} expected")
        check_type(value.dtype)
        if (kind == "f") != (value.dtype.kind not in "biu") and kind != "b":
            raise TypeError(f"{value.dtype} given")
        return value.tobytes()
    if isinstance(value, ctypes._SimpleCData):
        value = value.value
    if value is None:
        raise TypeError("None given; a null pointer is 0")
    if kind == "f" and isinstance(value, numbers.Real):
        try:
            return struct.pack(_FLOATS[param.type], float(value))
        except OverflowError:
            raise OverflowError(f"{shown(value)} does not fit {8 * size} bits") from None
    if isinstance(value, numbers.Integral):
        integer, low, high = int(value), -(1 << 8 * size - 1), 1 << 8 * size
        if not low <= integer < high:
            raise OverflowError(f"{shown(integer)} does not fit {8 * size} bits")
        return (integer & high - 1).to_bytes(size, "little")
    raise TypeError(f"{type(value).__name__} given")
