"""Runs the modes that compare counters only: a command against a baseline file, which `--update` writes, and two
recorded runs.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from profiler.analyse.comparability import program_name
from profiler.check.counters import baseline
from profiler.check.counters.compare import budget_lines, compare, overall, worst
from profiler.check.counters.environment_key import environment_key, key_differences, other_work, per_sample
from profiler.check.counters.files import root_folder
from profiler.check.counters.lines import scaled_amounts
from profiler.check.diff import FileChange, changed_lines, content_ids, file_changes, new_files
from profiler.check.model import (
    BASE,
    CANDIDATE,
    FAIL,
    NOT_COMPARABLE,
    PASS,
    STATES,
    Counted,
    CounterLine,
    GateResult,
    SideInfo,
)
from profiler.check.modes.finish import CI, finish, is_true
from profiler.check.modes.sides import (
    Recordings,
    describe_side,
    fingerprint,
    load_recordings,
    not_seen,
    prepare_base,
    programs_of_sides,
    record_counters,
    short_program,
    side_differences,
    source_diff,
    warnings_of_steps,
    work_of,
)
from profiler.check.outputs.text import sentence
from profiler.check.settings import PROCESSES, Settings
from profiler.check.speed.controlled_process import Program
from profiler.check.speed.interleave import STEPS
from profiler.check.worktree.prepare import LINK_HINT, PreparedSide, refuse_working_tree, working_tree_side
from profiler.core.errors import Notice, ProfilerError
from profiler.core.machine import virtual_devices
from profiler.core.syntax import statements
from profiler.report.text import plural

MORE_PROCESSES: Final = 3
"""Counted in addition where counters vary between processes."""
_SCALED: Final = {"h2d_bytes": "h2d", "flops": "operators"}
"""Amounts that all grow by one factor with the size of a batch -> the events to which they belong."""


def check_command(command: tuple[str, ...], settings: Settings) -> int:
    """Compare the counters of a command to a baseline, or write them down; returns the exit code."""
    settings = with_baseline_steps(settings, command)
    side = working_tree_side(command, Path.cwd())
    program = programs_of_sides({CANDIDATE: side}, settings, counts_exactly=True)[CANDIDATE]
    if settings.update:
        return update(program, settings)
    result, _ = compare_to_baseline(replace(side, what=""), program, settings)
    return finish(result, settings)


def check_runs(paths: Sequence[Path], settings: Settings) -> int:
    """Compare the counters of two recorded runs, but not their speed; returns the exit code."""
    sides = {label: load_recordings([path]) for label, path in zip((BASE, CANDIDATE), paths, strict=True)}
    programs = {program_name(side.runs[0].info) for side in sides.values()}
    base, candidate = sides[BASE].counted, sides[CANDIDATE].counted
    reasons = other_work(work_of(sides[BASE]), work_of(sides[CANDIDATE]))
    lines = () if reasons else compare(base, candidate, settings.limits, by_line=len(programs) == 1)
    info = {}
    for (label, recordings), path in zip(sides.items(), paths, strict=True):
        run = recordings.runs[0].info
        side = PreparedSide(tuple(run.argv), Path(), what=str(path), commit=run.git_commit or "")
        info[label] = describe_side(label, side, recordings)
    result = GateResult(
        base=info[BASE],
        candidate=info[CANDIDATE],
        limits=settings.limits,
        mode="runs",
        **judged_counters(lines, reasons, sides[CANDIDATE], settings),
        warnings=side_differences(sides[BASE], sides[CANDIDATE]),
        notes=(
            Notice("times-not-compared"),
            *(per_sample(base, candidate) if reasons else (Notice("one-process-a-side"),)),
        ),
        machine=fingerprint(sides[CANDIDATE].runs),
    )
    return finish(result, settings, sides=sides)


def with_baseline_steps(settings: Settings, command: Sequence[str]) -> Settings:
    """Complete the settings with the way to count and the number of steps, so that both sides are comparable.

    They are those that are asked for, else those of the file's section for this command.

    :raises ProfilerError: there is no file, or it is damaged, which is reported before any program is started.
    """
    path = baseline_path(settings)
    if not path.exists() and not settings.update:
        raise ProfilerError(f"there is no baseline {path}: write it with --update, and commit it")
    try:
        way = baseline.recorded_way(path, command, str(Path.cwd())) if path.exists() else None
    except baseline.DamagedError:
        if not settings.update:
            raise
        way = None
    if way is not None and not settings.count:
        number, _, card = way[1].partition(" ")
        devices = virtual_devices(int(number) if number.isdigit() else None, card)
        settings = replace(settings, count=way[0], virtual_cuda=devices)
    if settings.update:
        return replace(settings, steps=settings.steps or STEPS)
    steps = baseline.recorded_steps(path, command, str(Path.cwd()), is_counted=settings.count)
    return replace(settings, steps=settings.steps or steps or STEPS)


def baseline_path(settings: Settings) -> Path:
    """Return the file of the baseline, or refuse a check that names none."""
    if settings.baseline is None:
        if settings.update:
            raise ProfilerError("--update needs --baseline FILE (or baseline = FILE in [tool.profiler.check])")
        raise ProfilerError(
            "nothing to compare the command to: --against REV (another revision), or --baseline FILE (counters; or "
            "baseline = FILE in [tool.profiler.check])"
        )
    return settings.baseline


def compare_to_baseline(side: PreparedSide, program: Program, settings: Settings) -> tuple[GateResult, Recordings]:
    """Return the counters of fresh processes compared to the section of the file for this machine and work."""
    path = baseline_path(settings)
    recordings = record_counters(program, settings, settings.processes)
    folder = str(program.cwd)
    key = environment_key(recordings.runs[0], folder)
    section = baseline.read(path, key)
    renamed = baseline.former_script(section, key, folder)
    work = {**section.key, **section.work, "steps": str(section.steps)}
    reasons = other_work(work, work_of(recordings, is_counted=True), "baseline")
    worked = {name: "" for reason in reasons if (name := str(reason.values["part"])) in {*section.key, *key}}
    former = {**renamed, **worked}
    reasons += key_differences({**section.key, **former}, {**key, **former}, "key-differs", "baseline")
    root = root_folder(folder, recordings.runs[0].info.argv)
    files = file_changes(section.sources, baseline.counted_files(recordings.counted), root) if not reasons else ()
    base = baseline.as_processes(section)
    lines, reasons, recordings = _judged(reasons, base, recordings, program, settings, files=files)
    result = GateResult(
        base=SideInfo(BASE, f"{path} (of {section.updated_at[:10]})", section.command, step_source=section.step),
        candidate=describe_side(CANDIDATE, side, recordings),
        limits=settings.limits,
        mode="baseline",
        **judged_counters(lines, reasons, recordings, settings),
        warnings=(
            *warnings_of_steps(recordings),
            *baseline.other_command(section, shlex.join(program.argv), folder),
            *baseline.former_counters(section),
            *short_program(recordings.counted, settings.steps or section.steps),
        ),
        machine=fingerprint(recordings.runs),
        notes=(
            *(Notice("script-renamed", {"former": section.key["program"], **renamed}) for _ in renamed),
            *(per_sample(base, recordings.counted) if reasons else not_seen(recordings)),
        ),
        hunks=tuple(hunk for change in files for hunk in change.hunks) if overall(lines) == FAIL else (),
        baseline_file=str(path),
    )
    return result, recordings


def judged_counters(
    lines: tuple[CounterLine, ...], reasons: tuple[Notice, ...], candidate: Recordings, settings: Settings
) -> dict[str, Any]:
    """Return the fields of a result for counters; where the sides do other work, only budgets are judged.

    :param reasons: why the sides are not comparable; empty: they are.
    """
    if reasons:
        lines = budget_lines(candidate.counted, settings.limits)
    state = worst((NOT_COMPARABLE, overall(lines))) if reasons else overall(lines)
    return {"counters": lines, "counters_state": state, "counters_reasons": reasons}


def _judged(
    reasons: tuple[Notice, ...],
    base: Sequence[Counted],
    recordings: Recordings,
    program: Program,
    settings: Settings,
    *,
    files: Sequence[FileChange],
) -> tuple[tuple[CounterLine, ...], tuple[Notice, ...], Recordings]:
    """Return the counters of the candidate against those of the base, counted again where that may change the result;
    and why they are not comparable.

    :param reasons: what is known of that before they are compared; empty: nothing.
    """
    if reasons:
        return (), reasons, recordings
    compared = partial(compare, base, limits=settings.limits, files=files)
    lines = compared(recordings.counted)
    varies = any(ends and ends[0] != ends[1] for line in lines for ends in (line.before, line.after))
    if overall(lines) != PASS and (varies or len(recordings.counted) == 1):
        more = MORE_PROCESSES if varies else 1
        recordings += record_counters(program, settings, more, settings.processes + 1)
        lines = compared(recordings.counted)
    # a step is other work where its copies to the device or its arithmetic have all grown by one factor
    failing = {line.counter for line in lines if line.state == FAIL}
    for amounts, events in _SCALED.items():
        if amounts in failing and amounts not in settings.limits.counters:
            factor = scaled_amounts(events, amounts, base, recordings.counted, files)
            if factor is not None and factor > 1:
                return lines, (Notice("work-scaled", {"counter": amounts, "factor": factor}),), recordings
    return lines, (), recordings


def check_revision(command: tuple[str, ...], settings: Settings, rev: str) -> int:
    """Compare what a command is counted to do here with what it does at a git revision; returns the exit code."""
    candidate = working_tree_side(command, Path.cwd())
    with prepare_base(rev, command, settings) as base:
        sides = {BASE: base, CANDIDATE: candidate}
        programs = programs_of_sides(sides, settings, hint=LINK_HINT, counts_exactly=True)
        number = {BASE: max(PROCESSES, settings.processes), CANDIDATE: settings.processes}
        recordings = {
            label: record_counters(program, settings, number[label], purpose=f"the {label}")
            for label, program in programs.items()
        }
        if base.repository is not None:
            names = [site.file for run in recordings[BASE].runs for site in run.sites if site.file.startswith("/")]
            refuse_working_tree(names, base.repository)
        before, after = (recordings[label].counted for label in (BASE, CANDIDATE))
        roots = {label: root_folder(str(side.cwd), side.argv) for label, side in sides.items()}
        sources = content_ids(baseline.counted_files(before), roots[BASE])
        files = file_changes(sources, baseline.counted_files(after), roots[CANDIDATE])
        work = {label: work_of(side, is_counted=True) for label, side in recordings.items()}
        reasons = other_work(work[BASE], work[CANDIDATE])
        lines, reasons, recordings[CANDIDATE] = _judged(
            reasons, before, recordings[CANDIDATE], programs[CANDIDATE], settings, files=files
        )
        result = GateResult(
            base=describe_side(BASE, base, recordings[BASE]),
            candidate=describe_side(CANDIDATE, candidate, recordings[CANDIDATE]),
            limits=settings.limits,
            mode="against",
            **judged_counters(lines, reasons, recordings[CANDIDATE], settings),
            warnings=(
                *(warnings_of_steps(recordings[CANDIDATE]) or warnings_of_steps(recordings[BASE])),
                *side_differences(recordings[BASE], recordings[CANDIDATE]),
                *short_program((*before, *recordings[CANDIDATE].counted), settings.steps or STEPS),
            ),
            notes=(
                *base.notes,
                *(
                    per_sample(before, recordings[CANDIDATE].counted)
                    if reasons
                    else not_seen(recordings[CANDIDATE], _unreached(base, recordings[CANDIDATE], roots[CANDIDATE]))
                ),
            ),
            machine=fingerprint(recordings[CANDIDATE].runs),
        )
        diff = source_diff(sides)
        if diff is not None:
            diff = replace(diff, folder=Path(roots[CANDIDATE]), files=tuple(sorted(baseline.counted_files(after))))
        return finish(result, settings, diff=diff)


def _unreached(base: PreparedSide, candidate: Recordings, root: str) -> list[str]:
    """Return the first changed line of each statement that changed since the base and of which nothing was counted, as
    in 'train.py:7', those of files that ran first. New files of which the program ran nothing are left out."""
    if base.repository is None:
        return []
    reached = {(os.path.normpath(Path(root) / site.file), site.line) for site in candidate.runs[0].sites}
    ran, new = {file for file, _ in reached}, new_files(base.repository)
    changed = changed_lines(base.repository, base.commit)
    return [
        f"{os.path.relpath(file, root)}:{first}"
        for file in sorted(changed, key=lambda file: file not in ran)
        if file not in new or file in ran
        for statement in sorted(statements(Path(file).read_text(errors="replace")), key=lambda lines: lines.start)
        if (first := next(filter(changed[file].__contains__, statement), 0))
        if not any((file, number) in reached for number in statement)
    ]


def merge_baseline(result: GateResult, file: GateResult) -> GateResult:
    """Return the result of two revisions combined with that of the baseline file: of each counter the worse of both."""
    merged = {(line.counter, line.scope): line for line in result.counters}
    for line in file.counters:
        key = line.counter, line.scope
        if file.counters_reasons and key in merged:
            continue  # it was judged by its budget only, as that of the revision was too
        of_revision = merged.get(key)
        if of_revision is None or (of_revision.state, of_revision.before) == (line.state, line.before):
            merged[key] = line  # it has the lines at which a counter rose
            continue
        is_revision = STATES.index(of_revision.state) > STATES.index(line.state)
        worse, name = (of_revision, "the base") if is_revision else (line, file.baseline_file)
        merged[key] = replace(worse, reasons=(*worse.reasons, Notice("compared-to", {"name": name})))
    return replace(
        result,
        counters=tuple(merged.values()),
        counters_state=worst(filter(None, (result.counters_state, file.counters_state))),
        counters_reasons=(*result.counters_reasons, *file.counters_reasons),
        warnings=(*result.warnings, *file.warnings),
        notes=(*result.notes, Notice("baseline-too", {"file": file.base.what})),
        baseline_file=file.baseline_file,
    )


def update(program: Program, settings: Settings) -> int:
    """Write what the program counts now into the file; returns the exit code.

    :raises ProfilerError: it would let more pass and no reason is given; or this is a job of continuous integration.
    """
    path = baseline_path(settings)
    if is_true(CI):
        raise ProfilerError(
            f"--update in continuous integration (the variable CI is set): a job never loosens its own gate; update "
            f"{path} where somebody reviews it, and commit it"
        )
    recordings = record_counters(program, settings, settings.processes)
    amounts = [{**process.workers, **process.totals} for process in recordings.counted]
    if any(other != amounts[0] for other in amounts):
        recordings += record_counters(program, settings, MORE_PROCESSES, settings.processes + 1)
    section = baseline.section_from(
        recordings.counted,
        recordings.runs[0],
        shlex.join(program.argv),
        reason=settings.reason,
        folder=str(program.cwd),
    )
    old, damage = baseline.previous(path, section.key)
    root = root_folder(str(program.cwd), recordings.runs[0].info.argv)
    files = file_changes(old.sources, section.sources, root) if old else ()
    looser = [damage] if damage else list(baseline.loosened_counters(old, section, files)) if old else []
    if looser and not settings.reason:
        raise ProfilerError(
            f"{path} would let more pass than before, so it is as it was, and --update needs a REASON: "
            f"{'; '.join(looser)}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    changed = baseline.write(path, section)
    for line in looser:
        print(f"looser: {line}", file=sys.stderr)
    for warning in short_program(recordings.counted, settings.steps or STEPS):
        print(sentence(warning), file=sys.stderr)
    for line in baseline.remaining_sections(path, section, str(program.cwd)):
        print(line, file=sys.stderr)
    processes = "1 process" if section.processes == 1 else f"{section.processes:,} processes"
    counters = f"{plural(len(section.counters), 'counter')} over {plural(section.steps, 'step')} of {processes}"
    print(f"{path}: {f'written, {counters}; review it and commit it' if changed else f'nothing changed, {counters}'}")
    return 0
