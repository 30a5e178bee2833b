"""Runs the modes that measure speed: two programs in interleaved rounds until a sequential test decides, their
counters, and after a FAIL where the time goes.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Final

from profiler.check.counters.compare import compare, overall
from profiler.check.counters.environment_key import other_work, per_sample
from profiler.check.model import (
    BASE,
    CANDIDATE,
    CONFIRM,
    FAIL,
    LOOK,
    PASS,
    CounterLine,
    GateResult,
    Limits,
    Round,
    Throughput,
)
from profiler.check.modes.counters import compare_to_baseline, judged_counters, merge_baseline, with_baseline_steps
from profiler.check.modes.finish import finish, interrupt_code, reported
from profiler.check.modes.sides import (
    Recordings,
    describe_side,
    fingerprint,
    gpu_throttling,
    load_recordings,
    not_seen,
    prepare_base,
    programs_of_sides,
    record_counters,
    record_explanations,
    side_differences,
    source_diff,
    warnings_of_steps,
    work_of,
)
from profiler.check.outputs.format import percent
from profiler.check.settings import Settings
from profiler.check.speed.controlled_process import ControlledProcess, Program
from profiler.check.speed.interleave import RoundRunner
from profiler.check.speed.rounds import SECONDS, STEPS, rare_steps, round_values
from profiler.check.speed.sequential import CONFIRM_LOOKS, edges
from profiler.check.speed.verdict import INTERRUPTED, next_kind, on_other_filesystem, throughput
from profiler.check.worktree.prepare import LINK_HINT, PreparedSide, refuse_working_tree, working_tree_side
from profiler.core.errors import Notice, ProfilerError
from profiler.core.masking import masked_command
from profiler.core.terminal import progress
from profiler.report.text import plural
from profiler.report.write import write_text

ROUNDS_FILE: Final = "rounds.json"
"""Beside the runs, where an error prevented check.json."""


def check_commands(before: str, after: str, settings: Settings) -> int:
    """Compare two command lines; returns the exit code."""
    sides = {}
    for label, text in ((BASE, before), (CANDIDATE, after)):
        try:
            argv = tuple(shlex.split(text))
        except ValueError as error:
            raise ProfilerError(f'"{masked_command(text)}": {error}') from None
        sides[label] = replace(working_tree_side(argv, Path.cwd()), what="", commit="")
    programs = programs_of_sides(sides, settings)
    return check_interleaved(sides, programs, settings, mode="commands")


def check_against(command: tuple[str, ...], settings: Settings, rev: str) -> int:
    """Compare a command here to the same one at a git revision, its counters also to a baseline where there is one."""
    if settings.baseline is not None:
        settings = with_baseline_steps(settings, command)  # its faults are reported before the revision is prepared
    candidate = working_tree_side(command, Path.cwd())
    with prepare_base(rev, command, settings) as base:
        repository = base.repository

        def admit(process: ControlledProcess) -> None:
            if process.program.side == CANDIDATE or repository is None:
                return
            refuse_working_tree(process.controller.files, repository)

        sides = {BASE: base, CANDIDATE: candidate}
        programs = programs_of_sides(sides, settings, hint=LINK_HINT)
        baseline = None
        if settings.baseline is not None:
            program = programs[CANDIDATE]
            if settings.count:
                program = replace(program, hooked=True, count=True, virtual_cuda=settings.virtual_cuda)
            baseline = compare_to_baseline(candidate, program, settings)
        return check_interleaved(sides, programs, settings, mode="against", baseline=baseline, admit=admit)


def check_interleaved(
    sides: Mapping[str, PreparedSide],
    programs: Mapping[str, Program],
    settings: Settings,
    *,
    mode: str,
    baseline: tuple[GateResult, Recordings] | None = None,
    admit: Callable[[ControlledProcess], None] = lambda _: None,
) -> int:
    """Measure speed and counters of BASE and CANDIDATE; returns the exit code.

    :param baseline: the candidate's counters compared to a baseline, and the runs in which they were counted.
    :param admit: see RoundRunner.
    """
    located = {CANDIDATE: baseline[1]} if baseline and not settings.count else {}
    measured = MeasuredRounds()
    with rounds_saved(measured.rounds, settings.out):
        with gpu_throttling() as gpus:
            runner = RoundRunner(
                programs,
                settings.out,
                warmup=settings.table.warmup,
                patience=settings.table.patience,
                gpus=gpus,
                admit=admit,
            )
            run_rounds(runner, settings.limits, measured, lambda: _other_work(runner.runs, settings.limits))
            work = measured.other_work
            speed = None if work else throughput(measured.rounds, settings.limits, stopped=measured.stopped)
            looked = 0
            if speed is not None and speed.state == PASS:
                speed, looked = _with_rare_steps(speed, runner, settings.limits)
        recordings = {label: load_recordings(runner.runs[label], str(side.cwd)) for label, side in sides.items()}
        before, after = (recordings[side].counted for side in (BASE, CANDIDATE))
        lines = compare(before, after, settings.limits) if before and after and not work else ()
        if lines and overall(lines) == FAIL and not measured.exit_code:
            lines = _located(lines, programs, settings, located)
    if speed is not None and speed.state == FAIL and settings.table.explain:
        details = record_explanations(programs, settings)
        recordings = {side: replace(runs, detail=details.get(side)) for side, runs in recordings.items()}
    if speed is not None and sides[BASE].other_filesystem:
        speed = on_other_filesystem(speed)
    info = {label: describe_side(label, side, recordings[label], measured.rounds) for label, side in sides.items()}
    notes = [note for side in sides.values() for note in side.notes]
    counted = judged_counters(lines, work, recordings[CANDIDATE], settings)
    notes += (
        per_sample(recordings[BASE].counted, recordings[CANDIDATE].counted)
        if work
        else not_seen(recordings[CANDIDATE], looked=looked)
    )
    result = GateResult(
        base=info[BASE],
        candidate=info[CANDIDATE],
        limits=settings.limits,
        mode=mode,
        **(counted if lines or work else {}),
        throughput=speed,
        warnings=(
            *warnings_of_steps(recordings[CANDIDATE]),
            *side_differences(recordings[BASE], recordings[CANDIDATE]),
        ),
        notes=tuple(note for index, note in enumerate(notes) if note not in notes[:index]),
        machine=fingerprint(recordings[BASE].runs),
    )
    code = finish(
        merge_baseline(result, baseline[0]) if baseline else result, settings, sides=recordings, diff=source_diff(sides)
    )
    return measured.exit_code or code


def _with_rare_steps(speed: Throughput, runner: RoundRunner, limits: Limits) -> tuple[Throughput, int]:
    """Return the verdict that is a PASS so far, with what steps cost that are rare and long, and how many steps were
    seen for it. It takes no longer than the rounds before, which do not reach such steps."""
    before = sum(done.seconds for done in speed.rounds)
    seconds = min(SECONDS, before, math.inf if limits.max_seconds is None else limits.max_seconds - before)
    if seconds <= 0 or not any(map(_has_rare_work, runner.files)):
        return speed, 0
    with reported("steps that are rare and long were not timed"):
        print("looking for steps that are rare and long", file=sys.stderr)
        steps, line = rare_steps(lambda number: runner.run(number, LOOK, look=(STEPS, seconds)), limits)
        if line is None:
            return speed, steps
        is_open = line.state == PASS and line.high is not None and line.high > edges(limits.detect).passes
        doubt = Notice("rare-steps", {"slowdown": line.slowdown, "rounds": line.rounds})
        warnings = (*speed.warnings, *((doubt,) if is_open else ()))
        return replace(speed, lines=(*speed.lines, line), state=line.state, warnings=warnings), steps
    return speed, 0


_RARE_WORK: Final = re.compile(r"(?i)eval|validat|no_grad|inference_mode|checkpoint|torch\.save|save_pretrained")
"""What code that evaluates a model, or saves it, has."""
_PACKAGE: Final = Path(__file__).parents[2]


def _has_rare_work(file: str) -> bool:
    """Return whether the code of a file evaluates a model or saves it: else nothing is looked for, since that takes
    time."""
    if Path(file).is_relative_to(_PACKAGE):
        return False
    try:
        return bool(_RARE_WORK.search(Path(file).read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return False


# ---------------------------------------------------------------- counters of the rounds


def _other_work(runs: Mapping[str, Sequence[Path]], limits: Limits) -> tuple[Notice, ...]:
    """Return why the sides are not comparable, after the first of many rounds.

    :raises ProfilerError: limits name a counter that nothing counts.
    """
    base, candidate = (load_recordings(runs[side]) for side in (BASE, CANDIDATE))
    counted = (*base.counted, *candidate.counted)
    compare(counted, counted, limits)
    return other_work(work_of(base), work_of(candidate))


def _located(
    lines: tuple[CounterLine, ...],
    programs: Mapping[str, Program],
    settings: Settings,
    located: dict[str, Recordings],
) -> tuple[CounterLine, ...]:
    """Return `lines` with the source lines at which counters rose, for which the programs are counted once more.

    :param located: the runs with source lines that exist already; those that are made are added.
    """
    with reported("the lines at which counters rose could not be found"):
        for side, program in programs.items():
            if side not in located:
                located[side] = record_counters(program, settings, 1, purpose=f"once more, the {side}")
        found = compare(located[BASE].counted, located[CANDIDATE].counted, settings.limits)
        changes = {(line.counter, line.scope): line.changes for line in found}
        return tuple(replace(line, changes=changes.get((line.counter, line.scope), line.changes)) for line in lines)
    return lines


# ---------------------------------------------------------------- rounds


@dataclass(slots=True)
class MeasuredRounds:
    """The rounds so far, and why there are no more."""

    rounds: list[Round] = field(default_factory=list)
    stopped: Notice | None = None
    """None: they decide."""
    exit_code: int = 0
    """The exit code of the signal that ended them; 0: none did."""
    other_work: tuple[Notice, ...] = ()
    """Why the sides are not comparable, which ended them; empty: they are."""


def run_rounds(
    runner: RoundRunner, limits: Limits, measured: MeasuredRounds, after_first: Callable[[], tuple[Notice, ...]]
) -> None:
    """Measure rounds until they decide, the time limit is reached, a signal stops them, or the sides do other work.

    :param measured: gets each round at once, so that none is lost when the next one fails.
    """
    from rich.console import Console

    begin = time.monotonic()
    with progress(Console(stderr=True)) as show:
        try:
            while kind := next_kind(measured.rounds, limits):
                longest = max((done.seconds for done in measured.rounds), default=0.0)
                if limits.max_seconds is not None and time.monotonic() - begin + longest > limits.max_seconds:
                    measured.stopped = Notice("time-limit", {"seconds": limits.max_seconds})
                    break
                show(progress_text(measured.rounds, kind, limits))
                measured.rounds.append(runner.run(len(measured.rounds) + 1, kind))
                if len(measured.rounds) == 1 and (work := after_first()):
                    measured.other_work = work
                    break
        except KeyboardInterrupt as stop:
            measured.exit_code, measured.stopped = interrupt_code(stop), Notice(INTERRUPTED)


@contextmanager
def rounds_saved(rounds: Sequence[Round], out: Path) -> Iterator[None]:
    """Write the rounds measured so far to a file where the block fails: they took minutes.

    :raises ProfilerError: the error of the block, which names the file.
    """
    try:
        yield
    except BaseException as error:  # a fault of the tool too
        if not rounds:
            raise
        number = f"{plural(len(rounds), 'round')} measured before"
        message = f"the {number} {'is' if len(rounds) == 1 else 'are'} kept in {out / ROUNDS_FILE}"
        kept = [done.to_json() for done in rounds]
        document = {"schema": "check-rounds/1", "ended_by": str(error) or type(error).__name__, "rounds": kept}
        try:
            write_text(out / ROUNDS_FILE, json.dumps(document) + "\n")
        except ProfilerError as fault:
            message = f"the {number} are lost: {fault}"
        if isinstance(error, ProfilerError):
            raise ProfilerError(f"{error}; {message}", error.exit_code) from error
        with suppress(OSError):  # of a closed terminal
            print(message, file=sys.stderr, flush=True)
        raise


# ---------------------------------------------------------------- progress


def progress_text(rounds: Sequence[Round], kind: str, limits: Limits) -> str:
    """Return the round that begins, and the slow-down of the typical step so far: the mean and the last one."""
    number = f"round {len(rounds) + 1}"
    if kind == CONFIRM:
        confirming = sum(done.kind == CONFIRM for done in rounds)
        number += f" (confirming, {confirming + 1} of at most {CONFIRM_LOOKS[-1]})"
    else:
        number += f" of at most {limits.max_rounds}"
    values = [value for done in rounds if (value := round_values(done).typical) is not None]
    return f"{number}: step time {percent(fmean(values))}, last {percent(values[-1])}" if values else number
