"""Runs `check`: in the mode that the command line asks for, for a command or for each configuration of pyproject.toml.

What can be refused is refused before a program is started.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import filterfalse
from pathlib import Path
from typing import Final

from profiler.check.counters import baseline
from profiler.check.counters.compare import EVERY, GATED, UNGATED
from profiler.check.model import FAIL, INCONCLUSIVE, NOT_COMPARABLE, PASS, GateResult
from profiler.check.modes import counters, interleaved
from profiler.check.modes.finish import interrupt_code, report_error
from profiler.check.outputs import history
from profiler.check.outputs.history import print_history, write_page
from profiler.check.outputs.page import configuration_lines
from profiler.check.outputs.write import write_configurations
from profiler.check.settings import (
    FoundTable,
    Settings,
    SettingsTable,
    find_table,
    options_of,
    output_directory,
    read_table,
    settings_of,
)
from profiler.core.errors import Exit, ProfilerError
from profiler.core.facts import with_python
from profiler.core.files import limited_to
from profiler.core.masking import shown_command
from profiler.core.metrics import COUNTERS
from profiler.run.store import folder_of_runs
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
_SIMILAR: Final = 0.8
"""Ratio of equal letters (difflib): sync is syncs misspelt, and a counter of the program's own is not refused before it
is known whether the program has it."""

ERROR: Final = "ERROR"
"""The state of a configuration that could not be checked."""
_WORST: Final = (FAIL, ERROR, NOT_COMPARABLE, INCONCLUSIVE, PASS)
"""States from the one that decides to the one that needs all of them."""
_STOPPED: Final = 128
"""Exit codes from this on are those of signals."""
_WITHOUT_BASELINE: Final = (Mode.COMMANDS, Mode.RUNS, Mode.AGAINST_COUNTS)


def run_check(args: argparse.Namespace) -> int:
    """Run the mode that the options ask for, for each configuration of pyproject.toml where there is no command.

    :raises ProfilerError: the check could not be done.
    """
    sides, command = split_words(args)
    options, found = options_of(args), find_table()
    table, file = read_table(options, found=found)
    compares = args.against is not None or args.baseline is not None or args.update is not None
    if not (sides or command) and (compares or "history" not in options):
        if table.configurations:
            return _check_configurations(args, table, found)
        command = _command_of(table)
    return _run_one(args, (table, file), sides, command)


def _check_configurations(args: argparse.Namespace, table: SettingsTable, found: FoundTable) -> int:
    """Check each configuration as if its command were given, and report all of them; returns the exit code.

    A configuration that cannot be checked does not keep others from being checked. A signal ends all.
    """
    out = output_directory(args.out)
    results: dict[str, GateResult] = {}
    codes: list[int] = []
    with folder_of_runs(out, shared=table.shared):
        for name in table.configurations:
            if codes and codes[-1] >= _STOPPED:
                results[name] = GateResult(state=ERROR, sentence="it was not checked, because the check was stopped")
                continue
            print(f"configuration {name}", flush=True)
            own: list[GateResult] = []
            try:
                given = argparse.Namespace(**{**vars(args), "out": out / name})
                settings = read_table(options_of(args), name, found=found)
                codes.append(_run_one(given, settings, (), _command_of(settings[0]), own))
            except KeyboardInterrupt as stop:
                codes.append(interrupt_code(stop))
                own = own or [GateResult(state=ERROR, sentence="it was stopped")]
            except BrokenPipeError:
                raise
            except (ProfilerError, OSError) as error:
                line = str(report_error(error))
                print(f"error: {name}: {line}", file=sys.stderr, flush=True)
                codes.append(int(Exit.USAGE))
                own = [GateResult(state=ERROR, sentence=line, out=str(out / name))]
            results.update((name, result) for result in own)
        if args.update is None and results:
            state = min((result.state for result in results.values()), key=_WORST.index)
            write_configurations(results, state, out)
            print(*configuration_lines(results), f"report: {out / 'check.html'}", sep="\n")
    return codes[-1] if codes[-1] >= _STOPPED else min(filter(None, codes), default=0)  # FAIL, then an error


def _run_one(
    args: argparse.Namespace,
    settings_table: tuple[SettingsTable, Path | None],
    sides: tuple[str, ...],
    command: tuple[str, ...],
    results: list[GateResult] | None = None,
) -> int:
    """Run the mode for two runs or commands, or for a command.

    :param settings_table: what `read_table` returned.
    :param results: gets the result, if there is one.
    """
    table, file = settings_table
    if command:
        args.count, args.virtual_cuda = args.count or table.count, args.virtual_cuda or table.virtual_cuda
    mode = choose_mode(args, sides, command, history=table.history)
    if mode is Mode.HISTORY:
        shown = history.read(Path(str(table.history)))
        print_history(shown, stream=sys.stdout)
        if args.out is not None:
            print(f"page: {write_page(shown, args.out)}")
        return 0
    settings = settings_of(table, file, args, uses_baseline=mode not in _WITHOUT_BASELINE)
    if results is not None:
        settings = replace(settings, results=results)
    check_early(settings, mode)
    most = None if table.max_size is None else int(table.max_size)
    with limited_to(most), folder_of_runs(settings.out, shared=settings.privacy.shared):
        if mode is Mode.RUNS:
            return counters.check_runs([Path(side) for side in sides], settings)
        if mode is Mode.COMMANDS:
            return interleaved.check_commands(sides[0], sides[1], settings)
        if mode is Mode.AGAINST:
            return interleaved.check_against(command, settings, args.against)
        if mode is Mode.AGAINST_COUNTS:
            return counters.check_revision(command, settings, args.against)
        return counters.check_command(command, settings)


def _command_of(table: SettingsTable) -> tuple[str, ...]:
    """Return the words of the command in pyproject.toml.

    :raises ProfilerError: it cannot be split into words as a shell does.
    """
    try:
        return tuple(shlex.split(table.command or ""))
    except ValueError as error:
        raise ProfilerError(f'[tool.profiler.check] command = "{table.command}": {error}') from None


# ---------------------------------------------------------------- words and modes


def split_words(args: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the words: recorded runs or commands in quotes before `--`, a command behind it.

    Options that follow them are read as if they came first.

    :raises ProfilerError: a run is no recorded run: usually it is a command, and its `--` was forgotten.
    """
    words: list[str] = args.words
    end = words.index("--") if "--" in words else len(words)
    before, command = words[:end], with_python(words[end + 1 :])
    runs = next((number for number, word in enumerate(before) if word.startswith("-")), len(before))
    missing = "" if end < len(words) or _are_commands(before[:runs]) else next(filterfalse(_is_run, before[:runs]), "")
    if missing and missing == before[0] and (shutil.which(missing) or Path(missing).is_file()):
        option = f"--against {args.against}" if args.against else f"--baseline {args.baseline or 'counters.json'}"
        raise ProfilerError(
            f"{missing} is no recorded run: put -- before a command, as in: check {option} -- {shown_command(before)}"
        )
    if missing:
        there = f"{missing} is no recorded run: there is no {MANIFEST} in it"
        raise ProfilerError(
            f"{there if Path(missing).exists() else f'there is no run {missing}'}; a command goes after --"
        )
    if runs < len(before):
        args.parser.parse_args(before[runs:], namespace=args)
        if args.words:
            args.parser.error(f"what is {args.words[0]}? Runs come first, a command after --")
    return tuple(before[:runs]), command


def _are_commands(words: Sequence[str]) -> bool:
    """Return whether these are two commands in quotes, and not recorded runs."""
    return len(words) == 2 and all(len(word.split()) > 1 and not Path(word).exists() for word in words)


def _is_run(word: str) -> bool:
    path = Path(word)
    return path.is_file() if path.suffix in _RUN_FILES else (path / MANIFEST).is_file()


def choose_mode(
    args: argparse.Namespace, sides: tuple[str, ...], command: tuple[str, ...], *, history: str | None
) -> Mode:
    """Find the mode for these words and options.

    :param sides: two recorded runs or commands.
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


# ---------------------------------------------------------------- before any program is started


def check_early(settings: Settings, mode: Mode) -> None:
    """Refuse a check that would end in an error whatever its programs do."""
    path = settings.baseline
    if settings.table.history is not None:
        _check_history(Path(settings.table.history))
    if settings.update:  # it has no limits
        if path is not None:
            # an update makes the folder, writes beside the file, then puts that in its place
            target = Path(os.path.realpath(path))
            if target.is_dir():
                raise ProfilerError(f"cannot write the baseline {path}: it is a folder")
            there = next(folder for folder in target.parents if folder.exists())
            _check_folder(there / target.name, f"cannot write the baseline {path}")
            baseline.previous(path, {})
        return
    known = {*GATED, *UNGATED, *(counter.name for counter in COUNTERS), EVERY}
    has_baseline = path is not None and path.exists()
    for section in baseline.read_sections(path) if path is not None and has_baseline else ():
        known |= {*section.counters, *section.workers}
    limits = settings.limits
    for key, names in (("limits", limits.counters), ("ignore", limits.ignore), ("budgets", limits.budgets)):
        for name in names:
            location = f"{key} (--set, or [tool.profiler.check]): {name}"
            check_spelling(name, known, location)
            if key != "budgets" and mode is Mode.BASELINE and has_baseline and name not in known:
                raise ProfilerError(
                    f"{location}: nothing counts that, by {path}; if the program does so now, write its counters down "
                    "with --update first"
                )


def _check_history(path: Path) -> None:
    """Check that the file can be read, as it will be when it is shown, and appended to."""
    what = f"cannot append to the history {path}"
    if not path.exists():
        _check_folder(path, what)
        return
    if not stat.S_ISREG(path.stat().st_mode):
        raise ProfilerError(f"{what}: it is no plain file")
    history.read(path)
    if not os.access(path, os.W_OK):
        raise ProfilerError(f"{what}: it may not be written")


def _check_folder(path: Path, what: str) -> None:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ProfilerError(f"{what}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ProfilerError(f"{what}: nothing may be written in {folder}")


def check_spelling(name: str, names: set[str], location: str) -> None:
    """Refuse the name of a counter that is similar to another one: only programs tell later what is counted."""
    others = [other for other in sorted(names) if other not in name]  # fsyncs is no misspelt syncs
    similar = [] if name in names else difflib.get_close_matches(name, others, 1, _SIMILAR)
    if similar:
        raise ProfilerError(f"{location}: nothing counts that; did you mean {similar[0]}?")
