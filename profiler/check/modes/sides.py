"""Prepares the sides of a check: their programs, the runs they left, and how a result describes them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from profiler.analyse.window import measured_window
from profiler.check.counters.counted import counted
from profiler.check.counters.environment_key import WORK, environment_key, key_differences, work_of_a_step
from profiler.check.counters.files import start_folder
from profiler.check.diff import SourceDiff
from profiler.check.model import BASE, CANDIDATE, PATIENCE_S, Counted, Round, SideInfo
from profiler.check.settings import Settings
from profiler.check.speed.controlled_process import Program, measured_spans
from profiler.check.speed.interleave import STEPS, WARMUP, record_steps
from profiler.core.errors import Notice, ProfilerError
from profiler.core.facts import program as started_program
from profiler.core.masking import shown_command
from profiler.core.metrics import CHECKPOINT, EVALUATION, LOADER, NUMBER
from profiler.record.schedule import STEPS_FILES, trainers
from profiler.report.text import step_text
from profiler.run.load import load
from profiler.run.model import Run, RunSpec, StepKind, Table
from profiler.run.source import unpacked
from profiler.run.tables import StageKind

if TYPE_CHECKING:
    from profiler.check.worktree.prepare import PreparedSide

EXPLAIN_S: Final = 10.0
"""Time that is recorded from the first step on: it contains some hundred stack samples."""


# ---------------------------------------------------------------- programs


def prepare_base(rev: str, command: tuple[str, ...], settings: Settings) -> AbstractContextManager[PreparedSide]:
    """Return the command at a git revision, ready to start within the block; what that takes is told on stderr."""
    from profiler.check.worktree.prepare import prepare_revision

    def announce(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    table = settings.table
    return prepare_revision(rev, command, Path.cwd(), announce, links=table.links, environment=table.environment)


def source_diff(sides: Mapping[str, PreparedSide]) -> SourceDiff | None:
    """Return what changed in the files of both sides; None where they are not two versions of one checkout."""
    base, candidate = sides[BASE], sides[CANDIDATE]
    if base.repository is None or base.repository != candidate.repository or not base.commit:
        return None
    if base.cwd == candidate.cwd:
        return None
    return SourceDiff(base.repository, base.commit, candidate.cwd, base.cwd)


def programs_of_sides(
    sides: Mapping[str, PreparedSide], settings: Settings, *, hint: str = "", counts_exactly: bool = False
) -> dict[str, Program]:
    """Return the programs of all sides. Hooks are installed in all or in none, since they cost time and count.

    :param hint: a likely cause where the base fails.
    :param counts_exactly: count operators and memory, and show virtual devices, as the settings have it; both need
        hooks.
    :raises ProfilerError: there is no such program, which is reported before anything takes time.
    """
    from profiler.record.collectors.host import EnvironmentCollector

    count, virtual_cuda = (settings.count, settings.virtual_cuda) if counts_exactly else (False, "")
    hooked = count or not all(marks_itself(side.argv) for side in sides.values())
    machine = EnvironmentCollector().describe()
    programs = {}
    for label, side in sides.items():
        facts = {**machine, "git_commit": side.commit or None}
        cause = hint if label == BASE else ""
        programs[label] = Program(
            label, side.argv, side.cwd, dict(side.env), hooked, facts, cause, settings.privacy, virtual_cuda, count
        )
        programs[label].executable()
    return programs


def marks_itself(argv: Sequence[str]) -> bool:
    """Return whether it is `python -m` of a bundled trainer that marks everything itself and needs no hooks."""
    module = started_program(argv)
    marked = [trainer.module for trainer in trainers().values() if trainer.marks_everything]
    return any(module == name or module.startswith(f"{name}.") for name in marked)


@contextmanager
def gpu_throttling() -> Iterator[Any]:
    """Provide a function that tells what throttles the clocks of this machine's GPUs; None where there is no GPU."""
    from profiler.record.collectors.gpu import GpuReader

    gpus = GpuReader()
    if gpus.error:
        yield None
        return
    with closing(gpus):
        yield lambda: tuple(f"GPU {gpu.index}: {reason}" for gpu in gpus.all() for reason in gpu.throttle or ())


# ---------------------------------------------------------------- the runs of a side


@dataclass(frozen=True)
class Recordings:
    """The runs that the processes of a side left, and what they counted."""

    runs: tuple[Run, ...]
    counted: tuple[Counted, ...]
    detail: Path | None = None
    """A run at level standard, which tells where its time goes."""

    def __add__(self, other: Recordings) -> Recordings:
        return Recordings(self.runs + other.runs, self.counted + other.counted)


def record_counters(
    program: Program, settings: Settings, processes: int, first: int = 1, *, purpose: str = ""
) -> Recordings:
    """Count in fresh processes; `first` is the number of the first one.

    :param purpose: of the processes, for the progress line.
    """
    last = first + processes - 1
    names = {f"counted-{program.side}-{number}": number for number in range(first, last + 1)}
    paths = record_steps(
        program,
        settings.out,
        list(names),
        steps=settings.steps or STEPS,
        warmup=WARMUP if settings.table.warmup is None else settings.table.warmup,
        patience=settings.table.patience,
        announce=lambda name: print(
            f"counting{purpose and f' {purpose}'}: process {names[name]} of {last}", file=sys.stderr
        ),
    )
    return load_recordings(paths, str(program.cwd))


def load_recordings(paths: Sequence[Path], folder: str = "") -> Recordings:
    """Load runs and count what their processes did.

    :param folder: in which their programs were started; empty: it is derived from each run.
    :raises ProfilerError: a run has no steps.
    """
    runs = tuple(map(load, paths))
    for run in runs:
        if not _has_steps(run):
            raise ProfilerError(
                f"{run.path} has no steps, and only steps can be compared: call profiler.step() at the end of each, or "
                f"train with an optimizer or a loader of torch"
            )
    counts = (counted(run, _spans(run.path), folder=folder or start_folder(run)) for run in runs)
    return Recordings(runs, tuple(counts))


def _spans(path: Path) -> list[tuple[int, int]] | None:
    """Return the measured spans of a run directory or of a .zip of one; None: all of the run counts, as of a trace."""
    if path.suffix == ".zip" and path.is_file():
        with unpacked(path) as folder:
            return measured_spans(folder)
    return measured_spans(path) if path.is_dir() else None


def _has_steps(run: Run) -> bool:
    return bool(len(run.steps)) and not (run.step and run.step.is_whole_run)


def warnings_of_steps(recordings: Recordings) -> tuple[Notice, ...]:
    """Return a warning where batches are taken for steps: they may be those of a long validation."""
    step = recordings.runs[0].step if recordings.runs else None
    return (Notice("batches-as-steps"),) if step and step.kind is StepKind.LOADER else ()


def short_program(counted: Sequence[Counted], wanted: int) -> tuple[Notice, ...]:
    """Return a warning where a program ended before its last counted step.

    :param wanted: steps to count in each process.
    """
    fewest = min((process.steps for process in counted), default=wanted)
    return (Notice("short-program", {"steps": fewest, "wanted": wanted}),) if fewest < wanted else ()


def work_of(recordings: Recordings, *, is_counted: bool = False) -> dict[str, str]:
    """Return what is known about the work of a step, for `other_work`.

    :param is_counted: its steps were counted, as many as were asked for.
    """
    if not recordings.runs:
        return {}
    steps = {"steps": str(min(each.steps for each in recordings.counted))} if is_counted else {}
    return {**environment_key(recordings.runs[0]), **work_of_a_step(recordings.runs[0]), **steps}


def side_differences(base: Recordings, candidate: Recordings) -> tuple[Notice, ...]:
    """Return the facts, except for the program's name and the work of a step, in which the sides differ."""
    if not base.runs or not candidate.runs:
        return ()
    before, after = (environment_key(side.runs[0]) for side in (base, candidate))
    names = dict.fromkeys((*WORK, "program", "arguments"), "")
    return key_differences({**before, **names}, {**after, **names}, "sides-differ")


def not_seen(recordings: Recordings, unreached: Sequence[str] = (), *, looked: int = 0) -> tuple[Notice, ...]:
    """Return what the steps of a PASS did not show, as far as its runs tell.

    :param unreached: changed statements of which nothing was counted.
    :param looked: steps in which long ones were looked for.
    """
    if not recordings.runs:  # it was stopped before
        return ()
    run, spans = recordings.runs[0], _spans(recordings.runs[0].path)
    inside = [(begin, end) for begin, end in spans or () if end > begin]
    if not inside:
        return ()

    def occurs(table: Table) -> bool:
        return any(bool(((table["begin"] < end) & (table["end"] >= begin)).any()) for begin, end in inside)

    is_hooked, totals = "package" in run.info.facts, recordings.counted[0].totals
    missing = {
        name: is_hooked and not totals.get(f"{prefix}{NUMBER}")
        for name, prefix in (("evaluation", EVALUATION), ("checkpoint", CHECKPOINT))
    }
    if run.info.level == "light":  # checkpoints are not recorded
        stages = run.stages[np.isin(run.stages["kind"], (StageKind.EVAL_MODE, StageKind.NO_GRAD))]
        missing = {"evaluation": is_hooked and not occurs(stages)}
    loaders = run.info.facts.get("loaders")
    numbers = [each.get("num_workers") or 0 for each in loaders.values()] if isinstance(loaders, dict) else []
    is_counted = any(each.workers or f"{LOADER}operators" in each.totals for each in recordings.counted)
    workers = 0 if is_counted else sum(numbers)
    values = {"missing": [name for name, is_missing in missing.items() if is_missing], "workers": workers}
    values |= {"looked": looked} if looked else {}
    return (Notice("not-seen", {**values, "lines": list(unreached)}),) if any(values.values()) or unreached else ()


# ---------------------------------------------------------------- where the time goes


def record_explanations(programs: Mapping[str, Program], settings: Settings) -> dict[str, Path | None]:
    """Return a run of each side that tells where its time goes. A fault is reported and changes no verdict."""
    explanations: dict[str, Path | None] = {}
    for side, program in programs.items():
        try:
            out = settings.out / f"explained-{program.side}"
            explanations[side] = record_explanation(program, out, patience=settings.table.patience)
        except (ProfilerError, OSError, KeyboardInterrupt) as error:
            why = "stopped" if isinstance(error, KeyboardInterrupt) else str(error)
            print(f"where the time of the {side} goes was not recorded: {why}", file=sys.stderr)
            break
    return explanations


def record_explanation(
    program: Program, out: Path, *, level: str = "standard", seconds: float = EXPLAIN_S, patience: float = PATIENCE_S
) -> Path | None:
    """Return a run of some seconds from the first step on, alone; None: it recorded nothing.

    :raises KeyboardInterrupt: a signal stopped it.
    """
    from profiler.record.launch import record

    print(f"recording where the time of the {program.side} goes", file=sys.stderr)
    spec = RunSpec(
        program.argv,
        out,
        level=level,
        label=program.side,
        timeout=patience,
        quiet=True,
        hooks=program.hooked,
        privacy=program.privacy,
        cwd=program.cwd,
        env=program.env,
    )
    started, first_step, done = time.monotonic(), 0.0, False

    def enough() -> bool:
        nonlocal first_step, done
        if not first_step and any(any(out.glob(steps)) for steps in STEPS_FILES):
            first_step = time.monotonic()
        done = bool(first_step) and time.monotonic() - first_step > seconds
        return done

    info = record(spec, enough=enough, executable=program.executable())
    if info.state == "interrupted" and not done and time.monotonic() - started < patience:
        raise KeyboardInterrupt  # `record` handles signals itself, and passes them on
    run = load(out)
    return out if _has_steps(run) else None


# ---------------------------------------------------------------- descriptions


def describe_side(label: str, side: PreparedSide, recordings: Recordings, rounds: Sequence[Round] = ()) -> SideInfo:
    """Describe a side as people know it; its speed is informational: that of its measured blocks, else of its runs."""
    blocks = [block for measured in rounds for block in measured.blocks if block.side == label and block.time]
    steps, tokens = [step for block in blocks for step in block.steps], sum(block.tokens for block in blocks)
    for run in () if rounds else recordings.runs:  # of controlled programs only in their measured spans
        window, spans = measured_window(run), _spans(run.path)
        rows = zip(window.begin.tolist(), window.end.tolist(), window.steps["tokens"].tolist(), strict=True)
        for begin, end, step_tokens in rows:
            if not spans or any(first <= begin and end <= last for first, last in spans):
                steps.append(end - begin)
                tokens += max(0, step_tokens)
    command = shown_command(side.argv)
    first = recordings.runs[0] if recordings.runs else None
    return SideInfo(
        label,
        side.what or command,
        command,
        side.commit or None,
        step_text(first.step) if first else "",
        median(steps) / 1e9 if steps else None,
        tokens / (sum(steps) / 1e9) if tokens else None,
        {name: value for name, value in first.info.facts.items() if isinstance(value, str | int)} if first else {},
    )


def fingerprint(runs: Sequence[Run]) -> dict[str, str]:
    """Return the parts of a machine that make it fast or slow, for the result and the history."""
    if not runs:
        return {}
    info = runs[0].info
    parts = {
        "cpu": str(info.host.get("cpu", "")),
        "cores": str(info.host.get("cores", "")),
        "GPU": ", ".join(str(device.get("name", "unnamed")) for device in info.devices),
        "kernel": str(info.host.get("kernel", "")),
        "python": str(info.versions.get("python", "")),
        "torch": str(info.facts.get("torch") or info.versions.get("torch", "")),
    }
    return {name: value for name, value in parts.items() if value}
