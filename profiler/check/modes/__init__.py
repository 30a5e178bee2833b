"""Runs the modes of `check`, from the command line to an exit code."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profiler.check.model import GateResult


def run_check(args: argparse.Namespace) -> int:
    """Run the mode that the options ask for, for each configuration of pyproject.toml where there is no command.

    :raises ProfilerError: the check could not be done.
    """
    from profiler.check.modes.options import split_words
    from profiler.check.settings import options_of, read_table

    sides, command = split_words(args)
    options = options_of(args)
    compares = args.against is not None or args.baseline is not None or args.update is not None
    if not (sides or command) and (compares or "history" not in options):
        table, _ = read_table(options)
        if table.configurations:
            from profiler.check.modes.configurations import check_configurations

            return check_configurations(args, tuple(table.configurations), run_one)
        command = command_of(table.command)
    return run_one(args, sides, command)


def command_of(text: str | None) -> tuple[str, ...]:
    """The words of a command in pyproject.toml.

    :raises ProfilerError: it cannot be split into words as a shell does.
    """
    from profiler.core.errors import ProfilerError

    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        raise ProfilerError(f'[tool.profiler.check] command = "{text}": {error}') from None


def run_one(
    args: argparse.Namespace,
    sides: tuple[str, ...],
    command: tuple[str, ...],
    configuration: str = "",
    results: list[GateResult] | None = None,
) -> int:
    """Run the mode for two runs or commands, or for a command.

    :param configuration: the name of a configuration in pyproject.toml whose settings hold; empty: none.
    :param results: gets the result, if there is one.
    """
    from profiler.check.modes.options import Mode, check_early, choose_mode
    from profiler.check.settings import options_of, read_table, settings_of

    table, file = read_table(options_of(args), configuration)
    if command or configuration:
        args.count, args.virtual_cuda = args.count or table.count, args.virtual_cuda or table.virtual_cuda
        command = command or command_of(table.command)
    mode = choose_mode(args, sides, command, history=table.history)
    if mode is Mode.HISTORY:
        from profiler.check.history import read
        from profiler.check.outputs.history import print_history, write_page

        shown = read(Path(str(table.history)))
        print_history(shown, stream=sys.stdout)
        if args.out is not None:
            print(f"page: {write_page(shown, args.out)}")
        return 0
    from dataclasses import replace

    from profiler.check.modes import counters, interleaved
    from profiler.core.files import limited_to
    from profiler.run.store import folder_of_runs

    without = (Mode.COMMANDS, Mode.RUNS, Mode.AGAINST_COUNTS)
    settings = settings_of(table, file, args, uses_baseline=mode not in without)
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
