"""Shares the folder of runs, and arguments, between several commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.core.checked import MaxSize
from profiler.virtual.cards import CARDS

if TYPE_CHECKING:
    from profiler.run.model import RunInfo

RUNS: Final = Path("reports/runs")
"""The folder of runs when no --out is given."""


def seconds(minimum: float = 0.0) -> Callable[[str], float]:
    """An argument type: a number of seconds above 0, and of at least `minimum`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not (0 < value < float("inf") and value >= minimum):
            expected = f"from {minimum:g}" if minimum else "above 0"
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds {expected}")
        return value

    return parse


def add_counting(parser: argparse.ArgumentParser) -> None:
    """Add the options that count what the program does, and that show it CUDA devices that do not exist."""
    devices = "show the program N CUDA devices that do not exist, and count its waits and copies (default N: 1)"
    parser.add_argument("--virtual-cuda", nargs="?", const=1, type=int, metavar="N", help=devices)
    card = "what a virtual device shows itself to be (default: %(default)s)"
    parser.add_argument("--card", choices=CARDS, default="h100", help=card)
    count = "count operators, memory and reads by line; --virtual-cuda counts them too. No times are recorded"
    parser.add_argument("--count", action="store_true", help=count)


def no_virtual_device(info: RunInfo) -> str:
    """Why a program that was started with virtual devices did not see them; empty: it did.

    :param info: of a run that was loaded, which has the facts that its processes stated.
    """
    from profiler.run.model import HOOKS

    if "virtual_cuda" in info.facts:
        return ""
    status = info.collector("hook virtual_cuda") or info.collector(HOOKS)
    return f"saw no virtual device: {status and status.reason}"


def add_no_source(parser: argparse.ArgumentParser) -> None:
    """Add the option that leaves the user's code out of what is recorded."""
    parser.add_argument("--no-source", action="store_true", help="do not store the text of source lines")


def add_max_size(parser: argparse.ArgumentParser) -> None:
    """Add the option that allows larger files to be read."""
    what = "the most that is read of a file, unpacked, as in 20GB (default: 2GB)"
    parser.add_argument("--max-size", action=MaxSize, metavar="SIZE", help=what)
