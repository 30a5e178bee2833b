"""The bundled trainers as `compare` runs them: as found and fixed, a floor, and every set of fixes of a ladder."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from profiler.core.errors import Exit, ProfilerError
from profiler.record.schedule import Experiment, TrainerOption
from reference_trainer.errors import missing_packages

if TYPE_CHECKING:
    from profiler.analyse.model.comparison import Extension
    from profiler.record.schedule import RecordedRuns, SideCommand
    from reference_trainer.report.ladder_plan import Program

FLOOR_LABEL: Final = "the same calls with empty kernels"
_ERROR: Final = "error: "
"""How the line of an error begins that a trainer prints."""


@dataclass(frozen=True, slots=True)
class BundledTrainer:
    """How a trainer is started, and which options of `compare` it understands."""

    name: str
    description: str
    module: str
    options: Mapping[str, TrainerOption]
    """Those with a default say how much a measured run does; all others go to warm-ups and the list of fixes too."""
    warmup: tuple[str, ...]
    """Arguments that make a run as short as it can be while it still compiles everything."""
    floor: tuple[str, ...] = ()
    """Arguments with which the calls are made and nothing is computed; empty: it has no such runs."""
    counted: tuple[str, ...] = ()
    """Arguments with which a few steps are counted on a virtual CUDA device; empty: they cannot be."""
    why_not_counted: str = ""
    is_default: bool = False
    marks_everything: bool = True

    def pair(self, values: Mapping[str, str], rounds: int) -> Experiment:
        """As found and fixed, and the floor where the trainer has one.

        :raises ProfilerError: the trainer is not installed beside the profiler, or an option means nothing to it.
        """
        from profiler.record.schedule import schedule

        values = self._checked(values)
        size = self._size(values, ladder=False)
        sides = self._variants(values, size)
        return Experiment(sides, list(schedule(sides, rounds, self._floor(values, size))))

    def counted_pair(self, values: Mapping[str, str]) -> tuple[tuple[SideCommand, SideCommand], Mapping[str, str]]:
        """As found and fixed, with a few steps on a virtual CUDA device; kernels are those of Numba's simulator.

        :raises ProfilerError: as of `pair`, or an option says how much is measured, or on which device, or the trainer
            cannot be counted.
        """
        values = self._checked(values)
        if not self.counted:
            raise ProfilerError(f"{self.description} cannot be counted with --virtual-cuda: {self.why_not_counted}")
        refused = [name for name in values if name == "device" or self.options[name].default]
        if refused:
            raise ProfilerError(f"--{refused[0]} has no effect with --virtual-cuda: leave it out")
        return self._variants(values, self.counted), {"NUMBA_ENABLE_CUDASIM": "1"}

    def ladder(self, values: Mapping[str, str], rounds: int) -> Experiment:
        """The programs that the rows of the ladder need, as found and fixed first, and the floor.

        :raises ProfilerError: as of `pair`, or the trainer does not list its fixes.
        """
        from profiler.record.schedule import shuffled_schedule
        from reference_trainer.report.ladder import NAME, measure_ladder
        from reference_trainer.report.ladder_plan import plan_ladder, read_fixes

        values = self._checked(values)
        plan = plan_ladder(read_fixes(_printed_by((*self._start(values), "--list-fixes"))))
        size = self._size(values, ladder=True)
        sides = self._variants(values, size)
        others = (
            self._side(program.label, values, program.arguments, size, program)
            for program in plan.programs[len(sides) :]
        )
        programs = (*sides, *others)
        # findings about the program before a fix predict its gain
        before = {row.program for row in plan.rows if row.kind in ("cumulative", "without")}
        tasks = shuffled_schedule(
            programs,
            rounds,
            self._floor(values, size),
            warmed=[program.label for program in plan.programs if program.warm],
            detailed={side.label for side in sides} | before,
            twice=sides[1].label,  # all gains of fixes that were left out share its runs
        )

        def extensions(runs: Mapping[str, Any], recorded: RecordedRuns, anyway: bool) -> Mapping[str, Extension]:
            failed = recorded.unavailable  # programs that are no step of the ladder
            rows = [row for row in plan.rows if row.program not in failed]
            others = ((row.fix or row.label, failed[row.program]) for row in plan.rows if row.program in failed)
            interrupted = recorded.pairs < recorded.planned
            missing = (*plan.unavailable, *others)
            return {NAME: measure_ladder(rows, runs, unavailable=missing, interrupted=interrupted, anyway=anyway)}

        return Experiment(programs, list(tasks), len(sides), "round", extensions)

    def _checked(self, values: Mapping[str, str]) -> Mapping[str, str]:
        for name in values:
            if name not in self.options:
                understood = ", ".join(f"--{option}" for option in self.options)
                raise ProfilerError(
                    f"--{name} means nothing to {self.description} (--trainer {self.name}): leave it out, "
                    f"or choose from {understood}"
                )
        if missing := missing_packages():
            raise ProfilerError(missing)
        return values

    def _start(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """The command that every run of it begins with."""
        always = {name: value for name, value in values.items() if not self.options[name].default}
        return (sys.executable, "-m", self.module, *_arguments(always))

    def _size(self, values: Mapping[str, str], *, ladder: bool) -> tuple[str, ...]:
        """Arguments that say how much a measured run does."""
        defaults = {
            name: option.ladder_default if ladder else option.default
            for name, option in self.options.items()
            if option.default
        }
        return _arguments({name: values.get(name, default) for name, default in defaults.items()})

    def _variants(self, values: Mapping[str, str], size: Sequence[str]) -> tuple[SideCommand, SideCommand]:
        from reference_trainer.report.ladder_plan import BASELINE, FIXED

        return (
            self._side(BASELINE, values, ("--variant", "as-found"), size),
            self._side(FIXED, values, ("--variant", "fixed"), size),
        )

    def _floor(self, values: Mapping[str, str], size: Sequence[str]) -> SideCommand | None:
        if not self.floor:
            return None
        return self._side(FLOOR_LABEL, values, ("--variant", "as-found", *self.floor), size)

    def _side(
        self,
        label: str,
        values: Mapping[str, str],
        variant: Sequence[str],
        size: Sequence[str],
        program: Program | None = None,
    ) -> SideCommand:
        from profiler.record.schedule import SideCommand

        argv = (*self._start(values), *variant)
        return SideCommand(
            label,
            (*argv, *size),
            (*argv, *self.warmup),
            program.folder if program else "",
            ours=True,
            hooked=not self.marks_everything,
            optional=program is not None and program.optional,
        )


def _arguments(options: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(argument for name, value in options.items() for argument in (f"--{name}", value))


def _printed_by(argv: Sequence[str]) -> str:
    """The output of a trainer that lists its fixes."""
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise failure("the bundled trainer, asked for the list of its fixes,", done.returncode, done.stderr)
    return done.stdout


def failure(program: str, code: int, err: str) -> ProfilerError:
    """The error for a program of the trainer that exited with `code`: its own message where it printed one."""
    lines = [line.strip() for line in err.splitlines() if line.strip()] or ["it printed nothing"]
    last = "".join(char for char in lines[-1] if char.isprintable())  # it must not command the terminal
    if code == Exit.USAGE and last.startswith(_ERROR):
        return ProfilerError(last.removeprefix(_ERROR))
    how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
    return ProfilerError(f"{program} {how}: {last}", Exit.TARGET_FAILED)


def seconds(text: str) -> str:
    """A duration of the command line, as the trainer gets it."""
    if not 0 < (value := float(text)) < math.inf:
        raise ProfilerError(f"--seconds {value}: must be above 0")
    return str(value)


# empty kernels: the simulator takes seconds for a token, and what is counted does not depend on results
_COUNTED: Final = (
    "--device", "cuda", "--max-chunks", "6", "--tokens-per-chunk", "300", "--warmup-seconds", "0", "--empty-kernels",
)  # fmt: skip
LM: Final = BundledTrainer(
    name="lm",
    description="the language model",
    module="reference_trainer.lm",
    options={
        "preset": TrainerOption("size of the model: tiny, small, gpu or base"),
        "corpus": TrainerOption("text to train on"),
        "seconds": TrainerOption("measured time of a run", "3.0", "1.0", type=seconds),
        "device": TrainerOption("auto, cuda, or the CPU: host"),
    },
    warmup=("--max-chunks", "1", "--warmup-seconds", "0"),
    floor=("--empty-kernels",),
    counted=_COUNTED,
    is_default=True,
)
# 60 jobs, and 24 in a ladder: as found each takes about 0.3 s on a slow core, beside the 4 to 10 s of the start. They
# are six steps: a run of fewer than five is flagged as too short.
SSM: Final = BundledTrainer(
    name="ssm",
    description="the sweep of teacher-student experiments",
    module="reference_trainer.ssm",
    options={
        "device": TrainerOption("auto, cuda or cpu"),
        "num-seeds": TrainerOption("seeds of each combination", "10", "4"),
        "teacher-ranks": TrainerOption("ranks of the teachers", "1", "1", multiple=True),
        "student-dims": TrainerOption("dimensions of the students", "8,16,32", "8,16,32", multiple=True),
        "sequence-length": TrainerOption("length of the measured sequences", "24", "24"),
    },
    warmup=("--num-seeds", "1", "--teacher-ranks", "1", "--student-dims", "8", "--epochs", "2", "--max-guesses", "64"),
    # as found two jobs took about 10 s; fixed, the simulator had finished none after 70 s
    why_not_counted="fixed, it chooses its forward pass by times, and Numba's simulator takes minutes for its kernels",
    marks_everything=False,
)
