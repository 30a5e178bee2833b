"""`compare`: compares two commands, recorded runs, or the bundled trainer without and with its fixes."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler.commands._common import RUNS, add_card, add_counting, add_max_size, add_minutes, add_privacy, privacy
from profiler.core.errors import Exit, ProfilerError
from profiler.core.facts import with_python
from profiler.core.machine import virtual_devices
from profiler.core.masking import masked_command
from profiler.core.terminal import called_as

if TYPE_CHECKING:
    from profiler.check.model import Round
    from profiler.record.schedule import Experiment, RecordedRuns, SideCommand, Trainer, TrainerOption

PAIR: Final = 5
LADDER: Final = 4
"""Default number of rounds. A ladder has many programs (about 40 for the bundled trainer): about 7 minutes."""


class Compare:
    """Record interleaved pairs of runs. Ratios come from light recordings, causes from a separate detailed run."""

    name = "compare"
    help = "run some steps of two programs in turn and compare them (default: a bundled trainer and its fixes)"
    examples = (
        'compare --before "python train.py" --after "python train.py --workers 2"',
        "compare reports/runs/before reports/runs/after",
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        from profiler.record.schedule import trainers

        known = trainers()
        named = "; ".join(f"{trainer.name}: {trainer.description}" for trainer in known.values())
        default = f" (default: {next(iter(known))})" if known else ""
        add = parser.add_argument
        add("runs", nargs="*", type=Path, metavar="RUN", help="two or more recorded runs; the first is the baseline")
        add("--before", metavar="CMD", help="command of the baseline (in quotes)")
        add("--after", metavar="CMD", help="command to compare with the baseline")
        add("--trainer", choices=tuple(known), help=f"{named}{default}")
        add("--ladder", action="store_true", help="also measure each fix of a bundled trainer")
        rounds = f"run whole programs N times (default of the bundled trainers: {PAIR}, with --ladder {LADDER})"
        add("--pairs", type=int, metavar="N", help=rounds)
        add_minutes(parser, "the longest time of a comparison of two commands")
        add("--anyway", action="store_true", help="compare runs that are not comparable, and mark the report")
        add("--out", type=Path, help=f"directory of the runs and the report (default: {RUNS}/TIME-compare)")
        add_counting(parser)
        add_card(parser)
        add_privacy(parser)
        add_max_size(parser)
        group = parser.add_argument_group("the bundled trainers").add_argument
        for name, options in _options_by_name(known).items():
            (first, *_) = options.values()
            kind: dict[str, Any] = {"nargs": "+"} if first.multiple else {"type": first.type}
            group(f"--{name}", **kind, help=_option_help(options))

    def run(self, args: argparse.Namespace) -> int:
        from profiler.record.schedule import trainers
        from profiler.run.store import folder_of_runs

        known = trainers()
        given = _given(args, known)
        devices = virtual_devices(args.virtual_cuda, args.card)
        is_counted = bool(devices or args.count)
        if is_counted:
            _check_counting(args)
        _check(args, given)
        out = _output_directory(args)
        with folder_of_runs(out, shared=args.shared):
            if is_counted:
                return _compare_counts(args, known, given, out, devices)
            return _compare(args, known, given, out)


def _compare(args: argparse.Namespace, known: Mapping[str, Trainer], given: Mapping[str, str], out: Path) -> int:
    """Compare recorded runs, or record both sides first, and return the exit code."""
    from profiler.commands._comparing import compare_recorded, compare_runs, record_commands, refuse_early
    from profiler.record.schedule import record_with_progress
    from profiler.record.target import signals_as_interrupt

    if args.runs:
        return compare_runs(args.runs, out=out, anyway=args.anyway)
    experiment = _commands(args) if args.before is not None else _trainer_experiment(args, known, given)
    check = None if args.anyway else partial(refuse_early, experiment, out=out)
    rounds: Sequence[Round] = ()
    with signals_as_interrupt():
        if args.before is not None and args.pairs is None:
            recorded, rounds = record_commands(experiment, out, 60 * args.minutes, check, privacy(args))
        else:
            recorded = record_with_progress(experiment.tasks, out, check, privacy(args))
    if recorded.interrupted and not recorded.pairs:
        raise _too_early(experiment, recorded, out)
    code = compare_recorded(experiment, recorded, rounds, out=out, anyway=args.anyway)
    return int(Exit.INTERRUPTED) if recorded.interrupted else code


def _compare_counts(
    args: argparse.Namespace, known: Mapping[str, Trainer], given: Mapping[str, str], out: Path, devices: str
) -> int:
    """Count each side once: counts of the same program do not vary."""
    from profiler.commands._comparing import compare_counted
    from profiler.record.target import signals_as_interrupt

    environment: Mapping[str, str] = {}
    if args.before is not None:
        sides: Sequence[SideCommand] = (_command("before", args.before), _command("after", args.after))
    else:
        sides, environment = _trainer(args, known).counted_pair(given)
    with signals_as_interrupt():
        return compare_counted(sides, out, virtual_cuda=devices, env=environment, privacy=privacy(args))


def _options_by_name(known: Mapping[str, Trainer]) -> dict[str, dict[str, TrainerOption]]:
    """Return the options of all trainers: option name -> trainer name -> option."""
    options: dict[str, dict[str, TrainerOption]] = {}
    for trainer in known.values():
        for name, option in trainer.options.items():
            options.setdefault(name, {})[trainer.name] = option
    return options


def _option_help(options: Mapping[str, TrainerOption]) -> str:
    """Describe an option for each trainer that understands it, with its defaults."""
    parts = []
    for trainer, option in options.items():
        default = f", default: {option.default}" if option.default else ""
        if option.ladder_default != option.default:
            default += f", with --ladder {option.ladder_default}"
        parts.append(f"{option.help} ({trainer}{default})")
    return "; ".join(parts)


def _given(args: argparse.Namespace, known: Mapping[str, Trainer]) -> dict[str, str]:
    """Return the trainer options of the command line: name -> value."""
    values = {name: getattr(args, name.replace("-", "_")) for name in _options_by_name(known)}
    return {
        name: ",".join(value) if isinstance(value, list) else str(value)
        for name, value in values.items()
        if value is not None
    }


def _check_counting(args: argparse.Namespace) -> None:
    """Refuse options without effect on counts."""
    option = "--virtual-cuda" if args.virtual_cuda else "--count"
    if args.runs:
        raise ProfilerError(f"leave {option} out: counted runs are compared without it")
    unused = {"--ladder": args.ladder, "--pairs": args.pairs is not None, "--anyway": args.anyway}
    if names := [name for name, is_given in unused.items() if is_given]:
        raise ProfilerError(f"leave {' and '.join(names)} out: {option} starts each program once")
    if not args.virtual_cuda and args.before is None and args.after is None:
        raise ProfilerError("--count: use --virtual-cuda to count the bundled trainers")


def _check(args: argparse.Namespace, given: Mapping[str, str]) -> None:
    commands = [text for text in (args.before, args.after) if text is not None]
    if args.runs and commands:
        raise ProfilerError("give either recorded runs or --before and --after, not both")
    if len(args.runs) == 1:
        raise ProfilerError("one run cannot be compared: give two or more, or none for the bundled trainer")
    if len({path.resolve() for path in args.runs}) < len(args.runs):
        raise ProfilerError("a run is given twice: compare it with another one")
    if len(commands) == 1:
        raise ProfilerError("--before and --after go together")
    if args.pairs is not None and args.pairs < 1:
        raise ProfilerError(f"--pairs {args.pairs}: must be at least 1")
    options = [f"--{option}" for option in ("trainer", "ladder") if getattr(args, option)]
    options += [f"--{option}" for option in given]
    if options and (args.runs or commands):
        raise ProfilerError(f"{', '.join(options)}: only for the bundled trainers")


def _trainer_experiment(args: argparse.Namespace, known: Mapping[str, Trainer], given: Mapping[str, str]) -> Experiment:
    trainer = _trainer(args, known)
    return (trainer.ladder if args.ladder else trainer.pair)(given, _pairs(args))


def _trainer(args: argparse.Namespace, known: Mapping[str, Trainer]) -> Trainer:
    if not known:
        raise ProfilerError("the bundled trainer is not installed: give two runs, or --before CMD --after CMD")
    return known[args.trainer or next(iter(known))]


def _commands(args: argparse.Namespace) -> Experiment:
    from profiler.record.schedule import Experiment, schedule

    sides = (_command("before", args.before), _command("after", args.after))
    return Experiment(sides, list(schedule(sides, _pairs(args))))


def _pairs(args: argparse.Namespace) -> int:
    return args.pairs or (LADDER if args.ladder else PAIR)


def _command(label: str, text: str) -> SideCommand:
    """Return the side of a command. Raise before anything is recorded if its program does not exist."""
    from profiler.record.schedule import SideCommand
    from profiler.record.target import find_program

    try:
        argv = with_python(shlex.split(text))
        if not argv:
            raise ProfilerError("the command is empty")
        find_program(argv)
    except (ValueError, ProfilerError) as error:
        raise ProfilerError(f"--{label} {masked_command(text)!r}: {error}") from None
    return SideCommand(label, argv)


def _too_early(experiment: Experiment, recorded: RecordedRuns, out: Path) -> ProfilerError:
    """Return the error of an interrupted comparison, with the finished runs and a command that compares two of them."""
    light = [path for program in experiment.programs for path in recorded.light.get(program.label, ())]
    text = f"interrupted before a {experiment.round_name} was complete; "
    if len(light) < 2:
        return ProfilerError(f"{text}the runs so far are kept in {out}", Exit.INTERRUPTED)
    command = f"{called_as()} compare {shlex.join(map(str, light[:2]))}"
    count = len(light) + sum(map(len, recorded.again.values()))
    return ProfilerError(f"{text}{count} runs are kept in {out}, compare two of them: {command}", Exit.INTERRUPTED)


def _output_directory(args: argparse.Namespace) -> Path:
    """Return the directory of runs and report. Only the first run creates it, so a refusal leaves no folder."""
    from profiler.run.store import check_directory, default_directory

    out: Path = args.out or default_directory(("compare",), RUNS)
    check_directory(out)
    return out


PLUGIN = Compare()
