"""`compare`: the bundled trainer as found against fixed, two commands, or recorded runs; a verdict and a report."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler.core.errors import Exit, ProfilerError
from profiler.record.trainers import LM, TRAINERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profiler.record.bundled import Asked
    from profiler.record.ladder import LadderPlan
    from profiler.record.pairs import Recorded, SideCommand, Task

RUNS = Path("reports") / "runs"
PAIR: Final = 5
LADDER: Final = 4
"""Rounds by default. A ladder of the language model has some 40 programs, and its runs are shorter: some 7 minutes."""
_OPTIONS: Final = {
    "preset": "size of the model: tiny, small or base",
    "corpus": "text",
    "seconds": "measured time of a run",
    "device": "auto, cuda, or the CPU: host (lm) or cpu (ssm)",
    "num-seeds": "seeds of each combination",
    "teacher-ranks": "ranks of the teachers",
    "student-dims": "dimensions of the students",
    "sequence-length": "of the measured sequences",
}
_LISTS: Final = ("teacher-ranks", "student-dims")
"""Options of the bundled trainers and what they say; those with several values. Which trainer understands which:
`profiler.record.trainers`."""


class Compare:
    """Runs are interleaved in pairs; ratios come from light recordings, causes from a separate detailed pass."""

    name = "compare"
    help = "record two programs side by side (by default a bundled trainer, as found and fixed) and say what differs"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("runs", nargs="*", type=Path, metavar="RUN", help="two or more recorded runs; the first is the baseline")
        add("--before", metavar="CMD", help="command of the baseline, in quotes; steps are found as by `run`")
        add("--after", metavar="CMD", help="command to compare with it")
        add("--trainer", choices=tuple(TRAINERS), help=f"which bundled trainer ({_trainers()})")
        add("--ladder", action="store_true", help="measure every fix of a bundled trainer too, alone and left out")
        add("--pairs", type=int, help=f"rounds in which every side runs once (default: {PAIR}, with --ladder {LADDER})")
        add("--anyway", action="store_true", help="compare what is not comparable; the report is marked")
        add("--out", type=Path, help=f"directory of the runs and the report (default: {RUNS}/TIME-compare)")
        bundled = parser.add_argument_group("the bundled trainers").add_argument
        for name, text in _OPTIONS.items():
            kind: dict[str, Any] = {"nargs": "+"} if name in _LISTS else {"type": float if name == "seconds" else str}
            bundled(f"--{name}", **kind, help=f"{text} ({_whose(name)})")

    def run(self, args: argparse.Namespace) -> int:
        if args.pairs is None:
            args.pairs = LADDER if args.ladder else PAIR
        _check(args)
        from profiler.commands._comparing import compare_recorded, compare_runs
        from profiler.commands._recording import record_with_progress

        out = _out(args)
        if args.runs:
            return compare_runs(args.runs, out=out, anyway=args.anyway)
        programs, tasks, ladder = _ladder(args) if args.ladder else _pair(args)
        recorded = record_with_progress(tasks, out)
        if recorded.interrupted and not recorded.pairs:
            raise _too_early(programs, recorded, out, "round" if args.ladder else "pair")
        code = compare_recorded(programs, recorded, out=out, anyway=args.anyway, ladder=ladder)
        return int(Exit.INTERRUPTED) if recorded.interrupted else code


def _trainers() -> str:
    return ", ".join(f"{trainer.name}: {trainer.what}" for trainer in TRAINERS.values()) + f"; default: {LM.name}"


def _whose(option: str) -> str:
    """The trainers that understand an option, with what it is where nobody gives it."""
    said = []
    for trainer in TRAINERS.values():
        if option in trainer.options:
            said.append(trainer.name)
        elif option in trainer.pair:
            pair, ladder = trainer.pair[option], trainer.ladder[option]
            said.append(f"{trainer.name}, default: {pair}" + f", with --ladder {ladder}" * (ladder != pair))
    return "; ".join(said)


def _too_early(programs: Sequence[SideCommand], recorded: Recorded, out: Path, whole: str) -> ProfilerError:
    """What an interruption left, and how two of the runs are compared all the same."""
    ran = [path for program in programs for path in recorded.light.get(program.label, ())]
    said = f"interrupted before a {whole} was complete; "
    if len(ran) < 2:
        return ProfilerError(f"{said}what ran is kept in {out}", Exit.INTERRUPTED)
    command = shlex.join(("python", "-m", "profiler", "compare", *map(str, ran[:2])))
    kept = len(ran) + sum(map(len, recorded.again.values()))
    return ProfilerError(f"{said}{kept} runs are kept in {out}, compare two of them: {command}", Exit.INTERRUPTED)


def _check(args: argparse.Namespace) -> None:
    commands = [text for text in (args.before, args.after) if text is not None]
    if args.runs and commands:
        raise ProfilerError("give either recorded runs or --before and --after, not both")
    if len(args.runs) == 1:
        raise ProfilerError("one run cannot be compared: give two or more, or none for the bundled pair")
    if len({path.resolve() for path in args.runs}) < len(args.runs):
        raise ProfilerError("a run is given twice: beside itself it says nothing")
    if len(commands) == 1:
        raise ProfilerError("--before and --after go together")
    if args.pairs < 1:
        raise ProfilerError(f"--pairs {args.pairs}: must be at least 1")
    if args.seconds is not None and not 0 < args.seconds < float("inf"):
        raise ProfilerError(f"--seconds {args.seconds}: must be above 0")
    given = [f"--{option}" for option in ("trainer", "ladder") if getattr(args, option)]
    given += [f"--{option}" for option in _given(args)]
    if given and (args.runs or commands):
        raise ProfilerError(f"{', '.join(given)}: only for the bundled trainers")


def _given(args: argparse.Namespace) -> dict[str, str]:
    """Options of the bundled trainers that the command line names."""
    named = ((name, getattr(args, name.replace("-", "_"))) for name in _OPTIONS)
    return {
        name: ",".join(value) if isinstance(value, list) else str(value) for name, value in named if value is not None
    }


def _pair(args: argparse.Namespace) -> tuple[Sequence[SideCommand], Sequence[Task], None]:
    from profiler.record.bundled import bundled_pair
    from profiler.record.pairs import schedule

    if args.before is not None:
        sides = (_command("before", args.before), _command("after", args.after))
        return sides, list(schedule(sides, args.pairs)), None
    bundled, floor = bundled_pair(_asked(args))
    return bundled, list(schedule(bundled, args.pairs, floor)), None


def _ladder(args: argparse.Namespace) -> tuple[Sequence[SideCommand], Sequence[Task], LadderPlan]:
    from profiler.record.bundled import bundled_ladder
    from profiler.record.pairs import shuffled_schedule

    plan, programs, floor = bundled_ladder(_asked(args))
    warmed = [program.label for program in plan.programs if program.warm]
    first = next(row.program for row in plan.rows if row.kind == "cumulative")
    detailed = {program.label for program in programs[:2]} | {first}
    twice = programs[1].label  # all gains of fixes that were left out share its runs
    tasks = shuffled_schedule(programs, args.pairs, floor, warmed=warmed, detailed=detailed, twice=twice)
    return programs, list(tasks), plan


def _asked(args: argparse.Namespace) -> Asked:
    """What the command line says to a bundled trainer."""
    from profiler.record.bundled import Asked

    return Asked(TRAINERS[args.trainer or LM.name], _given(args))


def _command(label: str, text: str) -> SideCommand:
    """A side given as one text; that its program is there is checked before anything is recorded."""
    from profiler.record.pairs import SideCommand
    from profiler.record.target import find_program

    try:
        argv = tuple(shlex.split(text))
        if not argv:
            raise ProfilerError("there is no command in it")
        find_program(argv)
    except (ValueError, ProfilerError) as error:
        raise ProfilerError(f"--{label} {text!r}: {error}") from None
    return SideCommand(label, argv)


def _out(args: argparse.Namespace) -> Path:
    """Where runs and report go; it is made with the first of them, so that a refusal leaves nothing."""
    from profiler.core.directories import refusal
    from profiler.run.store import default_directory
    from profiler.run.tables import MANIFEST

    out: Path = args.out or default_directory(("compare",), RUNS)
    if why := refusal(out, MANIFEST):
        raise ProfilerError(why)
    return out


PLUGIN = Compare()
