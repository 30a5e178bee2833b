"""Checks all configurations of pyproject.toml, and writes one report of them beside their own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

from profiler.check.model import FAIL, INCONCLUSIVE, NOT_COMPARABLE, PASS, GateResult
from profiler.check.modes.finish import interrupt_code, report_error
from profiler.check.outputs.page import configuration_lines
from profiler.check.outputs.write import write_configurations
from profiler.check.settings import options_of, output_directory, read_table
from profiler.core.errors import Exit, ProfilerError
from profiler.run.store import folder_of_runs

ERROR: Final = "ERROR"
"""The state of a configuration that could not be checked."""
_WORST: Final = (FAIL, ERROR, NOT_COMPARABLE, INCONCLUSIVE, PASS)
"""States from the one that decides to the one that needs all of them."""
_STOPPED: Final = 128
"""Exit codes from this on are those of signals."""


def check_configurations(args: argparse.Namespace, names: tuple[str, ...], run_one: Callable[..., int]) -> int:
    """Check each configuration as if its command were given, and report all of them; returns the exit code.

    A configuration that cannot be checked does not keep others from being checked. A signal ends all.

    :param run_one: `profiler.check.modes.run_one`.
    """
    out = output_directory(args.out)
    table, _ = read_table(options_of(args))
    found: dict[str, GateResult] = {}
    codes: list[int] = []
    with folder_of_runs(out, shared=table.shared):
        for name in names:
            if codes and codes[-1] >= _STOPPED:
                found[name] = GateResult(state=ERROR, sentence="it was not checked, because the check was stopped")
                continue
            print(f"configuration {name}", flush=True)
            results: list[GateResult] = []
            try:
                given = argparse.Namespace(**{**vars(args), "out": out / name})
                codes.append(run_one(given, (), (), name, results))
            except KeyboardInterrupt as stop:
                codes.append(interrupt_code(stop))
                results = results or [GateResult(state=ERROR, sentence="it was stopped")]
            except BrokenPipeError:
                raise
            except (ProfilerError, OSError) as error:
                line = str(report_error(error))
                print(f"error: {name}: {line}", file=sys.stderr, flush=True)
                codes.append(int(Exit.USAGE))
                results = [GateResult(state=ERROR, sentence=line, out=str(out / name))]
            found.update((name, result) for result in results)
        if args.update is None and found:
            state = min((result.state for result in found.values()), key=_WORST.index)
            write_configurations(found, state, out)
            print(*configuration_lines(found), f"report: {out / 'check.html'}", sep="\n")
    return codes[-1] if codes[-1] >= _STOPPED else min(filter(None, codes), default=0)  # FAIL, then an error
