"""Error codes of the CUDA runtime and driver: which error becomes which code, and what later calls return.

An error of a kernel is sticky (CUDA C++ Programming Guide, "Error Checking"): every later call returns it. A launch is
complete when the launching call returns, as with CUDA_LAUNCH_BLOCKING=1, so that this call returns it first. Errors are
printed on standard error, except those of kernels inside of a call from Python (`raising`): Python raises them.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from nogpu.errors import EmulatorError

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_CONFIGURATION = 9
INVALID_SYMBOL = 13
INVALID_FILTER_SETTING = 26
INVALID_NORM_SETTING = 27
INVALID_FUNCTION = 98
INVALID_DEVICE = 101
INVALID_CONTEXT = 201
NO_IMAGE = 209
INVALID_PTX = 218
FILE_NOT_FOUND = 301
INVALID_HANDLE = 400
NOT_FOUND = 500
NOT_READY = 600
ILLEGAL_ADDRESS = 700
LAUNCH_TIMEOUT = 702
ASSERTION = 710
MISALIGNED = 716
LAUNCH_FAILURE = 719
TOO_LARGE = 720
NOT_SUPPORTED = 801
CAPTURE_UNSUPPORTED = 900
CAPTURE_UNMATCHED = 903
CAPTURE_IMPLICIT = 906
UPDATE_FAILURE = 910
INVALID_CLUSTER = 912
UNKNOWN = 999

ERRORS: dict[int, tuple[str, str, str]] = {
    0: ("cudaSuccess", "CUDA_SUCCESS", "no error"),
    1: ("cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    3: ("cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    9: ("cudaErrorInvalidConfiguration", "", "invalid configuration argument"),
    13: ("cudaErrorInvalidSymbol", "", "invalid device symbol"),
    17: ("cudaErrorInvalidDevicePointer", "", "invalid device pointer"),
    21: ("cudaErrorInvalidMemcpyDirection", "", "invalid copy direction for memcpy"),
    26: ("cudaErrorInvalidFilterSetting", "", "linear filtering not supported for non-float type"),
    27: ("cudaErrorInvalidNormSetting", "", "read as normalized float not supported for 32-bit non float type"),
    35: ("cudaErrorInsufficientDriver", "", "CUDA driver version is insufficient for CUDA runtime version"),
    52: ("cudaErrorMissingConfiguration", "", "__global__ function call is not configured"),
    98: ("cudaErrorInvalidDeviceFunction", "", "invalid device function"),
    100: ("cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    200: ("cudaErrorInvalidKernelImage", "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"),
    INVALID_CONTEXT: ("cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    209: (
        "cudaErrorNoKernelImageForDevice",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "no kernel image is available for execution on the device",
    ),
    218: ("cudaErrorInvalidPtx", "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"),
    301: ("cudaErrorFileNotFound", "CUDA_ERROR_FILE_NOT_FOUND", "file not found"),
    400: ("cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    500: ("cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    NOT_READY: ("cudaErrorNotReady", "CUDA_ERROR_NOT_READY", "device not ready"),
    700: ("cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    701: (
        "cudaErrorLaunchOutOfResources",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "too many resources requested for launch",
    ),
    702: ("cudaErrorLaunchTimeout", "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"),
    710: ("cudaErrorAssert", "CUDA_ERROR_ASSERT", "device-side assert triggered"),
    716: ("cudaErrorMisalignedAddress", "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"),
    719: ("cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    720: (
        "cudaErrorCooperativeLaunchTooLarge",
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "too many blocks in cooperative launch",
    ),
    721: ("cudaErrorTensorMemoryLeak", "CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory not completely freed"),
    801: ("cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"),
    900: (
        "cudaErrorStreamCaptureUnsupported",
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "operation not permitted when stream is capturing",
    ),
    903: (
        "cudaErrorStreamCaptureUnmatched",
        "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        "capture was not initiated in this stream",
    ),
    906: (
        "cudaErrorStreamCaptureImplicit",
        "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        "operation would make the legacy stream depend on a capturing blocking stream",
    ),
    910: (
        "cudaErrorGraphExecUpdateFailure",
        "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
        "the graph update was not performed because it included changes which violated constraints specific to "
        "instantiated graph update",
    ),
    912: (
        "cudaErrorInvalidClusterSize",
        "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        "a kernel launch error has occurred due to cluster misconfiguration",
    ),
    999: ("cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "unknown error"),
}
"""Code -> (name in the runtime, name in the driver or "", text), as libcudart.so.13 words them."""

_UNKNOWN_CODE = ("cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "unrecognized error code")

_REASONS = (
    (r"^launch refused: queue", INVALID_HANDLE),
    (r"^launch refused: .*(cluster|maxclusterrank)", INVALID_CLUSTER),
    (r"^launch refused: cooperative", TOO_LARGE),
    (r"^launch refused: .*shared memory", INVALID_VALUE),
    (r"^launch refused", INVALID_CONFIGURATION),
    (r"(?<!\.)\b(mis)?aligned", MISALIGNED),  # but no instruction's .aligned
    (r"null pointer|live allocation|past the end|bytes are before|read-only", ILLEGAL_ADDRESS),
    (r"hangs|^stopped after", LAUNCH_TIMEOUT),
    (r"assert", ASSERTION),
    (r"exits with tensor memory", 721),
    (r"not modelled|not understood", INVALID_PTX),
)
"""The first pattern that an EmulatorError's reason has decides on its code."""

_REFUSED = (INVALID_VALUE, INVALID_CONFIGURATION, INVALID_HANDLE, TOO_LARGE, INVALID_CLUSTER, INVALID_PTX)
"""Codes of launches that have not run: they are not sticky."""


class Refused(Exception):
    """Raised in an entry point that returns an error code. The reason, if there is one, is printed."""

    def __init__(self, code: int, reason: str = ""):
        super().__init__(reason)
        self.code, self.reason = code, reason


class _State(threading.local):
    last = SUCCESS  # cudaGetLastError
    calls = 0  # calls from Python that are under way
    failure: BaseException | None = None  # exception that the call from Python is to raise


_state = _State()
_sticky = SUCCESS


def code_of(error: EmulatorError) -> int:
    """The code of an error of a kernel or launch."""
    return next((code for pattern, code in _REASONS if re.search(pattern, error.reason)), LAUNCH_FAILURE)


def is_refused_launch(error: EmulatorError) -> bool:
    """True for the error of a launch that could not begin, after which a program may go on."""
    return error.reason.startswith("launch refused")


def sticky() -> int:
    """The code of a kernel that has failed, else 0."""
    return _sticky


def take_last() -> int:
    """cudaGetLastError: the thread's last error, which is forgotten unless it is sticky."""
    last, _state.last = _sticky or _state.last, SUCCESS
    return last


def peek_last() -> int:
    """cudaPeekAtLastError: the thread's last error."""
    return _sticky or _state.last


def reset() -> None:
    """Forget all errors, as cudaDeviceReset does."""
    global _sticky
    _sticky = _state.last = SUCCESS


def failed(name: str, code: int, reason: str) -> int:
    """Note the error of an entry point. Returns its code."""
    _state.last = code
    if reason:
        print(f"{name}: {reason}", file=sys.stderr, flush=True)
    return code


def kernel_failed(name: str, error: EmulatorError) -> int:
    """Note the error of a kernel or launch; a call from Python raises it, without one it is printed. Returns a code."""
    global _sticky
    error.note()
    code = code_of(error)
    if code not in _REFUSED:
        _sticky = code
    if not _state.calls:
        return failed(name, code, str(error))
    _state.last = code
    keep(error)
    return code


def broken(name: str, error: BaseException) -> int:
    """Note an exception that is no error of the program: Ctrl-C, or a fault of the emulator. Returns a code."""
    if _state.calls:
        keep(error)
        return failed(name, UNKNOWN, "")
    traceback.print_exception(error, file=sys.stderr)
    return failed(name, UNKNOWN, "the emulator itself has failed")


def failure() -> BaseException | None:
    """The first exception that is kept for the call from Python, or None."""
    return _state.failure


def keep(error: BaseException) -> None:
    """Let the call from Python raise an exception, unless it has met one before: none can pass through C code."""
    _state.failure = _state.failure or error


def raise_failure(noticed: Exception | None = None) -> None:
    """Raise the exception that is kept, if there is one. noticed: what the code has raised of its own for it."""
    found, _state.failure = _state.failure, None
    if isinstance(found, EmulatorError):  # the place in the kernel counts, not that in the emulator
        raise _with_kind(found, noticed).with_traceback(None) from None
    if found is not None:
        raise found


def _with_kind(error: EmulatorError, noticed: Exception | None) -> EmulatorError:
    """The error; a refused launch's so that handlers of the other exception catch it, with its attributes."""
    if noticed is None or isinstance(error, type(noticed)) or not is_refused_launch(error):
        return error
    try:
        kind = type(type(error).__name__, (type(error), type(noticed)), {"__module__": type(error).__module__})
        both = kind.__new__(kind, *error.args)
    except TypeError:  # the other class has fields in C, as OSError
        return error
    vars(both).update(vars(noticed) | vars(error))
    return both


def raising(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which runs C++ or host code, so that it raises the exception that is kept meanwhile.

    The raise forgets a sticky error: the device is in order again.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if not _state.calls:
            _state.failure = None
        _state.calls += 1
        noticed = None
        try:
            result = function(*arguments, **keywords)
        except Exception as own:
            if _state.failure is None or _state.calls > 1:
                raise
            result, noticed = None, own  # the code's own error for the error code, which says less
        finally:
            _state.calls -= 1
        if _state.failure is not None and not _state.calls:
            reset()
            raise_failure(noticed)
        return result

    return call


@functools.cache
def _text(text: str) -> ctypes.Array:
    return ctypes.create_string_buffer(text.encode())


def text_address(code: int, column: int) -> int:
    """The address of a C string: the name in the runtime (0), in the driver (1), or the text (2) of a code."""
    row = ERRORS.get(code, _UNKNOWN_CODE)
    return ctypes.addressof(_text(row[column] or row[0]))
