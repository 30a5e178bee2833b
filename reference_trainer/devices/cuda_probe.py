"""Finds out whether CUDA can be used here and, if not, what to install."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys

_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
NO_DRIVER = "no NVIDIA driver on this machine"
"""The beginning of the reason on a machine without an NVIDIA driver."""


def is_simulated() -> bool:
    """Whether kernels run in Numba's simulator, beside the profiler's virtual CUDA devices."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def unavailable() -> str:
    """Why CUDA cannot be used here, in one line; empty: it can. The cheap checks come first."""
    if is_simulated():
        import torch

        # Virtual devices do not replace this function, which counts real GPUs; builds without CUDA do not have it.
        real = getattr(torch._C, "_cuda_getDeviceCount", lambda: 0)()
        is_virtual = torch.cuda.is_available() and not real
        return "" if is_virtual else "NUMBA_ENABLE_CUDASIM is 1, and there is no virtual CUDA device"
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return f"{NO_DRIVER} ({_DRIVER} not found)"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: install its CUDA build (https://pytorch.org/get-started/locally)"
    import torch

    if torch.version.cuda is None:
        return (
            f"torch {torch.__version__} is built without CUDA: "
            "install its CUDA build (https://pytorch.org/get-started/locally)"
        )
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no GPU: see nvidia-smi, CUDA_VISIBLE_DEVICES and the driver's version"
    return _compiler_missing(torch.version.cuda)


def _compiler_missing(version: str) -> str:
    """Why kernels cannot be compiled and loaded with Numba; empty: they can.

    :param version: of torch's CUDA.
    """
    install = f"pip install 'numba-cuda[cu{version.partition('.')[0]}]'"
    if importlib.util.find_spec("numba_cuda") is None:
        return f"numba-cuda is not installed: {install} (or the extra cuda of this project)"
    from numba.cuda.cudadrv import nvvm

    try:
        nvvm.NVVM()
    except (nvvm.NvvmSupportError, OSError, RuntimeError) as error:
        return f"libnvvm, which compiles kernels, is not found: {install} ({_first_line(error)})"
    from reference_trainer.kernels import empty

    try:
        _ = empty.nothing.compiled
    except Exception as error:  # noqa: BLE001 - compiler, linker and driver have errors of their own; all mean the same
        # Seen with a libnvvm newer than the linker or the driver: they refuse the PTX that it writes.
        return (
            f"no kernel can be compiled and loaded: {_first_line(error)}; install nvidia-nvvm=={version}.* ({install})"
        )
    return ""


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"
