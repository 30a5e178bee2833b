"""Interleaved recordings: which runs a comparison needs, in which order, and making them one after the other."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

from profiler.core.errors import Exit, ProfilerError
from profiler.record.launch import last_output_line, record
from profiler.run.model import RunInfo, RunSpec

FLOOR: Final = "floor"
AGAIN: Final = "full-set-again"
"""Folder of the second run that a program has in each round: a name that no pattern for the first runs matches."""
STEPS_FILES: Final = ("source-*/steps.bin", "source-*/boundaries.bin")
"""Steps that the program marked, or events among which they are detected."""
_BAD_INPUT: Final = 2
"""Exit code of a program of ours that refuses its options."""
_ERROR_PREFIX: Final = "error: "
"""Of the line with which a program of ours reports an error."""
_SEED: Final = 1
"""Of the orders of shuffled rounds."""


# ---------------------------------------------------------------- what is recorded


@dataclass(frozen=True, slots=True)
class SideCommand:
    """One side of a comparison as a program to start."""

    label: str
    argv: tuple[str, ...]
    warmup: tuple[str, ...] = ()
    """What to start once before anything is measured; empty: `argv`."""
    folder: str = ""
    """What the names of its runs' directories end with; empty: the label."""
    ours: bool = False
    """A program of this project. When it refuses its options in the warm-up, its message becomes the error. It marks
    itself, so that no hooks go into it and do not change its times."""
    hooked: bool = False
    """One of ours that marks its steps only: hooks go into it as into any program."""
    optional: bool = False
    """When it fails, the others go on without it."""

    @property
    def safe_folder(self) -> str:
        """`folder` or the label, as a part of a file name."""
        return "".join(c if c.isalnum() or c in "._-" else "-" for c in self.folder or self.label)[:40]


@dataclass(frozen=True, slots=True)
class Task:
    """One recording to be made."""

    label: str
    kind: str
    """warmup | light | again | detail | floor; again: the second run of its round"""
    argv: tuple[str, ...]
    folder: str
    ours: bool = False
    optional: bool = False
    hooked: bool = False
    round: int = 0
    """From 1 on; 0: of no round."""

    def spec(self, path: Path) -> RunSpec:
        level, hooks = "standard" if self.kind == "detail" else "light", self.hooked or not self.ours
        return RunSpec(argv=self.argv, out=path, level=level, label=self.label, quiet=True, hooks=hooks)


@dataclass(slots=True)
class Recorded:
    """The run directories that were made, by the label of their side."""

    light: dict[str, list[Path]] = field(default_factory=dict)
    again: dict[str, list[Path]] = field(default_factory=dict)
    """Second runs of the rounds, of programs that have them."""
    detail: dict[str, Path] = field(default_factory=dict)
    floor: list[Path] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    """Optional programs that failed, and why; they are in no other field."""
    interrupted: bool = False
    planned: int = 0
    """Rounds that were asked for."""

    @property
    def pairs(self) -> int:
        """Complete rounds."""
        return min((len(paths) for paths in (*self.light.values(), *self.again.values())), default=0)

    def add(self, task: Task, path: Path) -> None:
        if task.kind == "light":
            self.light[task.label].append(path)
        elif task.kind == "again":
            self.again[task.label].append(path)
        elif task.kind == "detail":
            self.detail[task.label] = path
        elif task.kind == FLOOR:
            self.floor.append(path)


# ---------------------------------------------------------------- in which order


def schedule(sides: Sequence[SideCommand], pairs: int, floor: SideCommand | None = None) -> Iterator[Task]:
    """Warm-ups; then rounds of one light run a side, every other round in reverse order so that no side always
    comes first; then one detailed run a side. The floor is run in the first and the last round.
    """
    yield from map(_warm_up, sides)
    for number in range(1, pairs + 1):
        ordered = sides if number % 2 else tuple(reversed(sides))
        yield from (_in_round(number, _light(side)) for side in ordered)
        if floor and number in (1, pairs):
            yield _in_round(number, _task(floor, FLOOR, FLOOR, floor.argv))
    yield from map(_detail, sides)


def shuffled_schedule(
    programs: Sequence[SideCommand],
    rounds: int,
    floor: SideCommand | None = None,
    *,
    warmed: Container[str],
    detailed: Container[str],
    twice: str = "",
) -> Iterator[Task]:
    """As `schedule`, for many programs: each round is in an order of its own, so that neighbours change.

    The orders are the same every time. Programs without a warm-up come with compiled kernels from the chunks that they
    do before they measure.

    :param warmed: labels of the programs with a warm-up.
    :param detailed: labels of the programs with a detailed run.
    :param twice: label of a program that runs twice in each round.
    """
    yield from (_warm_up(program) for program in programs if program.label in warmed)
    first = [_light(program) for program in programs]
    second = [replace(task, kind="again", folder=AGAIN) for task in first if task.label == twice]
    random, order = Random(_SEED), [*first, *second]
    for number in range(1, rounds + 1):
        before = list(order)
        while order == before and len(order) > 1:
            random.shuffle(order)
        yield from (_in_round(number, task) for task in order)
        if floor and number in (1, rounds):
            yield _in_round(number, _task(floor, FLOOR, FLOOR, floor.argv))
    yield from (_detail(program) for program in programs if program.label in detailed)


def _warm_up(side: SideCommand) -> Task:
    return _task(side, "warmup", f"warmup-{side.safe_folder}", side.warmup or side.argv)


def _light(side: SideCommand) -> Task:
    return _task(side, "light", side.safe_folder, side.argv)


def _detail(side: SideCommand) -> Task:
    return replace(_task(side, "detail", f"detail-{side.safe_folder}", side.argv), optional=False)


def _in_round(number: int, task: Task) -> Task:
    return replace(task, folder=f"{number:02}-{task.folder}", round=number)


def _task(side: SideCommand, kind: str, folder: str, argv: tuple[str, ...]) -> Task:
    return Task(side.label, kind, argv, folder, ours=side.ours, optional=side.optional, hooked=side.hooked)


# ---------------------------------------------------------------- making them


def record_all(tasks: Sequence[Task], out: Path, announce: Callable[[int, Task], None]) -> Recorded:
    """Make the recordings of `tasks` below `out`; `announce` is called with each before it starts.

    Ctrl-C ends it early: what is complete by then is returned.

    :raises ProfilerError: a program failed, or recorded no step (its run and its output are kept); or one of ours
        refused its input, and then nothing is left.
    """
    light = Counter(task.label for task in tasks if task.kind == "light")
    twice = dict.fromkeys(task.label for task in tasks if task.kind == "again")
    recorded = Recorded(
        {label: [] for label in light}, {label: [] for label in twice}, planned=max(light.values(), default=0)
    )
    new_folders = [folder for folder in (out.absolute(), *out.absolute().parents) if not folder.exists()]
    warm_ups: list[Path] = []
    for number, task in enumerate(tasks):
        if task.label in recorded.unavailable:
            continue
        path = out / task.folder
        try:
            announce(number, task)
            info = record(task.spec(path))
        except KeyboardInterrupt:
            recorded.interrupted = True
            return recorded
        if info.state == "interrupted":
            recorded.interrupted = True
            return recorded
        if task.kind == "warmup":
            warm_ups.append(path)
        first = task.kind == "warmup" or (task.kind == "light" and not recorded.light[task.label])
        error = _error(task, info, path, needs_steps=first)  # after all rounds it would be late to report no steps
        if error is None:
            recorded.add(task, path)
        elif task.optional:
            recorded.unavailable[task.label] = _reason(info, path)
            del recorded.light[task.label]
        elif task.ours and info.exit_code == _BAD_INPUT and not any(recorded.light.values()):
            error = ProfilerError(last_output_line(path).removeprefix(_ERROR_PREFIX) or "it printed nothing")
            _remove([*warm_ups, path], new_folders)
            raise error
        else:
            raise error
    return recorded


def _error(task: Task, info: RunInfo, path: Path, *, needs_steps: bool) -> ProfilerError | None:
    """What is wrong with the run that was just made."""
    if info.exit_code != 0:
        line = last_output_line(path) or "it printed nothing"
        message = f"{task.label} {describe_end(info.exit_code)}: {line} (run and output are kept in {path})"
        return ProfilerError(message, Exit.TARGET_FAILED)
    if needs_steps and not any(any(path.glob(steps)) for steps in STEPS_FILES):
        return ProfilerError(
            f"{task.label} ({shlex.join(task.argv)}) recorded no step to compare, no optimizer or loader was seen: "
            f"mark its steps with profiler.step() (run and output are kept in {path})"
        )
    return None


def _reason(info: RunInfo, path: Path) -> str:
    """Why there is no row of an optional program."""
    if not info.exit_code:
        return "it recorded no step"
    line = last_output_line(path).removeprefix(_ERROR_PREFIX)
    return line or f"it {describe_end(info.exit_code)} and printed nothing"


def describe_end(exit_code: int | None) -> str:
    return f"was ended by signal {-exit_code}" if exit_code and exit_code < 0 else f"exited with {exit_code}"


def _remove(runs: Sequence[Path], folders: Sequence[Path]) -> None:
    """Remove run directories, then each of `folders` that is empty without them."""
    for run in runs:
        shutil.rmtree(run, ignore_errors=True)
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # it contains something else by now
            return


# ---------------------------------------------------------------- progress

_PROGRESS_LABELS: Final = {
    "warmup": "warm-up",
    "light": "measuring",
    "again": "measuring",
    "detail": "breakdown pass",
    "floor": "floor",
}
_ESTIMATE_OVER_S: Final = 120.0
"""Length of the runs from which the remaining time is estimated: a round of a ladder, fast and slow programs."""
_MINUTES_FROM_S: Final = 90.0


def record_with_progress(tasks: Sequence[Task], out: Path) -> Recorded:
    """Make the recordings of `tasks` below `out` under a progress bar; without a terminal, print a line a round."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<46.46}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left of all recordings"),
    )
    console = Console(stderr=True)
    if not console.is_terminal:
        return record_all(tasks, out, _RoundLines(tasks))
    print(describe_plan(tasks), file=sys.stderr, flush=True)
    with Progress(*columns, console=console, transient=True, speed_estimate_period=_ESTIMATE_OVER_S) as progress:
        bar = progress.add_task("", total=len(tasks))

        def announce(number: int, task: Task) -> None:
            progress.update(bar, completed=number, description=f"{_PROGRESS_LABELS[task.kind]}: {task.label}")

        return record_all(tasks, out, announce)


def describe_plan(tasks: Sequence[Task]) -> str:
    """How often each program will run, and what makes that shorter."""
    rounds = max((task.round for task in tasks), default=0)
    kinds = Counter(_PROGRESS_LABELS[task.kind] for task in tasks)
    counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    hint = "; --pairs makes it shorter, with wider intervals" if rounds > 1 else ""
    return f"{len(tasks)} recordings ({counts}), each as long as its program runs{hint}"


class _RoundLines:
    """Prints when a round begins, with the remaining time, for logs and pipes."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = len(tasks)
        self._rounds = max((task.round for task in tasks), default=0)
        self._round = self._first_task = 0
        self._begin = 0.0

    def __call__(self, number: int, task: Task) -> None:
        if task.round <= self._round:
            return
        if not self._round:  # the warm-ups before it are shorter, and no measure of the remaining time
            self._begin, self._first_task = time.monotonic(), number
        self._round = task.round
        estimate = ""
        if done := number - self._first_task:
            seconds = (time.monotonic() - self._begin) / done * (self._tasks - number)
            shown = f"{round(seconds / 60)} min" if seconds >= _MINUTES_FROM_S else f"{max(1, round(seconds))} s"
            estimate = f", about {shown} left of all recordings"
        print(f"round {self._round} of {self._rounds}{estimate}", file=sys.stderr, flush=True)
