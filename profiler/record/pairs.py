"""Interleaved recordings: which runs a comparison needs, in which order, and doing them one after the other."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from profiler.core.errors import ProfilerError
from profiler.record.failures import bad_input, failed, missing_folders, reason, take_back
from profiler.record.launch import record
from profiler.run.model import RunInfo, RunSpec

FLOOR = "floor"
AGAIN = "full-set-again"
"""Folder of the second run that a program has in each round: in a name of its own, so that no pattern for the first
runs takes it for one."""
STEPS_FILES = ("source-*/steps.bin", "source-*/boundaries.bin")
"""Steps that the program marked, or moments among which they are found."""
_BAD_INPUT = 2
"""Exit code of a program of ours that refuses its options."""
_SEED = 1
"""Of the orders of shuffled rounds."""


@dataclass(frozen=True, slots=True)
class SideCommand:
    """One side of a comparison as a program to start."""

    label: str
    argv: tuple[str, ...]
    warmup: tuple[str, ...] = ()
    """What to start once before anything is measured; empty: `argv` itself."""
    folder: str = ""
    """What the names of its runs' directories end with; empty: the label."""
    ours: bool = False
    """A program of this project. What it says with exit code 2 in its warm-up is said of the input of both; it marks
    itself, so that no hooks go into it and its figures do not move."""
    hooked: bool = False
    """One of ours that marks its steps only: hooks go into it as into anyone's, to count and to find the rest."""
    optional: bool = False
    """Where it fails the others go on without it."""

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

    @property
    def level(self) -> str:
        return "standard" if self.kind == "detail" else "light"


@dataclass(slots=True)
class Recorded:
    """The run directories that were made, by side label."""

    light: dict[str, list[Path]] = field(default_factory=dict)
    again: dict[str, list[Path]] = field(default_factory=dict)
    """Second runs of the rounds, of programs that have them."""
    detail: dict[str, Path] = field(default_factory=dict)
    floor: list[Path] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    """Optional programs that failed, and why; nothing else here speaks of them."""
    interrupted: bool = False
    planned: int = 0
    """Rounds that were asked for."""

    @property
    def pairs(self) -> int:
        """Complete rounds."""
        return min((len(paths) for paths in (*self.light.values(), *self.again.values())), default=0)


def schedule(sides: Sequence[SideCommand], pairs: int, floor: SideCommand | None = None) -> Iterator[Task]:
    """Warm-ups; then rounds of one light run a side, every other round in reverse order so that no side always
    comes first; then one detailed run a side. The floor is run in the first and the last round.
    """
    for side in sides:
        yield _warm_up(side)
    for number in range(1, pairs + 1):
        ordered = sides if number % 2 else tuple(reversed(sides))
        yield from (_in_round(number, _light(side)) for side in ordered)
        if floor and number in (1, pairs):
            yield _floor(number, floor)
    for side in sides:
        yield _detail(side)


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

    The orders are the same every time. `warmed` and `detailed` hold the labels of the programs with a warm-up and
    with a detailed run; all others come with compiled kernels from the chunks that they do before they measure.
    `twice` is the label of a program that runs twice in each round.
    """
    yield from (_warm_up(program) for program in programs if program.label in warmed)
    plain = [_light(program) for program in programs]
    second = [replace(task, kind="again", folder=AGAIN) for task in plain if task.label == twice]
    random, order = Random(_SEED), [*plain, *second]
    for number in range(1, rounds + 1):
        before = list(order)
        while order == before and len(order) > 1:
            random.shuffle(order)
        yield from (_in_round(number, task) for task in order)
        if floor and number in (1, rounds):
            yield _floor(number, floor)
    yield from (_detail(program) for program in programs if program.label in detailed)


def _warm_up(side: SideCommand) -> Task:
    argv = side.warmup or side.argv
    return _task(side, "warmup", f"warmup-{side.safe_folder}", argv)


def _light(side: SideCommand) -> Task:
    return _task(side, "light", side.safe_folder, side.argv)


def _in_round(number: int, task: Task) -> Task:
    return replace(task, folder=f"{number:02}-{task.folder}", round=number)


def _floor(number: int, floor: SideCommand) -> Task:
    return replace(_task(floor, FLOOR, f"{number:02}-floor", floor.argv), round=number)


def _detail(side: SideCommand) -> Task:
    return replace(_task(side, "detail", f"detail-{side.safe_folder}", side.argv), optional=False)


def _task(side: SideCommand, kind: str, folder: str, argv: tuple[str, ...]) -> Task:
    return Task(side.label, kind, argv, folder, ours=side.ours, optional=side.optional, hooked=side.hooked)


def record_all(tasks: Sequence[Task], out: Path, announce: Callable[[int, Task], None]) -> Recorded:
    """Make the recordings of `tasks` below `out`; `announce` is told of each before it starts.

    Ctrl-C ends it early: what is complete by then is returned when there is a whole round.

    :raises ProfilerError: a program failed, or recorded no step (its run and its output are kept); or one of ours
        refused its input, and then nothing is left.
    """
    light = Counter(task.label for task in tasks if task.kind == "light")
    twice = dict.fromkeys(task.label for task in tasks if task.kind == "again")
    recorded = Recorded(
        {label: [] for label in light}, {label: [] for label in twice}, planned=max(light.values(), default=0)
    )
    warm_ups, made = [], missing_folders(out)
    for number, task in enumerate(tasks):
        if task.label in recorded.unavailable:
            continue
        path = out / task.folder
        try:
            announce(number, task)
            info = record(_spec(task, path))
        except KeyboardInterrupt:
            recorded.interrupted = True
            return recorded
        if info.state == "interrupted":
            recorded.interrupted = True
            return recorded
        if task.kind == "warmup":
            warm_ups.append(path)
        why = _fault(task, info, path, recorded)
        if why and not task.optional:
            if task.ours and info.exit_code == _BAD_INPUT and not any(recorded.light.values()):
                why = bad_input(path)  # a warm-up need not have all options of a measured run
                take_back([*warm_ups, path], made)
            raise why
        if why:
            said = reason(info.exit_code, path) if info.exit_code else "it recorded no step"
            recorded.unavailable[task.label] = said
            del recorded.light[task.label]
        else:
            _keep(task, path, recorded)
    return recorded


def _spec(task: Task, path: Path) -> RunSpec:
    hooks = task.hooked or not task.ours
    return RunSpec(argv=task.argv, out=path, level=task.level, label=task.label, quiet=True, hooks=hooks)


def _fault(task: Task, info: RunInfo, path: Path, recorded: Recorded) -> ProfilerError | None:
    """What is wrong with the run that was just made."""
    if info.exit_code != 0:
        return failed(task.label, info.exit_code, path)
    first = task.kind == "warmup" or (task.kind == "light" and not recorded.light[task.label])
    if first and not any(any(path.glob(steps)) for steps in STEPS_FILES):  # after all pairs it would be late to say so
        return ProfilerError(
            f"{task.label} ({shlex.join(task.argv)}) recorded no step to compare, no optimizer or loader was seen: "
            f"mark its steps with profiler.step() (run and output are kept in {path})"
        )
    return None


def _keep(task: Task, path: Path, recorded: Recorded) -> None:
    if task.kind == "light":
        recorded.light[task.label].append(path)
    elif task.kind == "again":
        recorded.again[task.label].append(path)
    elif task.kind == "detail":
        recorded.detail[task.label] = path
    elif task.kind == FLOOR:
        recorded.floor.append(path)
