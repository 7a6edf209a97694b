"""NVIDIA's libraries that are not modelled: which a header or an option of the linker names, and the text that says so.

They hold machine code, which the device does not run, or ask for NVIDIA's driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LIBRARIES = (  # name; patterns of headers, of libraries and of the beginnings of functions' names
    ("cuSPARSE", r"cusparse(?:Lt|_v2)?\.h", r"cusparse(?:Lt)?(?:_static)?", "cusparse"),
    ("cuSOLVER", r"cusolver\w*\.h", r"cusolver(?:Mg)?(?:_static)?", "cusolver"),
    ("cuBLASXt", r"cublasXt\.h", r"cublasXt", "cublasXt"),
    (
        "a callback of cuFFT",
        r"cufftw\.h",
        r"cufft_static\w*|cufftw(?:_static)?",
        "cufftXtSetCallback|cufftXtSetJITCallback",
    ),
    ("NPP", r"npp\w*\.h", r"npp\w+", "npp"),
    ("nvJPEG", r"nvjpeg\.h", r"nvjpeg(?:_static)?", "nvjpeg"),
    ("cuDNN", r"cudnn\w*\.h", r"cudnn\w*", "cudnn"),
    ("NCCL", r"nccl\.h", r"nccl(?:_static)?", "nccl"),
    ("cuTENSOR", r"cutensor\w*\.h", r"cutensor(?:Mg)?(?:_static)?", "cutensor"),
    ("nvJitLink", r"nvJitLink\.h", r"nvJitLink(?:_static)?", "nvJitLink"),
    ("NVSHMEM", r"nvshmemx?\.h", r"nvshmem\w*", "nvshmem"),
)
_MODELLED = "nogpu has cuBLAS, cuFFT, cuRAND and NVRTC"
_MISSING_HEADER = re.compile(r"fatal error: (?:\S+/)?([\w.]+\.h): No such file")
_UNDEFINED = re.compile(r"undefined reference to [`']_*(\w+)'")


def of_options(arguments: Iterable[str]) -> str | None:
    """The text about the first library that options of the linker (-lcusparse) name, or None."""
    for argument in arguments:
        for name, _, libraries, _ in _LIBRARIES:
            if re.fullmatch(rf"-l(?:{libraries})", argument):
                return f"{name} ({argument}) is not modelled: {_MODELLED}"
    return None


def of_messages(messages: str) -> str | None:
    """The text about a library of which a compiler did not find a header, or the linker a function, or None."""
    for missing in (*_MISSING_HEADER.findall(messages), *_UNDEFINED.findall(messages)):
        for name, headers, _, functions in _LIBRARIES:
            if re.fullmatch(headers, missing) or re.match(functions, missing):
                return f"{name} ({missing}) is not modelled: {_MODELLED}"
    return None
