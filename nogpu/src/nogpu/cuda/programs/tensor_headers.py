"""Copies of torch's headers for extensions: two in which tensors know the emulated device, and short ones.

The two are TensorBase.h and TensorBody.h. A compiler takes minutes to parse all of torch's headers, nvcc twice. The
short ones leave out the C++ frontend (nn, optim, data, jit, ...) and declare only those functions of `at` whose names
the source has. What needs more does not compile with them and is compiled with the whole ones (nvcc.py).
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from nogpu.errors import EmulatorError

_ACCESSORS = (
    (r"inline Device device\(\) const \{", "emulated() ? Device(kCUDA, 0) : "),
    (r"DeviceIndex get_device\(\) const \{", "emulated() ? DeviceIndex(0) : "),
    (r"bool is_cpu\(\) const \{", "!emulated() && "),
    (r"bool is_cuda\(\) const \{", "emulated() || "),
)
"""Methods of at::TensorBase -> the condition in C++ that comes first in their results."""

_EMULATED = """  // Whether the tensor is on the emulated device.
  C10_ALWAYS_INLINE bool emulated() const {
    return impl_->has_storage() && emulator_has_storage(impl_->unsafe_storage().unsafeGetStorageImpl());
  }
  // The device that `to` asks torch for: none if the tensor is on the emulated one and stays there. It has its
  // index, since a torch without CUDA cannot say which device is the current one.
  std::optional<Device> emulated_target(std::optional<Device> device) const {
    if (!device || !device->is_cuda() || device->index() > 0)
      return device;
    return emulated() ? std::nullopt : std::optional<Device>(Device(kCUDA, 0));
  }
  // Whether `to` leaves the emulated device; torch takes that for no move, and would return the tensor itself.
  bool emulated_leaves(std::optional<Device> device) const {
    return device && device->is_cpu() && emulated();
  }
"""

_MOVE = "at::_ops::to_dtype_layout::call(const_cast<Tensor&>(*this), "
_REST = "non_blocking, copy || emulated_leaves({device}), "
_OPTIONS = "c10::impl::check_tensor_options_and_extract_memory_format(options, memory_format));"
_MOVES = (
    (
        f"{_MOVE}c10::optTypeMetaToScalarType(options.dtype_opt()), options.layout_opt(), options.device_opt(), "
        f"options.pinned_memory_opt(), non_blocking, copy, {_OPTIONS}",
        f"{_MOVE}c10::optTypeMetaToScalarType(options.dtype_opt()), options.layout_opt(), "
        f"emulated_target(options.device_opt()), options.pinned_memory_opt(), "
        f"{_REST.format(device='options.device_opt()')}{_OPTIONS}",
    ),
    (
        f"{_MOVE}dtype, layout, device, pin_memory, non_blocking, copy, memory_format);",
        f"{_MOVE}dtype, layout, emulated_target(device), pin_memory, {_REST.format(device='device')}memory_format);",
    ),
    (
        "at::_ops::to_device::call(const_cast<Tensor&>(*this), device, dtype, non_blocking, copy, memory_format);",
        f"{_MOVE}dtype, std::nullopt, emulated_target(device), std::nullopt, {_REST.format(device='device')}"
        "memory_format);",
    ),
    (
        "at::_ops::to_other::call(const_cast<Tensor&>(*this), other, non_blocking, copy, memory_format);",
        f"{_MOVE}other.scalar_type(), other.layout(), emulated_target(other.device()), std::nullopt, "
        f"{_REST.format(device='other.device()')}memory_format);",
    ),
)
"""The calls in the overloads of at::Tensor::to that name a device, and their replacements."""


def patched() -> dict[str, str]:
    """{name: new text} of headers of torch's ATen/core; empty without torch, and on a Hopper GPU.

    Those of a torch that does not have the methods which are replaced here stop the compiler with a message.
    """
    folder = _includes()
    if folder is None:
        return {}
    core = folder / "ATen" / "core"
    changes = {"TensorBase.h": _with_accessors, "TensorBody.h": _with_moves}
    try:
        return {name: change((core / name).read_text()) for name, change in changes.items()}
    except (EmulatorError, OSError) as error:
        return dict.fromkeys(changes, f"#error nogpu: {' '.join(str(error).split())}\n")


SHORT = "-DAT_PER_OPERATOR_HEADERS"
"""The compiler's option for headers of torch that include those of single operations."""
_OPERATION = re.compile(r"^#include <ATen/ops/(\w+)\.h>\n", re.MULTILINE)
_NEEDED = ("equal", "std", "std_mean", "var", "var_mean")  # by Functions.h itself, and by torch/utils.h
_FRONTEND = re.compile(
    r"^#include <torch/(?:data|fft|jit|mps|nested|nn|optim|serialize|sparse|special|xpu)\.h>\n", re.MULTILINE
)
_BINDINGS = re.compile(r"^#include <(?:torch/csrc/|torch/types).*>\n", re.MULTILINE)


def short() -> dict[str, str]:
    """{name: new text} of the short headers, by their names in #include; empty without torch.

    Functions.h declares the functions of `short_options`.
    """
    folder = _includes()
    if folder is None:
        return {}
    frontend = folder / "torch" / "csrc" / "api" / "include" / "torch"
    try:
        functions = (folder / "ATen" / "Functions.h").read_text()
        everything = (frontend / "all.h").read_text()
        bindings = _BINDINGS.findall((frontend / "python.h").read_text())
    except OSError:
        return {}
    always = "".join(f"#include <ATen/ops/{name}.h>\n" for name in _NEEDED)
    functions = _OPERATION.sub(r"#ifdef NOGPU_OPERATION_\1\n\g<0>#endif\n", functions)
    return {
        "ATen/Functions.h": functions.replace("\nnamespace at {", f"\n{always}\nnamespace at {{", 1),
        "ATen/NativeFunctions.h": "#pragma once\n",
        "torch/all.h": _FRONTEND.sub("", everything),
        "torch/python.h": "".join(["#pragma once\n", *bindings]),
    }


def short_options(source: str) -> list[str]:
    """The compiler's options with which the short headers declare the functions of `at` that a source may call."""
    folder = _includes()
    known = {path.stem for path in (folder / "ATen" / "ops").glob("*.h")} if folder else set()
    names = sorted(known & set(re.findall(r"\w+", source)))
    return [SHORT, *(f"-DNOGPU_OPERATION_{name}" for name in names)]


def _includes() -> Path | None:
    """The folder of torch's headers; None without torch, and on a Hopper GPU."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations or os.environ.get("NOGPU") == "hopper":
        return None
    return Path(spec.submodule_search_locations[0]) / "include"


def _with_accessors(text: str) -> str:
    """TensorBase.h with accessors that know the device's tensors."""
    for pattern, condition in _ACCESSORS:
        text, count = re.subn(
            rf"(?:inline )?({pattern.removeprefix('inline ')}[^}}]*?return )(impl_->\w+\(\);)",
            rf"C10_ALWAYS_INLINE \1{condition}\2",
            text,
        )
        _check("TensorBase.h", pattern, count)
    text, count = re.subn(r"(\n  C10_ALWAYS_INLINE Device device\(\) const)", rf"\n{_EMULATED}\1", text)
    include = "#include <emulator/device_tensors.h>\n"
    return text.replace("#pragma once\n", f"#pragma once\n{include}", 1)


def _with_moves(text: str) -> str:
    """TensorBody.h in which `to`, and with it `cpu` and `cuda`, moves tensors to and from the device."""
    for call, replacement in _MOVES:
        _check("TensorBody.h", call, text.count(call))
        text = text.replace(call, replacement)
    return text


def _check(header: str, what: str, count: int) -> None:
    if count != 1:
        raise EmulatorError(f"torch's {header} is not as in torch 2.11 and 2.13: {what} is {count} times there")
