"""Compares recorded runs for `compare`, and writes the result to the disk and the terminal."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from profiler import analyse_run, load, read, read_ranks
from profiler.analyse.comparability import counted_mismatches, find_mismatches
from profiler.analyse.comparison import SideRuns, compare
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Extension, Mismatch
from profiler.analyse.timing.counts import run_counts
from profiler.check.model import BASE, CANDIDATE, MEASURE, PATIENCE_S, Round
from profiler.check.modes.sides import EXPLAIN_S, gpu_throttling, record_explanation
from profiler.check.speed.controlled_process import ProcessEndedError, Program
from profiler.check.speed.interleave import RoundRunner, ShortProgramError, await_quiet
from profiler.check.speed.rounds import MIN_STARTS, PLANNED, doubt, measured_gain, more_time, time_for_rounds
from profiler.check.worktree.environment import find_interpreter, inspect_interpreter
from profiler.commands._common import RUNS, no_virtual_device, progress_text
from profiler.core.errors import Exit, Notice, ProfilerError
from profiler.core.masking import Privacy
from profiler.core.terminal import progress
from profiler.diagnose.comparison import diagnose_comparison
from profiler.record.collectors import CollectorSet
from profiler.record.launch import last_output_line, record
from profiler.record.schedule import Experiment, RecordedRuns, SideCommand, detailed_level, record_with_progress
from profiler.report.build import build_report
from profiler.report.comparison_text import with_comparison_verdict
from profiler.report.notices import describe
from profiler.report.notices import mismatches as mismatches_text
from profiler.report.render.console import print_report
from profiler.report.write import rendered, write_compared_counts, write_comparison, write_text
from profiler.run.model import Run, RunInfo, RunSpec
from profiler.run.store import point_latest

_DETAIL: Final = 0.1
"""The most that a breakdown pass takes of the time, from the first step on."""
LATEST = RUNS / "latest"
"""A link to the newest comparison in any folder."""


def record_commands(
    experiment: Experiment, out: Path, seconds: float, check: Callable[[RecordedRuns], None] | None, privacy: Privacy
) -> tuple[RecordedRuns, Sequence[Round]]:
    """Record two commands in alternating blocks of steps, until their ratio is known well or `seconds` are over.

    Whole programs are recorded where one ends before enough steps.

    :param check: is called after the first round, and may raise to end the recordings.
    :raises ProfilerError: a program failed, or took no step.
    """
    begin = time.monotonic()
    sides = dict(zip((BASE, CANDIDATE), experiment.programs, strict=True))
    programs = {role: _program(side, out, privacy) for role, side in sides.items()}
    try:
        return _record_blocks(programs, out, seconds, check)
    except ShortProgramError:
        print("profiler: a program ended before enough steps: both are recorded as a whole", file=sys.stderr)
    except ProfilerError as error:
        if isinstance(error.__cause__, ProcessEndedError):
            raise ProfilerError(f"{error}", Exit.TARGET_FAILED) from error
        raise
    for side in experiment.programs:
        shutil.rmtree(out / f"01-{side.label}", ignore_errors=True)
    # a round took about as long as both programs, and so do both breakdown passes
    fit = int(seconds / (time.monotonic() - begin)) - 2
    tasks = [task for task in experiment.tasks if task.kind != "warmup" and task.round <= max(1, fit)]
    return record_with_progress(tasks, out, check, privacy), ()


def _program(side: SideCommand, out: Path, privacy: Privacy) -> Program:
    """Return a side as a program to control, with the facts that any recording states."""
    cwd = Path.cwd()
    facts = CollectorSet(RunSpec(side.argv, out, level="light")).describe()
    return Program(side.label, side.argv, cwd, facts={"cwd": str(cwd), **facts}, privacy=privacy)


def _record_blocks(
    programs: Mapping[str, Program], out: Path, seconds: float, check: Callable[[RecordedRuns], None] | None
) -> tuple[RecordedRuns, Sequence[Round]]:
    from rich.console import Console

    begin, rounds = time.monotonic(), list[Round]()
    with gpu_throttling() as gpus, progress(Console(stderr=True)) as show:
        runner = RoundRunner(
            programs,
            out,
            patience=max(PATIENCE_S, seconds),
            gpus=gpus,
            round_seconds=PLANNED * seconds / MIN_STARTS,
            may_end=True,
            is_alone=True,
        )
        recorded = RecordedRuns({program.side: runner.runs[role] for role, program in programs.items()})
        try:
            for _ in time_for_rounds(begin, seconds, rounds, await_quiet):
                show(progress_text(rounds))
                rounds.append(runner.run(len(rounds) + 1, MEASURE))
                if len(rounds) == 1:
                    if check is not None:
                        check(recorded)
                    _record_details(programs.values(), recorded, out, seconds)
        except KeyboardInterrupt:
            recorded.interrupted, recorded.planned = True, max(MIN_STARTS, len(rounds) + 1)
        except ProfilerError as error:
            if not rounds or error.exit_code == Exit.NOT_COMPARABLE:
                raise
            print(f"profiler: no further round is measured: {error}", file=sys.stderr)
    return recorded, rounds


def _record_details(programs: Iterable[Program], recorded: RecordedRuns, out: Path, seconds: float) -> None:
    """Record where the time of each side goes, for some seconds."""
    for program in programs:
        level, env = detailed_level(recorded.light[program.side][0])
        detailed, folder = replace(program, env=env), out / f"detail-{program.side}"
        try:
            path = record_explanation(detailed, folder, level=level, seconds=min(EXPLAIN_S, _DETAIL * seconds))
        except ProfilerError as error:
            print(f"profiler: where the time of {program.side} goes was not recorded: {error}", file=sys.stderr)
            continue
        if path is not None:
            recorded.detail[program.side] = path


def compare_recorded(
    experiment: Experiment, recorded: RecordedRuns, rounds: Sequence[Round] = (), *, out: Path, anyway: bool
) -> int:
    """Report on the runs that were just made below `out`, and return the exit code.

    :param rounds: in which both sides alternated; empty: whole programs were recorded.
    """
    runs = [_side(program, recorded) for program in experiment.programs if program.label not in recorded.unavailable]
    if rounds:
        runs = _of_blocks(runs, rounds)
    runs = _with_packages(runs, experiment.programs)
    floor = tuple(read(path) for path in recorded.floor)
    floor_side = SideRuns("floor", "the baseline's calls with empty kernels", floor, None) if floor else None
    extensions: Mapping[str, Extension] = {}
    if experiment.extensions:
        extensions = experiment.extensions({side.label: side for side in runs}, recorded, anyway)
    kept = f"the runs are kept in {out}"
    return _report(
        runs[: experiment.sides],
        out,
        anyway=anyway,
        floor=floor_side,
        extensions=extensions,
        planned=recorded.planned if recorded.interrupted else None,
        kept=kept,
    )


def refuse_early(experiment: Experiment, recorded: RecordedRuns, *, out: Path) -> None:
    """Check after the first round that its runs are comparable.

    :raises ProfilerError: their facts or results differ. Later rounds would differ too.
    """
    programs = [each for each in experiment.programs[: experiment.sides] if each.label in recorded.light]
    sides = [SideRuns(each.label, "", (read(recorded.light[each.label][0]),), None) for each in programs]
    if mismatches := find_mismatches(sides):
        rounds = f"one of {recorded.planned} rounds was made, and " if recorded.planned > 1 else ""
        raise _refusal(mismatches, f"{rounds}the runs are kept in {out}")


def _refusal(mismatches: Iterable[Mismatch], kept: str) -> ProfilerError:
    remedy = f"--anyway compares them{f'; {kept}' * bool(kept)}"
    return ProfilerError(f"not comparable: {mismatches_text(mismatches)} ({remedy})", Exit.NOT_COMPARABLE)


def _side(program: SideCommand, recorded: RecordedRuns) -> SideRuns:
    detail = recorded.detail.get(program.label)
    light = tuple(read(path) for path in recorded.light[program.label][: recorded.pairs])
    side = SideRuns(
        program.label,
        shlex.join(light[0].info.argv) if light else "",
        light,
        read(detail, timeline=True) if detail else None,
        tuple(read(path) for path in recorded.again.get(program.label, ())[: recorded.pairs]),
    )
    step = side.light[0].measures["step_time"] if side.light else None
    if step and step.value is None:
        reason = describe(step.reason)
        raise ProfilerError(
            f"{side.label} ({side.command}) recorded no step to compare: {reason}; see profiler.marks.step"
        )
    return side


def _of_blocks(sides: Sequence[SideRuns], rounds: Sequence[Round]) -> list[SideRuns]:
    """Take the speed of two sides from their blocks, and leave out of it what other programs kept them waiting for."""
    gain, notice = measured_gain(rounds), Notice("blocks", {"rounds": len(rounds)})
    base, candidate = (
        replace(side, light=tuple(_of_round(run, done, role) for run, done in zip(side.light, rounds, strict=False)))
        for role, side in zip((BASE, CANDIDATE), sides, strict=True)
    )
    if gain is None:
        return [base, replace(candidate, pairs=1, doubt=Notice("no-pairs"), method=(notice,))]
    more = more_time(gain, sum(done.seconds for done in rounds))
    known = replace(
        candidate, half=gain.half(), doubt=doubt(gain, rounds), method=(notice, more) if more else (notice,)
    )
    return [replace(side, pairs=gain.pairs) for side in (base, known)]


def _of_round(run: Analysis, done: Round, role: str) -> Analysis:
    blocks = [block for block in done.blocks if block.side == role]
    seconds = sum(block.time for block in blocks) / 1e9
    steps, tokens = sum(len(block.steps) for block in blocks), sum(block.tokens for block in blocks)
    if not steps or not seconds:
        return run
    values = {"step_time": seconds / steps, "steps_per_s": steps / seconds, "tokens_per_s": tokens / seconds}
    known = {name: run.measures[name] for name in values if run.value(name) is not None}
    timed = {name: replace(each, value=values[name], low=None, high=None) for name, each in known.items()}
    return replace(run, measures={**run.measures, **timed})


def _with_packages(sides: Sequence[SideRuns], commands: Sequence[SideCommand]) -> list[SideRuns]:
    """Add the packages of each side where the commands run different Pythons."""
    pythons = [find_interpreter(command.argv, Path.cwd()) for command in commands[: len(sides)]]
    if len(set(pythons)) == 1:
        return [*sides]
    try:
        found = [inspect_interpreter(python, Path.cwd()) for python in pythons]
    except ProfilerError as error:  # what was measured is not lost for it
        print(f"profiler: packages are not compared: {error}", file=sys.stderr)
        return [*sides]
    versions = ({"python": each.version[1], **each.packages} for each in found)
    return [replace(side, packages=packages) for side, packages in zip(sides, versions, strict=True)]


def compare_counted(
    commands: Sequence[SideCommand], out: Path, *, virtual_cuda: str, env: Mapping[str, str], privacy: Privacy
) -> int:
    """Count each program once, report on both, and return the exit code.

    :param virtual_cuda: number and model of the virtual CUDA devices, as in 1:h100; empty: none.
    :raises ProfilerError: a program failed, was interrupted or saw no virtual device.
    """
    runs = []
    for command in commands:
        path = out / command.safe_folder
        print(f"counting: {command.label}", file=sys.stderr)
        spec = RunSpec(
            command.argv,
            path,
            level="standard",
            label=command.label,
            quiet=True,
            collectors=(),
            virtual_cuda=virtual_cuda,
            count=True,
            env=env,
            privacy=privacy,
        )
        info = record(spec)
        if info.state == "interrupted":
            raise ProfilerError(f"interrupted; the counts so far are kept in {out}", Exit.INTERRUPTED)
        if info.exit_code:
            line = last_output_line(path) or "it printed nothing"
            raise ProfilerError(f"{command.label} failed: {line} (its output is in {path})", Exit.TARGET_FAILED)
        run = load(path)
        if virtual_cuda and (reason := no_virtual_device(run.info)):
            raise ProfilerError(f"{command.label} {reason}")
        runs.append(run)
    return _report_counts(runs, [command.label for command in commands], out)


def _report_counts(runs: Sequence[Run], labels: Sequence[str], out: Path) -> int:
    """Report on counted runs by their counts alone, because counting changes the times."""
    sides = [run_counts(run, label) for label, run in zip(labels, runs, strict=True)]
    for side, run in zip(sides, runs, strict=True):
        of_ranks = Counter(run.steps["pid"].tolist()).values()  # each rank leaves its own first step out
        if max(of_ranks, default=0) < 2:
            taken = "only one step" if of_ranks else "no step"
            where = " in each rank" if len(of_ranks) > 1 else ""
            raise ProfilerError(
                f"{side.label} took {taken}{where}: counts need two steps or more, because the first one is left out"
            )
    report = write_compared_counts(sides, out, counted_mismatches([side.info for side in sides]))
    problem = point_latest(LATEST, out)
    print_report(report, page=out / "compare.html")
    if problem:
        print(f"profiler: {problem}", file=sys.stderr)
    return int(Exit.OK)


def compare_runs(paths: Sequence[Path], *, out: Path, anyway: bool) -> int:
    """Report on two or more recorded runs, and return the exit code.

    Ranks of one job are read as one run: each waits for the others, so none can be faster.

    :raises ProfilerError: only some of the runs are counted, or they are not comparable.
    """
    runs = [load(path) for path in paths]
    if all(run.info.is_counted for run in runs):
        return _report_counts(runs, _labels(paths, [run.info for run in runs]), out)
    if counted := next((path for run, path in zip(runs, paths, strict=True) if run.info.is_counted), None):
        raise ProfilerError(f"{counted} is a counted run without times: compare it with other counted runs")
    if not anyway and (group := read_ranks(runs)):
        page = out / "report.html"
        write_text(page, rendered(group, "html"))
        print(f"These runs are {len(runs)} ranks of one job. They are read as one run, and not compared.\n")
        print_report(build_report(group), page=page)
        return int(Exit.OK)
    analyses = [analyse_run(run, timeline=True) for run in runs]
    labels = _labels(paths, [run.info for run in analyses])
    sides = [
        SideRuns(label, shlex.join(run.info.argv), (run,), None if run.info.level == "light" else run)
        for label, run in zip(labels, analyses, strict=True)
    ]
    return _report(sides, out, anyway=anyway, same_program=True)


def _labels(paths: Sequence[Path], infos: Sequence[RunInfo]) -> list[str]:
    """Return the labels of the runs, or the names of their directories if two labels are equal."""
    labels = [info.label or path.name.removesuffix(".zip") for path, info in zip(paths, infos, strict=True)]
    if len(set(labels)) == len(labels):
        return labels
    names = [path.resolve().name.removesuffix(".zip") for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _report(
    sides: Sequence[SideRuns],
    out: Path,
    *,
    anyway: bool,
    same_program: bool = False,
    floor: SideRuns | None = None,
    extensions: Mapping[str, Extension] | None = None,
    planned: int | None = None,
    kept: str = "",
) -> int:
    """Compare `sides` as `profiler.analyse.comparison.compare` describes it, and write the report.

    :param planned: number of planned rounds, if a signal stopped the recording.
    :param kept: a remark for a refusal: the folder of the new runs.
    """
    title = " against ".join(side.label for side in reversed(sides))
    created = datetime.now(UTC).isoformat(timespec="seconds")
    comparison = compare(
        sides,
        anyway=anyway,
        same_program=same_program,
        floor=floor,
        extensions=extensions,
        title=title,
        created_at=created,
        planned=planned,
    )
    comparison = with_comparison_verdict(comparison, diagnose_comparison(comparison))
    if not comparison.comparable and not comparison.forced:
        raise _refusal(comparison.mismatches, kept)
    page = write_comparison(comparison, out)
    problem = point_latest(LATEST, out)
    print_report(build_report(comparison), page=page)
    if problem:
        print(f"profiler: {problem}", file=sys.stderr)
    return int(Exit.OK)
