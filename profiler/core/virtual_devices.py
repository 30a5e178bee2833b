"""Tells what the options of virtual CUDA devices ask for, checked before a program is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError

DEFAULT_CARD: Final = "h100"
"""What virtual devices show themselves to be where no other card is named."""
_DRIVER: Final = Path("/proc/driver/nvidia/version")
"""A file of NVIDIA's driver."""


def virtual_devices(number: int | None, card: str) -> str:
    """Number and name of the devices that `--virtual-cuda` and `--card` ask for, as in `1:h100`; empty: none.

    :raises ProfilerError: the number is below 1, or programs see a real GPU here.
    """
    if number is None:
        return ""
    if number < 1:
        raise ProfilerError(f"--virtual-cuda {number}: the number of devices must be 1 or more")
    if _has_gpu():
        reason = "this machine has an NVIDIA GPU, which virtual devices would hide"
        raise ProfilerError(f"--virtual-cuda: {reason}: set CUDA_VISIBLE_DEVICES= (empty) to hide it")
    return f"{number}:{card}"


def _has_gpu() -> bool:
    """Whether programs see a GPU of NVIDIA on this machine."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1")  # as CUDA reads it
    return visible and _DRIVER.exists()
