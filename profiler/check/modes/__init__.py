"""Runs the modes of `check`, from the command line to an exit code."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def run_check(args: argparse.Namespace) -> int:
    """Run the mode that the options ask for.

    :raises ProfilerError: the check could not be done.
    """
    from profiler.check.modes.options import Mode, check_early, choose_mode, split_words
    from profiler.check.settings import options_of, read_table, settings_of

    sides, command = split_words(args)
    table, file = read_table(options_of(args))
    mode = choose_mode(args, sides, command, history=table.history)
    if mode is Mode.HISTORY:
        from profiler.check.history import read
        from profiler.check.outputs.history import print_history, write_page

        shown = read(Path(str(table.history)))
        print_history(shown, stream=sys.stdout)
        if args.out is not None:
            print(f"page: {write_page(shown, args.out)}")
        return 0
    from profiler.check.modes import counters, interleaved
    from profiler.core.checked import limited_to
    from profiler.run.store import folder_of_runs

    without = (Mode.COMMANDS, Mode.RUNS, Mode.AGAINST_COUNTS)
    settings = settings_of(table, file, args, uses_baseline=mode not in without)
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
