"""Hooks in Triton: its driver for NVIDIA GPUs runs kernels on the device, compiles for sm_100a, and times by one run.

Triton's cache stays where it is, ~/.triton/cache or TRITON_CACHE_DIR. The emulator's entries are apart from those of a
GPU, which must not take a choice that autotuning has made by the emulator's times.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nogpu.cuda import triton_driver
from nogpu.cuda.benchmarks import milliseconds, note
from nogpu.execution.settings import candidates
from nogpu.hardware.properties import DeviceProperties, refuse_rubin

COMPILERS = ("compile_module_from_file", "compile_module_from_src")  # of a C module; a version has one of them
NO_PTXAS = (
    "Triton's ptxas does not start, so kernels run without its checks; numbers of registers are the most there are"
)
CANDIDATES = (
    "Triton's autotuning runs the first candidates that work, {count} of them; --autotune N or all for more, by "
    "modelled times under nogpu time"
)


def install_driver() -> None:
    """Make triton.backends.nvidia.driver load and launch on the device."""
    from triton.backends.nvidia import driver

    compilers = [name for name in COMPILERS if hasattr(driver, name)]
    missing = [name for name in ("CudaDriver", "CudaUtils", "libcuda_dirs") if not hasattr(driver, name)]
    if missing or not compilers:
        _refuse(driver, f"its driver has no {', '.join(missing) or ' or '.join(COMPILERS)}")
        return
    for name in compilers:
        setattr(driver, name, _compiled)
    if hasattr(driver, "make_launcher"):
        driver.make_launcher = triton_driver.Launcher
    driver.libcuda_dirs = lambda: []
    _install_cublas()
    kind: Any = driver.CudaDriver
    kind.is_active = staticmethod(lambda: True)
    kind.get_current_target = _target


def _compiled(src: Any = None, *arguments: Any, **keywords: Any) -> Any:
    """The C module that Triton would compile: a launcher, whose source is one already, or that of driver.c."""
    return src if isinstance(src, triton_driver.Launcher) else triton_driver.CudaUtils()


def _install_cublas() -> None:
    """Replace Triton's binding of cuBLAS where there is no GPU."""
    from triton._C.libtriton import nvidia

    if hasattr(nvidia, "cublas") and os.environ.get("NOGPU") != "hopper":
        nvidia.cublas.CublasLt = _cublas


def _cublas(workspace: Any) -> Any:
    from nogpu.cuda import triton_cublas  # imports torch, which a program may not have

    return triton_cublas.CublasLt(workspace)


def _refuse(driver: Any, what: str) -> None:
    """Make the driver raise when it is used, not before: programs may import Triton and not use it."""

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise triton_driver.unknown_interface(what)

    for kind in vars(driver).values():
        if isinstance(kind, type) and kind.__module__ == driver.__name__ and kind.__name__.endswith("Driver"):
            kind.__init__ = fail  # type: ignore[misc]  # a patch is the purpose


def _target(driver: Any) -> Any:
    """CudaDriver.get_current_target: sm_100a, on a Hopper GPU too."""
    refuse_rubin("Triton")
    from triton.backends.compiler import GPUTarget

    major, minor = DeviceProperties.capability
    return GPUTarget("cuda", 10 * major + minor, DeviceProperties.warp_size)


def install_compiler() -> None:
    """Make the backend's cache entries the emulator's own, and let kernels run where ptxas does not."""
    from triton.backends.nvidia import compiler

    backend: Any = compiler.CUDABackend
    backend.hash = _own_hash(backend.hash)
    backend.make_cubin = _without_ptxas(backend.make_cubin)


def _starts() -> bool:
    """True if ptxas can be started; Triton's packages for some systems lack it."""
    from triton.backends.nvidia import compiler

    try:
        compiler.get_ptxas_version(_target(None).arch)
    except (RuntimeError, OSError):
        return False
    return True


def _own_hash(original: Callable[[Any], str]) -> Callable[[Any], str]:
    def hash(backend: Any) -> str:
        return f"nogpu-{original(backend) if _starts() else 'no-ptxas'}"

    return functools.lru_cache(functools.wraps(original)(hash))


def _without_ptxas(original: Callable[..., bytes]) -> Callable[..., bytes]:
    """CUDABackend.make_cubin, with an empty cubin where ptxas does not start. PTX that ptxas refuses stays refused."""

    @functools.wraps(original)
    def make_cubin(*arguments: Any, **keywords: Any) -> bytes:
        if _starts():
            return original(*arguments, **keywords)
        note(NO_PTXAS)
        return b""

    return make_cubin


def install_loading() -> None:
    """Make a compiled kernel show its PTX to the driver that loads its cubin."""
    from triton.compiler import compiler

    kernel: Any = compiler.CompiledKernel
    original = kernel._init_handles

    @functools.wraps(original)
    def init_handles(compiled: Any) -> None:
        with triton_driver.loading(compiled.asm["ptx"]):
            original(compiled)

    kernel._init_handles = init_handles


def install_testing() -> None:
    """Make the benchmarks of triton.testing, which autotuning uses too, run their function once."""
    from triton import testing

    for name in [name for name in vars(testing) if name.startswith("do_bench")]:
        setattr(testing, name, one_run)


def install_autotuning() -> None:
    """Make autotuning run as many candidates as NOGPU_AUTOTUNE says: those that work, in the program's order."""
    from triton.runtime import autotuner

    tuner: Any = autotuner.Autotuner
    count = candidates(os.environ.get("NOGPU_AUTOTUNE") or "first")
    if count == 1:
        os.environ.setdefault("HELION_AUTOTUNE_EFFORT", "none")  # Helion's own search: of hundreds, its default instead
    if count is not None and hasattr(tuner, "_bench") and hasattr(tuner, "prune_configs"):
        tuner.prune_configs = _counting(tuner.prune_configs, count)
        tuner._bench = _skipping(tuner._bench, count)


def _counting(original: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Autotuner.prune_configs, with which a choice begins: it resets the number of candidates left."""

    @functools.wraps(original)
    def prune_configs(tuner: Any, *arguments: Any, **keywords: Any) -> Any:
        tuner.nogpu_left = count
        return original(tuner, *arguments, **keywords)

    return prune_configs


def _skipping(original: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Autotuner._bench, which runs only the first `count` candidates of a choice that work; the others take inf."""

    @functools.wraps(original)
    def bench(tuner: Any, *arguments: Any, **keywords: Any) -> Any:
        if tuner.nogpu_left == 0:
            note(CANDIDATES.format(count=count))
            return [math.inf] * 3
        times = original(tuner, *arguments, **keywords)
        tuner.nogpu_left -= times[0] < math.inf
        return times

    return bench


def one_run(
    fn: Callable[[], Any],
    warmup: float = 0,
    rep: float = 0,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """triton.testing.do_bench: milliseconds of one run for each figure that is asked for, modelled if NOGPU_CLOCK is
    set, else of the host's clock.
    """
    for tensor in grad_to_none or ():
        tensor.grad = None
    found = milliseconds(fn)
    if quantiles is not None:
        return [found] * len(quantiles) if len(quantiles) > 1 else found
    return [found] if return_mode == "all" else found
