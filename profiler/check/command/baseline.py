"""`check --baseline FILE`: counters against the file, and `--update`, which writes it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profiler.check import baseline
from profiler.check.command.found import Found, only_batches
from profiler.check.command.job import CI, is_true
from profiler.check.command.settings import GateSettings
from profiler.check.command.sides import fingerprint, side_info
from profiler.check.counters import compare, overall
from profiler.check.doubts_steps import too_short
from profiler.check.keyed import key_of, mismatch
from profiler.check.model import BASE, CANDIDATE, INCONCLUSIVE, PASS, STATES, CounterLine, GateResult, SideInfo
from profiler.check.nouns import some
from profiler.check.speed.controlled_process import Program
from profiler.check.speed.counting import STEPS
from profiler.core.errors import ProfilerError

MORE = 3
"""Processes more, where counters vary from one to the next."""
Counting = Callable[[int, int], Found]
"""Counts (how many processes, number of the first one)."""


def file_of(settings: GateSettings) -> Path:
    """:raises ProfilerError: none is named."""
    if settings.baseline is None:
        if settings.update:
            raise ProfilerError("--update needs --baseline FILE (or baseline = FILE in [tool.profiler.check])")
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


@dataclass(frozen=True)
class Held:
    """What the file's section for this machine and work says of the candidate."""

    path: Path
    section: baseline.Baseline
    found: Found
    lines: tuple[CounterLine, ...]
    state: str
    reason: str
    """Why nothing could be compared; empty where it could."""
    doubts: tuple[str, ...]


def held_against(program: Program, settings: GateSettings, count: Counting) -> Held:
    """The counters of fresh processes against the file."""
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
    other = baseline.other_command(section, shlex.join(program.argv), str(program.cwd))
    state = INCONCLUSIVE if reason else overall(lines)
    doubts = (*only_batches(found), other, too_short(found.counted, settings.steps or section.steps))
    return Held(path, section, found, lines, state, reason, tuple(filter(None, doubts)))


def against_file(held: Held, argv: Sequence[str], commit: str, settings: GateSettings) -> GateResult:
    """A result of nothing but this."""
    section = held.section
    return GateResult(
        base=SideInfo(BASE, f"{held.path} (of {section.updated_at[:10]})", section.command, step_source=section.step),
        candidate=side_info(CANDIDATE, "", argv, commit, found=held.found),
        limits=settings.limits,
        mode="baseline",
        counters=held.lines,
        counters_state=held.state,
        counters_reason=held.reason,
        doubts=held.doubts,
        machine=fingerprint(held.found.runs),
        baseline_file=str(held.path),
    )


def joined(result: GateResult, held: Held) -> GateResult:
    """`result` of two revisions with what the file says: of each counter the worse of both, and as bad as the worst."""
    merged = {(line.counter, line.scope): line for line in result.counters}
    for line in held.lines:
        key = line.counter, line.scope
        merged[key] = _worse(line, merged.get(key), str(held.path))
    states = [state for state in (result.counters_state, held.state) if state is not None]
    of = f"{held.path} (of {held.section.updated_at[:10]})"
    return replace(
        result,
        counters=tuple(merged.values()),
        counters_state=max(states, key=STATES.index),
        counters_reason="; ".join(filter(None, (result.counters_reason, held.reason))),
        doubts=(*result.doubts, *held.doubts),
        notes=(*result.notes, f"Counters are held against {of} too: of each counter the worse counts."),
        baseline_file=str(held.path),
    )


def _worse(of_file: CounterLine, of_revision: CounterLine | None, path: str) -> CounterLine:
    """The file's where both say the same: it has the lines at which a counter rose."""
    if of_revision is None or (of_revision.state, of_revision.before) == (of_file.state, of_file.before):
        return of_file
    of_base = STATES.index(of_revision.state) > STATES.index(of_file.state)
    line, where = (of_revision, "the base") if of_base else (of_file, path)
    return replace(line, reason="; ".join(filter(None, (line.reason, f"against {where}"))))


def _varies(line: CounterLine) -> bool:
    return any(ends is not None and ends[0] != ends[1] for ends in (line.before, line.after))


def updated(program: Program, settings: GateSettings, count: Counting) -> int:
    """Write what is counted now into the file.

    :raises ProfilerError: it would let more pass, and nobody says why; or this is a job of continuous integration.
    """
    path = file_of(settings)
    if is_true(CI):
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
    counters = (
        f"{some(len(made.counters), 'counter')} over {some(made.steps, 'step')} of "
        f"{some(made.processes, 'process', 'processes')}"
    )
    for line in (too_short(found.counted, settings.steps or STEPS), *baseline.others(path, made, str(program.cwd))):
        if line:
            print(line, file=sys.stderr)
    print(f"{path}: {f'written, {counters}; review it and check it in' if changed else f'nothing changed, {counters}'}")
    return 0
