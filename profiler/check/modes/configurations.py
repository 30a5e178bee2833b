"""Runs `check`: its mode for a command, or for each configuration of pyproject.toml, with one report of all."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from profiler.check.history import read
from profiler.check.model import FAIL, INCONCLUSIVE, NOT_COMPARABLE, PASS, GateResult
from profiler.check.modes import counters, interleaved
from profiler.check.modes.finish import interrupt_code, report_error
from profiler.check.modes.options import Mode, check_early, choose_mode, split_words
from profiler.check.outputs.history import print_history, write_page
from profiler.check.outputs.page import configuration_lines
from profiler.check.outputs.write import write_configurations
from profiler.check.settings import (
    FoundTable,
    SettingsTable,
    find_table,
    options_of,
    output_directory,
    read_table,
    settings_of,
)
from profiler.core.errors import Exit, ProfilerError
from profiler.core.files import limited_to
from profiler.run.store import folder_of_runs

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
        shown = read(Path(str(table.history)))
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
    """The words of the command in pyproject.toml.

    :raises ProfilerError: it cannot be split into words as a shell does.
    """
    try:
        return tuple(shlex.split(table.command or ""))
    except ValueError as error:
        raise ProfilerError(f'[tool.profiler.check] command = "{table.command}": {error}') from None
