"""Tells what this machine has and allows: packages, devices, quotas, and the answers of the doctor's checks."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError

YES: Final = "yes"
PARTLY: Final = "partly"
NO: Final = "no"
NOT_KNOWN: Final = "not known"
"""The check itself failed, or got no answer in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one check."""

    state: str
    """YES, PARTLY, NO or NOT_KNOWN."""
    why: str
    """The reason in one line, with figures."""
    do: str = ""
    """The command or change that would improve it; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Capability:
    """A check with its answer."""

    name: str
    title: str
    answer: Answer
    needed: bool
    """Recording at level standard needs it."""

    @property
    def lacking(self) -> bool:
        """Whether recording at level standard does not work because of it."""
        return self.needed and self.answer.state in {NO, NOT_KNOWN}


# ---------------------------------------------------------------- CPU quotas


@dataclass(frozen=True, slots=True)
class Throttling:
    """The part of a thread's run delay that CPU quotas caused, as a share of the delay with its bounds."""

    share: float = 0.0
    low: float = 0.0
    high: float = 0.0


def estimate_throttling(throttled: float, delay: float, all_delays: float) -> Throttling:
    """Estimate the share of a thread's run delay that quotas caused; all arguments are of one unit of time.

    The kernel counts throttled time for a whole control group, summed over cores. Its threads share it in proportion to
    their delays. What the delays of all threads exceed it by may be any thread's, which gives the bounds.

    :param throttled: of the group.
    :param delay: of the thread.
    :param all_delays: of all threads of the program.
    """
    if not delay or not throttled:
        return Throttling()
    all_delays = max(all_delays, delay)
    high = min(1.0, throttled / delay)
    low = max(0.0, delay - max(0.0, all_delays - throttled)) / delay
    return Throttling(min(1.0, throttled / all_delays), min(low, high), high)


# ---------------------------------------------------------------- virtual devices

DEFAULT_CARD: Final = "h100"
"""What virtual devices show themselves to be where no other card is named."""
_DRIVER: Final = Path("/proc/driver/nvidia/version")
"""A file of NVIDIA's driver."""


def virtual_devices(number: int | None, card: str) -> str:
    """Return the number and name of the devices that `--virtual-cuda` and `--card` ask for, as in `1:h100`; empty:
    none.

    :raises ProfilerError: the number is below 1, or programs see a real GPU here.
    """
    if number is None:
        return ""
    if number < 1:
        raise ProfilerError(f"--virtual-cuda {number}: the number of devices must be 1 or more")
    # as CUDA reads it
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1") and _DRIVER.exists():
        reason = "this machine has an NVIDIA GPU, which virtual devices would hide"
        raise ProfilerError(f"--virtual-cuda: {reason}: set CUDA_VISIBLE_DEVICES= (empty) to hide it")
    return f"{number}:{card}"


# ---------------------------------------------------------------- packages

REQUIRED: Final = ("numpy", "rich", "psutil", "pydantic", "jinja2", "scipy")
"""Names to import, which are also those to install. The recorded program needs none of them."""


def missing_packages(find: Callable[[str], object] = importlib.util.find_spec) -> tuple[str, ...]:
    """Return the packages of REQUIRED that this Python cannot import; nothing is imported."""
    return tuple(name for name in REQUIRED if not find(name))


def install_hint(names: tuple[str, ...]) -> str:
    """Return a line that says what is missing and how to install it.

    `numpy and rich are missing in /usr/bin/python3: /usr/bin/python3 -m pip install numpy rich`
    """
    import shlex

    *first, last = names
    listed = f"{', '.join(first)} and {last} are" if first else f"{last} is"
    python = shlex.quote(sys.executable)
    return f"{listed} missing in {sys.executable}: {python} -m pip install {' '.join(names)}"
