"""The modes that start no program: two recorded runs, and the history of checks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from profiler.check.counters.compare import compare, overall
from profiler.check.history import read, trend
from profiler.check.model import BASE, CANDIDATE, GateResult
from profiler.check.modes.finish import finish
from profiler.check.modes.sides import describe_side, fingerprint, load_recordings, side_differences
from profiler.check.outputs.history import print_history
from profiler.check.settings import Settings
from profiler.check.worktree.prepare import PreparedSide
from profiler.core.notice import Notice


def check_runs(paths: Sequence[Path], settings: Settings) -> int:
    """Compare the counters of two recorded runs, whose times gate nothing; returns the exit code."""
    sides = {label: load_recordings([path]) for label, path in zip((BASE, CANDIDATE), paths, strict=True)}
    lines = compare(sides[BASE].counted, sides[CANDIDATE].counted, settings.limits)
    info = {}
    for (label, recordings), path in zip(sides.items(), paths, strict=True):
        run = recordings.runs[0].info
        side = PreparedSide(tuple(run.argv), Path(), what=str(path), commit=run.git_commit or "")
        info[label] = describe_side(label, side, recordings=recordings)
    result = GateResult(
        base=info[BASE],
        candidate=info[CANDIDATE],
        limits=settings.limits,
        mode="runs",
        counters=lines,
        counters_state=overall(lines),
        warnings=side_differences(sides[BASE], sides[CANDIDATE]),
        notes=(Notice("times-not-compared"), Notice("one-process-a-side")),
        machine=fingerprint(sides[CANDIDATE].runs),
    )
    return finish(result, settings, sides=sides)


def show_history(path: Path) -> int:
    """Print the results of former checks; returns the exit code."""
    print_history(trend(read(path)), stream=sys.stdout)
    return 0
