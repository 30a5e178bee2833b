"""The bundled trainers as programs to start: as found and fixed, a floor, and every set of fixes of a ladder."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from profiler.core.errors import Exit, ProfilerError
from profiler.record.fixlist import read_fixes
from profiler.record.ladder import BASELINE, FIXED, LadderPlan, Program, plan_ladder
from profiler.record.pairs import SideCommand
from profiler.record.trainers import Trainer

_ERROR = "error: "
"""What a trainer begins the line of an error with."""
FLOOR_LABEL = "the same calls with empty kernels"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a comparison asks of one of them.

    :raises ProfilerError: an option means nothing to it.
    """

    trainer: Trainer
    given: Mapping[str, str] = field(default_factory=dict)
    """Option without dashes -> value."""

    def __post_init__(self) -> None:
        for option in self.given:
            if option not in self.trainer.understands:
                known = ", ".join(f"--{name}" for name in self.trainer.understands)
                raise ProfilerError(
                    f"--{option} means nothing to {self.trainer.what} (--trainer {self.trainer.name}): leave it out, "
                    f"or choose from {known}"
                )

    @property
    def start(self) -> tuple[str, ...]:
        """What every run of it begins with.

        :raises ProfilerError: it is not installed beside the profiler.
        """
        if importlib.util.find_spec(self.trainer.module.partition(".")[0]) is None:
            raise ProfilerError("the bundled trainer is not installed: give two runs, or --before CMD --after CMD")
        given = {name: value for name, value in self.given.items() if name in self.trainer.options}
        return (sys.executable, "-m", self.trainer.module, *_words(given))

    def size(self, default: Mapping[str, str]) -> tuple[str, ...]:
        """What tells a measured run how much to do."""
        given = {name: value for name, value in self.given.items() if name in self.trainer.pair}
        return _words({**default, **given})

    def side(
        self, label: str, more: Sequence[str], size: Sequence[str], folder: str = "", *, optional: bool = False
    ) -> SideCommand:
        """A program of it.

        :param more: the words by which it differs from the others.
        """
        argv, trainer = (*self.start, *more), self.trainer
        return SideCommand(
            label,
            (*argv, *size),
            (*argv, *trainer.warmup),
            folder,
            ours=True,
            hooked=trainer.hooked,
            optional=optional,
        )


def bundled_pair(asked: Asked) -> tuple[tuple[SideCommand, SideCommand], SideCommand | None]:
    """(as found, fixed) and the floor, where the trainer has one.

    :raises ProfilerError: the trainer is not installed beside the profiler.
    """
    return _pair(asked, asked.size(asked.trainer.pair))


def bundled_ladder(asked: Asked) -> tuple[LadderPlan, tuple[SideCommand, ...], SideCommand | None]:
    """The rows of the ladder, the programs that they need (as found and fixed first) and the floor.

    :raises ProfilerError: the trainer is not installed, or does not list its fixes.
    """
    plan = plan_ladder(read_fixes(_listed((*asked.start, "--list-fixes"))))
    size = asked.size(asked.trainer.ladder)
    pair, floor = _pair(asked, size)
    others = (
        asked.side(program.label, _chosen(program), size, program.folder, optional=program.optional)
        for program in plan.programs
        if program.label not in (BASELINE, FIXED)
    )
    return plan, (*pair, *others), floor


def _pair(asked: Asked, size: Sequence[str]) -> tuple[tuple[SideCommand, SideCommand], SideCommand | None]:
    found = asked.side(BASELINE, ("--variant", "as-found"), size)
    fixed = asked.side(FIXED, ("--variant", "fixed"), size)
    least = asked.trainer.floor
    return (found, fixed), asked.side(FLOOR_LABEL, ("--variant", "as-found", *least), size) if least else None


def _chosen(program: Program) -> tuple[str, ...]:
    size = () if program.tokens_per_chunk is None else ("--tokens-per-chunk", str(program.tokens_per_chunk))
    return ("--fixes", ",".join(program.fixes), *size)


def _words(options: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for name, value in options.items() for word in (f"--{name}", value))


def _listed(argv: Sequence[str]) -> str:
    """What a trainer prints as the list of its fixes."""
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return done.stdout
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["it printed nothing"]
    last = "".join(char for char in said[-1] if char.isprintable())
    if done.returncode == Exit.USAGE and last.startswith(_ERROR):
        raise ProfilerError(last.removeprefix(_ERROR))
    raise ProfilerError(
        f"the bundled trainer does not list its fixes, it exited with {done.returncode}: {last}", Exit.TARGET_FAILED
    )
