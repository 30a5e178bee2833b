"""Shares the folder of runs, and arguments in seconds, between several commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

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


def add_no_source(parser: argparse.ArgumentParser) -> None:
    """Add the option that leaves the user's code out of what is recorded."""
    parser.add_argument("--no-source", action="store_true", help="do not store the text of source lines")
