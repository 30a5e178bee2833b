"""Plans the runs of a comparison and interleaves them."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from profiler.core.errors import Exit, ProfilerError
from profiler.core.masking import PRIVATE, Privacy, shown_command
from profiler.core.plugins import entry_points
from profiler.record.launch import last_output_line, record
from profiler.run.model import RunInfo, RunSpec
from profiler.run.source import read_facts
from profiler.run.tables import ENV_TRACE_SECONDS, ENV_TRACE_STEPS

if TYPE_CHECKING:
    from profiler.analyse.model.comparison import Extension

AGAIN: Final = "full-set-again"
"""Folder of the second run that a program has in each round: a name that no pattern for the first runs matches."""
STEPS_FILES: Final = ("source-*/steps.bin", "source-*/boundaries.bin")
"""Steps that the program marked, or events among which they are detected."""
_BAD_INPUT: Final = 2
"""Exit code of a program of ours that refuses its options."""
_ERROR_PREFIX: Final = "error: "
"""The line with which a program of ours reports an error begins so."""
_TRACE: Final = {ENV_TRACE_STEPS: "50", ENV_TRACE_SECONDS: "0.5"}
"""Length of the trace in a detailed run on CUDA: a step may take a millisecond, or a second with many launches."""
_SEED: Final = 1
"""Seed of the orders of shuffled rounds."""


# ---------------------------------------------------------------- what is recorded


@dataclass(frozen=True, slots=True)
class SideCommand:
    """One side of a comparison as a program to start."""

    label: str
    argv: tuple[str, ...]
    warmup: tuple[str, ...] = ()
    """The command to start once before anything is measured; empty: `argv`."""
    folder: str = ""
    """The names of its run directories end with this; empty: with the label."""
    ours: bool = False
    """A program of this project. When it refuses its options in the warm-up, its message becomes the error. It marks
    everything by itself, so that no hooks are installed in it, which would change its times."""
    hooked: bool = False
    """A program of this project that marks its steps only, so that it needs hooks as any other program does."""
    optional: bool = False
    """When it fails, the others go on without it."""

    @property
    def safe_folder(self) -> str:
        """`folder` or the label, as a part of a file name."""
        return "".join(c if c.isalnum() or c in "._-" else "-" for c in self.folder or self.label)[:40]


Kind = Literal["warmup", "light", "again", "detail", "floor"]
"""Kind of a recording; `again` is the second run of a program in a round."""


@dataclass(frozen=True, slots=True)
class Task:
    """One recording to be made."""

    side: SideCommand
    kind: Kind
    round: int = 0
    """The number of its round, from 1 on; 0: it belongs to no round."""

    @property
    def folder(self) -> str:
        """Name of the run directory."""
        name = {"again": AGAIN, "floor": "floor"}.get(self.kind, self.side.safe_folder)
        return f"{self.round:02}-{name}" if self.round else f"{self.kind}-{name}"

    def spec(self, path: Path) -> RunSpec:
        side = self.side
        argv = side.warmup or side.argv if self.kind == "warmup" else side.argv
        level, hooks = "standard" if self.kind == "detail" else "light", side.hooked or not side.ours
        return RunSpec(argv=argv, out=path, level=level, label=side.label, quiet=True, hooks=hooks)


@dataclass(slots=True)
class RecordedRuns:
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
        label = task.side.label
        match task.kind:
            case "light":
                self.light[label].append(path)
            case "again":
                self.again[label].append(path)
            case "detail":
                self.detail[label] = path
            case "floor":
                self.floor.append(path)


# ---------------------------------------------------------------- in which order


def schedule(sides: Sequence[SideCommand], pairs: int, floor: SideCommand | None = None) -> Iterator[Task]:
    """Warm-ups; then rounds of one light run a side, every other round in reverse order so that no side always
    comes first. A detailed run a side comes after the first round, so that a comparison that is interrupted has it. The
    floor is run in the first and the last round.
    """
    yield from (Task(side, "warmup") for side in sides)
    for number in range(1, pairs + 1):
        yield from (Task(side, "light", number) for side in (sides if number % 2 else reversed(sides)))
        if number == 1:
            yield from (Task(side, "detail") for side in sides)
        if floor and number in (1, pairs):
            yield Task(floor, "floor", number)


def shuffled_schedule(
    programs: Sequence[SideCommand],
    rounds: int,
    floor: SideCommand | None = None,
    *,
    warmed: Container[str],
    detailed: Container[str],
    twice: str = "",
) -> Iterator[Task]:
    """Schedule many programs: each round is in an order of its own, so that neighbours change.

    The orders are the same every time. Programs without a warm-up come with compiled kernels from the chunks that they
    do before they measure.

    :param warmed: labels of the programs with a warm-up.
    :param detailed: labels of the programs with a detailed run.
    :param twice: label of a program that runs twice in each round.
    """
    yield from (Task(program, "warmup") for program in programs if program.label in warmed)
    order: list[tuple[SideCommand, Kind]] = [(program, "light") for program in programs]
    order += [(program, "again") for program in programs if program.label == twice]
    random = Random(_SEED)
    for number in range(1, rounds + 1):
        before = list(order)
        while order == before and len(order) > 1:
            random.shuffle(order)
        yield from (Task(program, kind, number) for program, kind in order)
        if floor and number in (1, rounds):
            yield Task(floor, "floor", number)
    yield from (Task(program, "detail") for program in programs if program.label in detailed)


# ---------------------------------------------------------------- making them


def record_all(
    tasks: Sequence[Task],
    out: Path,
    announce: Callable[[int, Task], None],
    check: Callable[[RecordedRuns], None] | None = None,
    privacy: Privacy = PRIVATE,
) -> RecordedRuns:
    """Make the recordings of `tasks` below `out`; `announce` is called with each before it starts.

    Ctrl-C ends it early: what is complete by then is returned.

    :param check: is called once, when the first round is complete; it may raise to end the recordings.
    :raises ProfilerError: a program failed, or recorded no step (its run and its output are kept); or one of ours
        refused its input, and then no run is left.
    """
    rounds = Counter(task.side.label for task in tasks if task.kind == "light")
    recorded = RecordedRuns(
        {label: [] for label in rounds},
        {task.side.label: [] for task in tasks if task.kind == "again"},
        planned=max(rounds.values(), default=0),
    )
    made: list[Path] = []
    for number, task in enumerate(tasks):
        side, path = task.side, out / task.folder
        if side.label in recorded.unavailable:
            continue
        try:
            if check is not None and recorded.pairs:
                check(recorded)
                check = None
            announce(number, task)
            made.append(path)
            spec = task.spec(path)
            if task.kind == "detail":
                level, env = detailed_level(recorded.light[side.label][0])
                spec = replace(spec, level=level, env=env)
            info = record(replace(spec, privacy=privacy))
            recorded.interrupted = info.state == "interrupted"
        except KeyboardInterrupt:
            recorded.interrupted = True
        if recorded.interrupted:
            break
        _note(recorded, task, info, made)
    return recorded


def _note(recorded: RecordedRuns, task: Task, info: RunInfo, made: Sequence[Path]) -> None:
    """Add a recording, the last of those `made`, or the reason why an optional program has none.

    :raises ProfilerError: as `record_all`.
    """
    side, path = task.side, made[-1]
    first = task.kind == "warmup" or (task.kind == "light" and not recorded.light[side.label])
    # after all rounds it would be too late to report this
    stepless = first and not any(any(path.glob(steps)) for steps in STEPS_FILES)
    if not info.exit_code and not stepless:
        recorded.add(task, path)
    elif side.optional and task.kind != "detail":
        recorded.unavailable[side.label] = _reason(info, path)
        recorded.light.pop(side.label, None)
    elif side.ours and info.exit_code == _BAD_INPUT and not any(recorded.light.values()):
        reason = _reason(info, path)
        for run in made:
            shutil.rmtree(run, ignore_errors=True)
        raise ProfilerError(reason)
    elif info.exit_code:
        line = last_output_line(path) or "it printed nothing"
        message = f"{side.label} {_end(info)}: {line} (run and output are kept in {path})"
        raise ProfilerError(message, Exit.TARGET_FAILED)
    else:
        raise ProfilerError(
            f"{side.label} ({shown_command(side.argv)}) recorded no step to compare, no optimizer or loader "
            f"was seen: mark its steps with profiler.step() (run and output are kept in {path})"
        )


def detailed_level(light: Path) -> tuple[str, Mapping[str, str]]:
    """Return the level and the settings of a breakdown pass of the program that was recorded in `light`."""
    if not any(read_facts(folder).get("device") == "cuda" for folder in light.glob("source-*")):
        return "standard", {}
    return "full", {name: os.environ.get(name, value) for name, value in _TRACE.items()}  # kernels are in a trace only


def _reason(info: RunInfo, path: Path) -> str:
    """Tell why a program has no result."""
    if not info.exit_code:
        return "it recorded no step"
    return last_output_line(path).removeprefix(_ERROR_PREFIX) or f"it {_end(info)} and printed nothing"


def _end(info: RunInfo) -> str:
    code = info.exit_code or 0
    return f"was ended by signal {-code}" if code < 0 else f"exited with {code}"


# ---------------------------------------------------------------- progress

_PROGRESS_LABELS: Final = {
    "warmup": "warm-up",
    "light": "measuring",
    "again": "measuring",
    "detail": "breakdown pass",
    "floor": "floor",
    "extra": "measuring",
}
_ESTIMATE_OVER_S: Final = 120.0
"""Length of the runs from which the remaining time is estimated: a round of a ladder, fast and slow programs."""
_MINUTES_FROM_S: Final = 90.0


def record_with_progress(
    tasks: Sequence[Task],
    out: Path,
    check: Callable[[RecordedRuns], None] | None = None,
    privacy: Privacy = PRIVATE,
) -> RecordedRuns:
    """Make the recordings of `tasks` below `out` under a progress bar; without a terminal, print a line a round.

    :param check: as in `record_all`.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        return record_all(tasks, out, _print_rounds(tasks), check, privacy)
    print(describe_plan(tasks), file=sys.stderr, flush=True)
    with Progress(
        TextColumn("{task.description:<46.46}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left of all recordings"),
        console=console,
        transient=True,
        speed_estimate_period=_ESTIMATE_OVER_S,
    ) as progress:
        bar = progress.add_task("", total=len(tasks))

        def announce(number: int, task: Task) -> None:
            progress.update(bar, completed=number, description=f"{_PROGRESS_LABELS[task.kind]}: {task.side.label}")

        return record_all(tasks, out, announce, check, privacy)


def describe_plan(tasks: Sequence[Task]) -> str:
    """Describe how often each program will run, and which option makes that shorter."""
    kinds = Counter(_PROGRESS_LABELS[task.kind] for task in tasks)
    counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    hint = "; --pairs makes it shorter, with wider intervals" if any(task.round > 1 for task in tasks) else ""
    return f"{len(tasks)} recordings ({counts}), each as long as its program runs{hint}"


def _print_rounds(tasks: Sequence[Task]) -> Callable[[int, Task], None]:
    """Print when a round begins, with the remaining time, for logs and pipes."""
    rounds = max((task.round for task in tasks), default=0)
    begun: dict[int, tuple[int, float]] = {}

    def announce(number: int, task: Task) -> None:
        if not task.round or task.round in begun:
            return
        estimate, now = "", time.monotonic()
        begun[task.round] = number, now
        first, begin = begun[1]  # the warm-ups before it are shorter, and no measure of the remaining time
        if number > first:
            seconds = (now - begin) / (number - first) * (len(tasks) - number)
            shown = f"{round(seconds / 60)} min" if seconds >= _MINUTES_FROM_S else f"{max(1, round(seconds))} s"
            estimate = f", about {shown} left of all recordings"
        print(f"round {task.round} of {rounds}{estimate}", file=sys.stderr, flush=True)

    return announce


# ---------------------------------------------------------------- trainers that bring their own variants


@dataclass(frozen=True, slots=True)
class TrainerOption:
    """An option of `compare` that is passed on to a trainer."""

    help: str
    default: str = ""
    """Value in a pair; empty: the trainer's own default."""
    ladder_default: str = ""
    """Value in a ladder."""
    type: Callable[[str], Any] = str
    multiple: bool = False
    """Takes several values."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """The programs that a comparison records, and how."""

    programs: Sequence[SideCommand]
    """The sides of the comparison first."""
    tasks: Sequence[Task]
    sides: int = 2
    round_name: str = "pair"
    extensions: Callable[[Mapping[str, Any], RecordedRuns, bool], Mapping[str, Extension]] | None = None
    """Called with the `SideRuns` of programs by label, what was recorded, and whether --anyway was given."""


class Trainer(Protocol):
    """A program that can be run in two variants, and with each of its fixes."""

    name: str
    description: str
    module: str
    """The module that `python -m` runs."""
    is_default: bool
    marks_everything: bool
    """Its own marks record all that hooks would: hooks are not installed in its processes."""
    options: Mapping[str, TrainerOption]
    """Options by name, without dashes."""

    def pair(self, given: Mapping[str, str], rounds: int) -> Experiment:
        """Return the trainer before and after its fixes."""

    def counted_pair(self, given: Mapping[str, str]) -> tuple[Sequence[SideCommand], Mapping[str, str]]:
        """Return both variants with a few steps on CUDA devices that do not exist, and what their environment needs."""

    def ladder(self, given: Mapping[str, str], rounds: int) -> Experiment:
        """Return the same two variants, and every fix by itself."""


def trainers() -> Mapping[str, Trainer]:
    """Return all trainers by name, the default first."""
    return {t.name: t for t in sorted(entry_points("trainers").values(), key=lambda t: (not t.is_default, t.name))}
