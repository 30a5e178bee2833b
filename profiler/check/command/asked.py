"""What `check` is asked for: recorded runs or a command, which of its modes that is, and what does not go together."""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError
from profiler.run.tables import MANIFEST

UPDATE: Final = "--update"
FILE: Final = "--baseline alone"
AGAINST: Final = "--against"
COMMANDS: Final = "--before and --after"
RUNS_OF: Final = "two recorded runs"
HISTORY: Final = "--history alone"
"""The modes, as lines to people name them."""

_TURNS: Final = (AGAINST, COMMANDS)
_STARTING: Final = (UPDATE, FILE, *_TURNS)
_GATING: Final = (FILE, *_TURNS, RUNS_OF)
_GOES_WITH: Final[Mapping[str, tuple[str, ...]]] = {
    "reason": (UPDATE,),
    "baseline": (UPDATE, FILE, AGAINST),
    "no_baseline": (AGAINST,),
    "link": (AGAINST,),
    "environment": (AGAINST,),
    "detect": _TURNS,
    "max_rounds": _TURNS,
    "max_seconds": _TURNS,
    "no_explain": _TURNS,
    "steps": _STARTING,
    "warmup": _STARTING,
    "patience": _STARTING,
    "limit": _GATING,
    "ignore": _GATING,
    "inconclusive": _GATING,
    "github": _GATING,
    "out": (UPDATE, *_GATING),
    "history": (*_GATING, HISTORY),
}
"""Option -> the modes in which it does something."""
_FILES: Final = (".json", ".gz", ".zip")
"""Of a manifest, of traces, of a run that was packed."""


def split(args: argparse.Namespace) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Recorded runs before `--`, a command behind it; options that follow the runs are read as if they came first.

    :raises ProfilerError: what would be a run is none: mostly it is a command, and its `--` was forgotten.
    """
    words: list[str] = args.words
    at = words.index("--") if "--" in words else len(words)
    before, command = words[:at], tuple(words[at + 1 :])
    runs = next((number for number, word in enumerate(before) if word.startswith("-")), len(before))
    if at == len(words):
        _recorded(before[:runs], args, before)
    if runs < len(before):
        args.parser.parse_args(before[runs:], namespace=args)
        if args.words:
            args.parser.error(f"what is {args.words[0]}? Runs come first, a command after --")
    return tuple(map(Path, before[:runs])), command


def _recorded(runs: list[str], args: argparse.Namespace, words: list[str]) -> None:
    """:raises ProfilerError: one of them is no recorded run."""
    strange = next((run for run in runs if not _is_run(Path(run))), None)
    if strange is None:
        return
    if strange != runs[0] or not (shutil.which(strange) or Path(strange).is_file()):
        there = f"there is no {MANIFEST} in it" if Path(strange).exists() else "there is nothing of that name"
        raise ProfilerError(f"{strange} is no recorded run: {there}; a command goes after --")
    held = f"--against {args.against}" if args.against else f"--baseline {args.baseline or 'counters.json'}"
    raise ProfilerError(
        f"{strange} is no recorded run: put -- before a command, as in: check {held} -- {shlex.join(words)}"
    )


def _is_run(path: Path) -> bool:
    """Whether it could be loaded as one: a directory with its manifest, that file, or one that holds a whole run."""
    return path.is_file() if path.suffix in _FILES else (path / MANIFEST).is_file()


def asked(args: argparse.Namespace, runs: tuple[Path, ...], command: tuple[str, ...]) -> str:
    """The mode.

    :raises ProfilerError: what was asked for does not go together, or an option does nothing.
    """
    if (args.before is None) != (args.after is None):
        raise ProfilerError("--before and --after go together")
    kinds = [bool(runs), bool(command), args.before is not None]
    if sum(kinds) > 1:
        raise ProfilerError("give one of: two runs, a command after --, or --before and --after")
    if runs and len(runs) != 2:
        given = " ".join(map(str, runs))
        raise ProfilerError(f"two runs are held against each other, not {len(runs)} ({given}); a command goes after --")
    if not any(kinds) and (args.history is None or args.against or args.baseline or args.update):
        raise ProfilerError(
            "nothing to check: give a command after --, as in: check --against main -- python train.py (or two runs, "
            "or --before and --after; --history FILE alone shows what was checked before)"
        )
    if args.against is not None and not command:
        raise ProfilerError("--against needs the command to run, after --")
    if args.update and not command:
        raise ProfilerError("--update needs the command to count, after --")
    if args.update and args.against is not None:
        raise ProfilerError("--update writes a baseline and gates nothing: leave --against out")
    if args.baseline is not None and args.no_baseline:
        raise ProfilerError("--baseline or --no-baseline: not both")
    mode = _mode(args, runs, command)
    for name, modes in _GOES_WITH.items():
        if getattr(args, name) not in (None, False) and mode not in modes:
            option = f"--{name.replace('_', '-')}"
            raise ProfilerError(f"{option} goes with {_listed(modes)}: with {mode} it would do nothing, leave it out")
    return mode


def _mode(args: argparse.Namespace, runs: tuple[Path, ...], command: tuple[str, ...]) -> str:
    if runs:
        return RUNS_OF
    if args.before is not None:
        return COMMANDS
    if not command:
        return HISTORY
    if args.against is not None:
        return AGAINST
    return UPDATE if args.update else FILE


def _listed(modes: tuple[str, ...]) -> str:
    *others, last = modes
    return f"{', '.join(others)} or {last}" if others else last
