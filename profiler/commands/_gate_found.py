"""What the processes of a side left: their runs, and what they counted."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.commands._gate_settings import GateSettings
from profiler.gate.counted import counted
from profiler.gate.model import Counted
from profiler.record.pairs import STEPS_FILES
from profiler.record.turns.counting import STEPS, count
from profiler.record.turns.resident import Program, spans_of
from profiler.record.turns.rounds import WARMUP
from profiler.run.load import load
from profiler.run.model import WHOLE_RUN, Run, RunSpec

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


def count_steps(program: Program, settings: GateSettings, processes: int, first: int = 1) -> Found:
    """Count so many fresh processes; `first` is the number of the first one."""
    names = [f"counted-{program.side}-{number}" for number in range(first, first + processes)]
    paths = count(
        program,
        settings.out,
        names,
        steps=settings.steps or STEPS,
        warmup=WARMUP if settings.warmup is None else settings.warmup,
        patience=settings.patience,
        announce=lambda name: print(f"counting: {name}", file=sys.stderr),
    )
    return found_in(paths, str(program.cwd))


def found_in(paths: Sequence[Path], folder: str = "") -> Found:
    """Recorded runs, read.

    :param folder: that their programs were started in, where they do not say.
    """
    runs = tuple(load(path) for path in paths)
    return Found(
        tuple(paths),
        runs,
        tuple(counted(run, spans_of(path), folder=folder) for run, path in zip(runs, paths, strict=True)),
    )


def explained(program: Program, settings: GateSettings) -> Path | None:
    """A run of some seconds, by itself, at level standard: where its time goes. None: it recorded nothing."""
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
        inside=program.inside,
        cwd=program.cwd,
        env=program.env,
    )
    began = 0.0

    def enough() -> bool:
        nonlocal began
        if not began and any(any(out.glob(steps)) for steps in STEPS_FILES):
            began = time.monotonic()
        return bool(began) and time.monotonic() - began > EXPLAIN_S

    record(spec, enough=enough, executable=program.executable())
    run = load(out)
    return out if len(run.steps) and not run.step_source.startswith(WHOLE_RUN) else None
