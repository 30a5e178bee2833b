"""What the processes of a side left: their runs, and what they counted."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.check.command.settings import GateSettings
from profiler.check.counted import counted
from profiler.check.located import folder_of
from profiler.check.model import Counted
from profiler.check.speed.controlled_process import Program, measured_spans
from profiler.check.speed.counting import STEPS, record_steps
from profiler.check.speed.interleave import WARMUP
from profiler.core.errors import ProfilerError
from profiler.record.schedule import STEPS_FILES
from profiler.run.load import load
from profiler.run.model import Run, RunSpec, StepKind

EXPLAIN_S = 10.0
"""From its first step on: some hundred stack samples."""


@dataclass(frozen=True)
class Found:
    """What the counted processes of a side left."""

    paths: tuple[Path, ...]
    runs: tuple[Run, ...]
    counted: tuple[Counted, ...]
    detail: Path | None = None
    """A run at level standard, that says where its time goes."""

    def joined(self, other: Found) -> Found:
        """With the processes of `other`."""
        return Found(self.paths + other.paths, self.runs + other.runs, self.counted + other.counted)


def count_steps(program: Program, settings: GateSettings, processes: int, first: int = 1, *, of: str = "") -> Found:
    """Count so many fresh processes; `first` is the number of the first one.

    :param of: what they are processes of, where that is not plain.
    """
    last = first + processes - 1
    names = {f"counted-{program.side}-{number}": number for number in range(first, last + 1)}
    paths = record_steps(
        program,
        settings.out,
        list(names),
        steps=settings.steps or STEPS,
        warmup=WARMUP if settings.warmup is None else settings.warmup,
        patience=settings.patience,
        announce=lambda name: print(f"counting{of and f' {of}'}: process {names[name]} of {last}", file=sys.stderr),
    )
    return found_in(paths, str(program.cwd))


def found_in(paths: Sequence[Path], folder: str = "") -> Found:
    """Recorded runs, read.

    :param folder: that their programs were started in; empty: each as far as it can be told.
    :raises ProfilerError: no step can be seen in one.
    """
    runs = tuple(load(path) for path in paths)
    for run in runs:
        if (run.step and run.step.is_whole_run) or not len(run.steps):
            raise ProfilerError(
                f"no step can be seen in {run.path}, and only steps can be held against each other: call "
                f"profiler.step() at the end of each, or train with an optimizer or a loader of torch"
            )
    return Found(
        tuple(paths),
        runs,
        tuple(
            counted(run, measured_spans(path), folder=folder or _started_in(run))
            for run, path in zip(runs, paths, strict=True)
        ),
    )


def _started_in(run: Run) -> str:
    """The folder that a recorded program was started in: as it says, else where its script or module lies.

    The first of both sides' files are then named alike, and as the repository names them.
    """
    script = _script(run.info.argv)
    if not script or script.startswith("/"):
        return folder_of(run)
    endings = (f"/{script}", f"/{script.removesuffix('.py')}/__main__.py")
    for site in run.sites:
        for ending in endings:
            if site.file.startswith("/") and site.file.endswith(ending):
                return site.file.removesuffix(ending)
    return folder_of(run)


def _script(argv: Sequence[str]) -> str:
    """The file that Python was started with, as it was named; empty: not known."""
    if "-m" in argv[:-1]:
        return f"{argv[argv.index('-m') + 1].replace('.', '/')}.py"
    return next((word.removeprefix("./") for word in argv if word.endswith(".py")), "")


# ---------------------------------------------------------------- where the time goes


def only_batches(found: Found) -> tuple[str, ...]:
    """A doubt: batches may be those of a validation that outlasts what is measured."""
    step = found.runs[0].step if found.runs else None
    if step is None or step.kind is not StepKind.LOADER:
        return ()
    what = "No optimizer stepped while it was measured, so batches are taken for steps"
    hint = "mark the training's steps with profiler.step(), or validate later"
    return (f"{what}: if they are a validation before the training, {hint}.",)


def explained_all(programs: Mapping[str, Program], settings: GateSettings) -> dict[str, Path | None]:
    """A run of each side that says where its time goes. What is wrong with one is said and costs no verdict."""
    found: dict[str, Path | None] = {}
    for side, program in programs.items():
        try:
            found[side] = explained(program, settings)
        except (ProfilerError, OSError, KeyboardInterrupt) as error:
            why = "stopped" if isinstance(error, KeyboardInterrupt) else str(error)
            print(f"where the time of the {side} goes was not recorded: {why}", file=sys.stderr)
            break
    return found


def explained(program: Program, settings: GateSettings) -> Path | None:
    """A run of some seconds, by itself, at level standard: where its time goes. None: it recorded nothing.

    :raises KeyboardInterrupt: a signal stopped it.
    """
    from profiler.record.launch import record

    print(f"looking where the time of the {program.side} goes", file=sys.stderr)
    out = settings.out / f"explained-{program.side}"
    spec = RunSpec(
        program.argv,
        out,
        level="standard",
        label=program.side,
        timeout=settings.patience,
        quiet=True,
        hooks=program.hooked,
        cwd=program.cwd,
        env=program.env,
    )
    started, first, done = time.monotonic(), 0.0, False

    def enough() -> bool:
        nonlocal first, done
        if not first and any(any(out.glob(steps)) for steps in STEPS_FILES):
            first = time.monotonic()
        done = bool(first) and time.monotonic() - first > EXPLAIN_S
        return done

    info = record(spec, enough=enough, executable=program.executable())
    if info.state == "interrupted" and not done and time.monotonic() - started < settings.patience:
        raise KeyboardInterrupt  # `record` heeds signals by itself, and passes them on
    run = load(out)
    return out if len(run.steps) and not (run.step and run.step.is_whole_run) else None
