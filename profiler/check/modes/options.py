"""Finds the mode of `check` that the command line asks for, and refuses what it can before a program is started."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from profiler.check import history
from profiler.check.counters import baseline
from profiler.check.counters.compare import EVERY, GATED, UNGATED
from profiler.check.settings import Settings
from profiler.core.errors import ProfilerError
from profiler.core.facts import with_python
from profiler.core.masking import shown_command
from profiler.core.metrics import COUNTERS
from profiler.run.tables import MANIFEST


class Mode(StrEnum):
    """The modes, as messages name them."""

    UPDATE = "--update"
    BASELINE = "--baseline alone"
    AGAINST = "--against"
    AGAINST_COUNTS = "--against with --count or --virtual-cuda"
    COMMANDS = "two commands"
    RUNS = "two recorded runs"
    HISTORY = "the history alone"


_GOES_WITH: Final[Mapping[str, tuple[Mode, ...]]] = {
    "baseline": (Mode.UPDATE, Mode.BASELINE, Mode.AGAINST),
    "virtual_cuda": (Mode.UPDATE, Mode.BASELINE, Mode.AGAINST_COUNTS),
    "count": (Mode.UPDATE, Mode.BASELINE, Mode.AGAINST_COUNTS),
    "link": (Mode.AGAINST, Mode.AGAINST_COUNTS),
}
"""Option -> the modes in which it has an effect."""
_RUN_FILES: Final = (".json", ".gz", ".zip")
"""A manifest, a trace, a packed run."""
_UNKNOWN: Final = "unrecognized arguments: "
"""The beginning of argparse's message on unknown options."""
_SIMILAR_OPTION: Final = 0.7
"""Ratio of equal letters (difflib) of two options, which both begin with --: --basline has 0.95, --bogus 0.47."""
_SIMILAR: Final = 0.8
"""Ratio of equal letters (difflib): sync is syncs misspelt, and a counter of the program's own is not refused before it
is known whether the program has it."""


def split_words(args: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Recorded runs or commands in quotes before `--`, a command behind it; options that follow them are read as if
    they came first.

    :raises ProfilerError: a run is no recorded run: usually it is a command, and its `--` was forgotten.
    """
    words: list[str] = args.words
    end = words.index("--") if "--" in words else len(words)
    before, command = words[:end], with_python(words[end + 1 :])
    runs = next((number for number, word in enumerate(before) if word.startswith("-")), len(before))
    if end == len(words) and not _are_commands(before[:runs]):
        _check_runs_exist(before[:runs], args, before)
    if runs < len(before):
        args.parser.parse_args(before[runs:], namespace=args)
        if args.words:
            args.parser.error(f"what is {args.words[0]}? Runs come first, a command after --")
    return tuple(before[:runs]), command


def _are_commands(words: Sequence[str]) -> bool:
    """Whether these are two commands in quotes, and not recorded runs."""
    return len(words) == 2 and all(len(word.split()) > 1 and not Path(word).exists() for word in words)


def _check_runs_exist(runs: list[str], args: argparse.Namespace, words: list[str]) -> None:
    def is_run(path: Path) -> bool:
        return path.is_file() if path.suffix in _RUN_FILES else (path / MANIFEST).is_file()

    missing = next((run for run in runs if not is_run(Path(run))), None)
    if missing is None:
        return
    if missing != runs[0] or not (shutil.which(missing) or Path(missing).is_file()):
        if not Path(missing).exists():
            raise ProfilerError(f"there is no run {missing}; a command goes after --")
        raise ProfilerError(f"{missing} is no recorded run: there is no {MANIFEST} in it; a command goes after --")
    option = f"--against {args.against}" if args.against else f"--baseline {args.baseline or 'counters.json'}"
    raise ProfilerError(
        f"{missing} is no recorded run: put -- before a command, as in: check {option} -- {shown_command(words)}"
    )


def choose_mode(
    args: argparse.Namespace, sides: tuple[str, ...], command: tuple[str, ...], *, history: str | None
) -> Mode:
    """:param sides: two recorded runs or commands.
    :param history: the file of results; None: there is none.
    :raises ProfilerError: the options contradict each other, or one would have no effect.
    """
    if sides and command:
        raise ProfilerError("give one of: two runs or two commands in quotes, or a command after --")
    if sides and len(sides) != 2:
        raise ProfilerError(
            f"two runs or commands are compared, not {len(sides)} ({' '.join(sides)}); a command goes after --"
        )
    if not (sides or command) and (history is None or args.against or args.baseline or args.update is not None):
        raise ProfilerError(
            "nothing to check: give a command after --, as in: check --against main -- python train.py (or two runs, "
            "or two commands in quotes; --set history=FILE alone shows what was checked before)"
        )
    if args.update is not None and args.against is not None:
        raise ProfilerError("--update writes a baseline and compares nothing: leave --against out")
    for name in ("against", "update"):
        if getattr(args, name) is not None and not command:
            raise ProfilerError(f"--{name} needs a command, after --")
    if sides:
        mode = Mode.COMMANDS if _are_commands(sides) else Mode.RUNS
    elif not command:
        mode = Mode.HISTORY
    elif args.against is not None:
        mode = Mode.AGAINST_COUNTS if args.count or args.virtual_cuda else Mode.AGAINST
    else:
        mode = Mode.BASELINE if args.update is None else Mode.UPDATE
    for name, modes in _GOES_WITH.items():
        if getattr(args, name) not in (None, False) and mode not in modes:
            *others, last = modes
            option = name.replace("_", "-")
            alternatives = f"{', '.join(others)} or {last}"
            raise ProfilerError(f"--{option} goes with {alternatives}: with {mode} it has no effect, leave it out")
    return mode


def similar_option(message: str, usage: str) -> str:
    """`; did you mean --baseline?` after argparse's message on unknown options; empty where none is similar.

    argparse has no exception of its own for these.
    """
    if message.startswith(_UNKNOWN):
        options = re.findall(r"--[a-z-]+", usage)
        for word in message.removeprefix(_UNKNOWN).split():
            similar = difflib.get_close_matches(word.partition("=")[0], options, 1, _SIMILAR_OPTION)
            if word.startswith("--") and similar:
                return f"; did you mean {similar[0]}?"
    return ""


# ---------------------------------------------------------------- before any program is started


def check_early(settings: Settings, mode: Mode) -> None:
    """:raises ProfilerError: the check would end in an error whatever its programs do."""
    if settings.table.history is not None:
        _check_history(Path(settings.table.history))
    if settings.update:  # it has no limits
        if settings.baseline is not None:
            _check_baseline(settings.baseline)
        return
    names = {*GATED, *UNGATED, *(counter.name for counter in COUNTERS), EVERY}
    has_baseline = settings.baseline is not None and settings.baseline.exists()
    if settings.baseline is not None and has_baseline:
        for section in baseline.read_sections(settings.baseline):
            names |= {*section.counters, *section.workers}
    limits = settings.limits
    for key, counters in (("limits", limits.counters), ("ignore", limits.ignore), ("budgets", limits.budgets)):
        for name in counters:
            location = f"{key} (--set, or [tool.profiler.check]): {name}"
            check_spelling(name, names, location)
            if key != "budgets" and mode is Mode.BASELINE and has_baseline and name not in names:
                raise ProfilerError(
                    f"{location}: nothing counts that, by {settings.baseline}; if the program does so now, "
                    "write its counters down with --update first"
                )


def _check_history(path: Path) -> None:
    """It can be read, as it will be when it is shown, and appended to."""
    if not path.exists():
        _check_folder(path, f"cannot append to the history {path}")
        return
    if not stat.S_ISREG(path.stat().st_mode):
        raise ProfilerError(f"cannot append to the history {path}: it is no plain file")
    history.read(path)
    if not os.access(path, os.W_OK):
        raise ProfilerError(f"cannot append to the history {path}: it may not be written")


def _check_baseline(path: Path) -> None:
    """An update makes the folder, writes beside the file, then puts that in its place."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise ProfilerError(f"cannot write the baseline {path}: it is a folder")
    there = next(folder for folder in target.parents if folder.exists())
    _check_folder(there / target.name, f"cannot write the baseline {path}")
    baseline.previous(path, {})


def _check_folder(path: Path, what: str) -> None:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ProfilerError(f"{what}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ProfilerError(f"{what}: nothing may be written in {folder}")


def check_spelling(name: str, names: set[str], location: str) -> None:
    """:raises ProfilerError: the name of a counter is similar to that of another one.

    Whether anything counts it is known only when programs have counted.
    """
    others = [other for other in sorted(names) if other not in name]  # fsyncs is no misspelt syncs
    similar = [] if name in names else difflib.get_close_matches(name, others, 1, _SIMILAR)
    if similar:
        raise ProfilerError(f"{location}: nothing counts that; did you mean {similar[0]}?")
