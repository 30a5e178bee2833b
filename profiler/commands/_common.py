"""Holds what several commands share: the folder of runs, the newest run, and some arguments."""

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
    """Add the optional argument RUN. If it is missing, commands use `newest_run`."""
    parser.add_argument(
        "directory", nargs="?", type=Path, metavar="RUN", help=f"{what} (default: the newest in {RUNS})"
    )


def newest_run() -> Path:
    """Return the directory of the newest finished run in RUNS, and print its name on stderr.

    Runs of a comparison or a check are one folder deeper and do not count.

    :raises ProfilerError: there is no finished run.
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
    """Return an argument type: a number above 0 and not below `minimum`.

    :param unit: what its errors call it.
    """

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
    """Add the option that chooses the GPU model of virtual devices."""
    card = "GPU model of the virtual devices (default: %(default)s)"
    parser.add_argument("--card", choices=CARDS, default=DEFAULT_CARD, help=card)


def add_counting(parser: argparse.ArgumentParser) -> None:
    """Add the options for exact counts: --virtual-cuda and --count."""
    devices = "count on N CUDA devices that do not exist (default N: 1)"
    parser.add_argument("--virtual-cuda", nargs="?", const=1, type=int, metavar="N", help=devices)
    count = "count operators, memory and waits by line, without times"
    parser.add_argument("--count", action="store_true", help=count)


def no_virtual_device(info: RunInfo) -> str:
    """Return why a program did not see its virtual devices, or "" if it did.

    :param info: of a loaded run: only that has the facts of all processes.
    """
    from profiler.run.model import HOOKS

    if "virtual_cuda" in info.facts:
        return ""
    status = info.collector("hook virtual_cuda") or info.collector(HOOKS)
    return f"saw no virtual device: {status and status.reason}"


def add_privacy(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide which text of code and command is stored, and who may read it."""
    add = parser.add_argument
    add("--no-source", action="store_true", help="do not store the text of source lines")
    add("--no-arguments", action="store_true", help="do not store the arguments of the command")
    add("--shared", action="store_true", help="let others read the runs, by the umask")


def privacy(args: argparse.Namespace) -> Privacy:
    """Return the values of the options of `add_privacy`."""
    from profiler.core.masking import Privacy

    return Privacy(not args.no_source, not args.no_arguments, args.shared)


def add_max_size(parser: argparse.ArgumentParser) -> None:
    """Add the option that allows larger files to be read."""
    what = "refuse larger files, by unpacked size, as in 20GB (default: 2GB)"
    parser.add_argument("--max-size", action=MaxSize, metavar="SIZE", help=what)
