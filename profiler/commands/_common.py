"""Shares the folder of runs and the newest of them, and some arguments, between several commands."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.core.errors import ProfilerError
from profiler.core.files import MaxSize
from profiler.core.machine import DEFAULT_CARD
from profiler.core.terminal import called_as
from profiler.core.units import ratio
from profiler.exact.model import CARDS

if TYPE_CHECKING:
    from profiler.check.model import Round
    from profiler.core.masking import Privacy
    from profiler.run.model import RunInfo

RUNS: Final = Path("reports/runs")
"""The folder of runs when no --out is given."""


def add_run(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the argument RUN, which is `newest_run` where it is left out."""
    parser.add_argument(
        "directory", nargs="?", type=Path, metavar="RUN", help=f"{what} (default: the newest in {RUNS})"
    )


def newest_run() -> Path:
    """Return the ended run in RUNS that began last, and print its name on stderr.

    Runs inside a comparison or a check lie one folder deeper and do not count.

    :raises ProfilerError: there is none.
    """
    from profiler.run import store, tables

    runs = []
    for manifest in RUNS.glob(f"*/{tables.MANIFEST}"):
        with suppress(ProfilerError, OSError):  # one that is damaged hides no other
            info = store.read_manifest(manifest.parent)
            if info.state != "running":
                runs.append((str(info.started_at), manifest.stat().st_mtime_ns, manifest.parent))
    if not runs:
        raise ProfilerError(
            f"there is no finished run in {RUNS}: name a run directory, or record one with "
            f"{called_as()} run -- python train.py"
        )
    newest = max(runs)[-1]
    print(f"profiler: the newest run is {newest}", file=sys.stderr)
    return newest


def seconds(minimum: float = 0.0, unit: str = "seconds") -> Callable[[str], float]:
    """An argument type: a number of seconds above 0, and of at least `minimum`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not (0 < value < float("inf") and value >= minimum):
            expected = f"from {minimum:g}" if minimum else "above 0"
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {unit} {expected}")
        return value

    return parse


def add_minutes(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option that limits how long programs are measured."""
    parser.add_argument(
        "--minutes", type=seconds(unit="minutes"), default=5.0, metavar="N", help=f"{what} (default: 5)"
    )


def progress_text(rounds: Sequence[Round]) -> str:
    """`round 2, 1.52× as fast so far`"""
    from profiler.check.speed.rounds import measured_gain

    gain = measured_gain(rounds)
    return f"round {len(rounds) + 1}" + (f", {ratio(math.exp(gain.log))} as fast so far" if gain else "")


def add_card(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a virtual device."""
    card = "what a virtual device shows itself to be (default: %(default)s)"
    parser.add_argument("--card", choices=CARDS, default=DEFAULT_CARD, help=card)


def add_counting(parser: argparse.ArgumentParser) -> None:
    """Add the options that count what the program does, and that show it CUDA devices that do not exist."""
    devices = "show the program N CUDA devices that do not exist, and count its waits and copies (default N: 1)"
    parser.add_argument("--virtual-cuda", nargs="?", const=1, type=int, metavar="N", help=devices)
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


def add_privacy(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is recorded of the user's code and command, and who may read it."""
    add = parser.add_argument
    add("--no-source", action="store_true", help="do not store the text of source lines")
    add("--no-arguments", action="store_true", help="store no arguments of the command, only its program")
    add("--shared", action="store_true", help="let the umask decide who may read the runs (default: only you)")


def privacy(args: argparse.Namespace) -> Privacy:
    """Return what these options say."""
    from profiler.core.masking import Privacy

    return Privacy(not args.no_source, not args.no_arguments, args.shared)


def add_max_size(parser: argparse.ArgumentParser) -> None:
    """Add the option that allows larger files to be read."""
    what = "the most that is read of a file, unpacked, as in 20GB (default: 2GB)"
    parser.add_argument("--max-size", action=MaxSize, metavar="SIZE", help=what)
