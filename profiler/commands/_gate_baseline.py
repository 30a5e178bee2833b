"""`check --baseline FILE`: counters against the file, and `--update`, which writes it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from profiler.base.errors import ProfilerError
from profiler.commands._gate_found import Found
from profiler.commands._gate_results import fingerprint, side_info
from profiler.commands._gate_settings import GateSettings
from profiler.gate import baseline
from profiler.gate.counters import compare, overall
from profiler.gate.keyed import key_of, mismatch
from profiler.gate.model import BASE, CANDIDATE, INCONCLUSIVE, PASS, CounterLine, GateResult, SideInfo
from profiler.record.turns.counting import STEPS
from profiler.record.turns.resident import Program

MORE = 3
"""Processes more, where counters vary from one to the next."""
Counting = Callable[[int, int], Found]
"""Counts (how many processes, number of the first one)."""


def file_of(settings: GateSettings) -> Path:
    """:raises ProfilerError: none is named."""
    if settings.baseline is None:
        raise ProfilerError(
            "nothing to hold the command against: --baseline FILE (counters), --against REV (speed and counters), or "
            "baseline = FILE in [tool.profiler.check]"
        )
    return settings.baseline


def steps_of(settings: GateSettings) -> int:
    """Steps to count: what was asked for, else as many as the file's sections have, so that they are comparable.

    :raises ProfilerError: there is no file, or it is damaged; better said before anything is run.
    """
    path = file_of(settings)
    if settings.update:
        return settings.steps or STEPS
    if not path.exists():
        raise ProfilerError(f"there is no baseline {path}: write it with --update, and check it in")
    there = {section.steps for section in baseline.sections(path)}
    return settings.steps or (there.pop() if len(there) == 1 else STEPS)


def against_file(program: Program, settings: GateSettings, count: Counting) -> tuple[GateResult, Found]:
    """The counters of fresh processes against the file's section for this machine and work."""
    path = file_of(settings)
    found = count(settings.processes, 1)
    key = key_of(found.runs[0])
    section = baseline.read(path, key)
    lines: tuple[CounterLine, ...] = ()
    reason = "; ".join(mismatch(section.key, key))
    if not reason:
        lines = compare(baseline.as_counted(section), found.counted, settings.limits)
        if overall(lines) != PASS and any(map(_varies, lines)):
            found = found.joined(count(MORE, settings.processes + 1))
            lines = compare(baseline.as_counted(section), found.counted, settings.limits)
    return GateResult(
        base=SideInfo(BASE, f"{path} (of {section.updated_at[:10]})", section.command, step_source=section.step),
        candidate=side_info(CANDIDATE, "", program.argv, found.runs[0].info.git_commit, runs=found.runs),
        limits=settings.limits,
        mode="baseline",
        counters=lines,
        counters_state=INCONCLUSIVE if reason else overall(lines),
        counters_reason=reason,
        doubts=tuple(filter(None, (baseline.other_command(section, shlex.join(program.argv), str(program.cwd)),))),
        machine=fingerprint(found.runs),
        baseline_file=str(path),
    ), found


def _varies(line: CounterLine) -> bool:
    return any(ends is not None and ends[0] != ends[1] for ends in (line.before, line.after))


def updated(program: Program, settings: GateSettings, count: Counting) -> int:
    """Write what is counted now into the file.

    :raises ProfilerError: it would let more pass, and nobody says why; or this is a job of continuous integration.
    """
    path = file_of(settings)
    if os.environ.get("CI"):
        raise ProfilerError(
            f"--update in continuous integration (the variable CI is set): a job never loosens its own gate; update "
            f"{path} where somebody reviews it, and check it in"
        )
    found = count(settings.processes, 1)
    names = {name for one in found.counted for name in (*one.totals, *one.workers)}
    if any(len({one.totals.get(name, one.workers.get(name)) for one in found.counted}) > 1 for name in names):
        found = found.joined(count(MORE, settings.processes + 1))
    made = baseline.made(
        found.counted, found.runs[0], shlex.join(program.argv), reason=settings.reason, folder=str(program.cwd)
    )
    old, damage = baseline.previous(path, made.key)
    looser = (damage,) if damage else baseline.loosened(old, made) if old else ()
    if looser and not settings.reason:
        raise ProfilerError(
            f"{path} would let more pass than before, so it needs --reason TEXT and is as it was: {'; '.join(looser)}"
        )
    changed = baseline.write(path, made)
    for line in looser:
        print(f"looser: {line}", file=sys.stderr)
    counters = f"{len(made.counters)} counters over {made.steps} steps of {made.processes} processes"
    print(f"{path}: {f'written, {counters}; review it and check it in' if changed else f'nothing changed, {counters}'}")
    return 0
