"""`python -m reference_trainer.ssm`: the sweep of teacher-student experiments, as found or fixed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, add_options, from_options
from reference_trainer.program import Parser, asked_fixes, check_output, flag, guarded, path_of, write_output
from reference_trainer.ssm.settings import OPTIMIZERS, UNUSED, Settings

if TYPE_CHECKING:
    from reference_trainer.ssm.statistics import Statistics

_PATHS: Final = ("results", "log")
_OF_ENGINE: Final = ("engine", "address", "workers")
"""Settings that apply only if an engine can be chosen."""
_NUMBERS: Final = {
    "num_seeds": "seeds of every combination",
    "first_seed": "the first seed",
    "sequence_length": "length of sequences and impulse responses",
    "measurements": "sequences that a student is fitted to",
    "lr": "learning rate",
    "init_scale": "scale of the initial parameters of gradient descent, relative to a guess",
    "epochs": "maximum number of updates",
    "gd_loss": "gradient descent stops below this training loss",
    "gnc_loss": "a guess below this training loss is taken",
    "max_guesses": "maximum number of guesses",
    "report_every": "updates or guesses between two reports",
}
"""Settings that are numbers."""
_MAX_PRINTED_FAILURES: Final = 10
"""At most this many failures are printed; the summary file contains all."""


def _parser() -> Parser:
    defaults = Settings()
    parser = Parser(prog="python -m reference_trainer.ssm", description=__doc__)
    add, switch = parser.add_argument, argparse.BooleanOptionalAction
    add("--variant", help=f"as-found or fixed (default: {defaults.variant})")
    add("--fixes", help="names of fixes, separated by commas, instead of --variant; an empty text means none")
    add("--device", default=defaults.device, help="auto, cpu, cuda or cuda:N (default: %(default)s: CUDA if available)")
    add("--results", metavar="FILE", help="append outcomes to this file as JSON lines; jobs in it are skipped")
    add("--log", metavar="FILE", help="write the reports of all fits to this file (default: reports are not stored)")
    add("--list-fixes", action="store_true", help="print all fixes as JSON, and exit")
    add("--test-optimizations", action="store_true", help="measure the parts of the work with and without the fixes")
    add("--result", metavar="FILE", help="write the summary as JSON to this file (for outcomes see --results)")

    add = parser.add_argument_group("experiments").add_argument
    methods = "(default: both methods; {} alone selects only this one)"
    add("--gd", action=switch, default=None, help=f"fit by gradient descent {methods.format('--gd')}")
    add("--gnc", action=switch, default=None, help=f"fit by guess and check {methods.format('--gnc')}")
    add("--optimizer", default=defaults.optimizer, help=f"{' or '.join(OPTIMIZERS)} (default: %(default)s)")
    for name, what in (("teacher_ranks", "ranks of teachers"), ("student_dims", "dimensions of students")):
        values = getattr(defaults, name)
        shown = f"{what}, separated by spaces or commas (default: {' '.join(map(str, values))})"
        add(flag(name), nargs="+", default=values, metavar="N", help=shown)
    for name, what in _NUMBERS.items():
        value = getattr(defaults, name)
        add(flag(name), type=type(value), default=value, metavar="N", help=f"{what} (default: %(default)s)")
    drawn = "guesses that are drawn together, with the fix batched-draws (default: more while guesses get cheaper)"
    add("--batch-size", type=int, metavar="N", help=drawn)

    add = parser.add_argument_group("engine, with the fix flat-sweep").add_argument
    add("--engine", help=f"inline, pool or ray (default: {defaults.engine})")
    add("--address", metavar="HOST:PORT", help="address of a Ray cluster, or auto (default: start one on this machine)")
    add("--workers", type=int, metavar="N", help="processes or actors (default: as many as cores and memory allow)")
    add_options(parser, UNUSED)
    return parser


def _settings(arguments: argparse.Namespace) -> Settings:
    from reference_trainer.ssm.sweep import chosen

    fields = Settings.__dataclass_fields__.keys() - {*_PATHS, *_OF_ENGINE, "variant", "fixes"}
    values: dict[str, Any] = {name: value for name, value in vars(arguments).items() if name in fields}
    values.update(asked_fixes(arguments))
    gd, gnc = arguments.gd, arguments.gnc
    values["gd"], values["gnc"] = (not gnc if gd is None else gd), (not gd if gnc is None else gnc)
    for name in ("teacher_ranks", "student_dims"):
        values[name] = _numbers(name, getattr(arguments, name))
    of_engine = {name: value for name in _OF_ENGINE if (value := getattr(arguments, name)) is not None}
    values.update((name, path_of(arguments, name)) for name in _PATHS)
    settings = Settings(**values, **of_engine)
    _, plan = chosen(settings)
    unused = [flag(name) for name, value in of_engine.items() if (name, value) != ("engine", "inline")]
    if unused and not plan.flat:
        raise TrainerError(
            f"{unused[0]} has no effect without the fix 'flat-sweep', because jobs then run one after another: "
            f"add it to --fixes, or leave {unused[0]} out"
        )
    return settings


def _keep_results(settings: Settings, result: Path | None) -> None:
    """Refuse to overwrite outcomes: `--result` and `--results` differ by one letter."""
    from reference_trainer.ssm.result_file import is_result_file

    for option, path in (("--result", result), ("--log", settings.log)):
        if path is None:
            continue
        if settings.results is not None and path.resolve() == settings.results.resolve():
            raise TrainerError(f"{option} {path}: that is the file of --results: name another")
        if is_result_file(path):
            raise TrainerError(f"{option} {path}: it contains the results of a sweep (--results): name another")


def _numbers(name: str, texts: tuple[int, ...] | list[str]) -> tuple[int, ...]:
    words = [part for text in texts for part in str(text).split(",") if part]
    for word in words:
        if not word.removeprefix("-").isdecimal():
            raise TrainerError(f"{flag(name)} {word!r}: must be a whole number")
    return tuple(map(int, words))


def run(arguments: argparse.Namespace) -> int:
    """Do what the command line asks for, and return the exit code."""
    if arguments.list_fixes:
        from reference_trainer.ssm.placement import kind_of
        from reference_trainer.ssm.plan import listing

        print(json.dumps(listing(kind_of(arguments.device))))
        return 0
    settings, config, result = _settings(arguments), from_options(arguments), path_of(arguments, "result")
    _keep_results(settings, result)
    if result:  # fail before the sweep rather than after it
        check_output("--result", result)
    if arguments.test_optimizations:
        for name in ("variant", "results", "log", "batch_size", *_OF_ENGINE):
            if getattr(arguments, name) is not None:
                raise TrainerError(f"{flag(name)} has no effect with --test-optimizations: leave it out")
        return _test_optimizations(settings, config, result)
    return _sweep(settings, config, result)


def _test_optimizations(settings: Settings, config: PerformanceConfig, result: Path | None) -> int:
    """Compare the as-found program with the named fixes, or with all of them."""
    from reference_trainer.performance import apply, refuse
    from reference_trainer.ssm import optimization
    from reference_trainer.ssm.placement import find_free_devices
    from reference_trainer.ssm.plan import plan, variant_fixes

    refuse(config, UNUSED)
    placement = find_free_devices(settings.device, config, 1)
    [slot] = placement.first()
    apply(config, slot.device)
    names = variant_fixes("fixed", placement.kind) if settings.fixes is None else settings.fixes
    return optimization.run(settings, plan(names, placement.kind), device=slot.device, result=result)


def _sweep(settings: Settings, config: PerformanceConfig, result: Path | None) -> int:
    from reference_trainer.ssm.sweep import sweep

    summary = sweep(settings, config, progress=lambda line: print(line, flush=True))
    _print_cells(summary)
    for line in _lines(summary):
        print(line)
    if result:
        write_output("--result", result, json.dumps(summary.as_json()) + "\n")
    for name, reason in [*summary.failures.items()][:_MAX_PRINTED_FAILURES]:
        print(f"error: {name}: {reason}", file=sys.stderr)
    if len(summary.failures) > _MAX_PRINTED_FAILURES:
        print(f"error: and {len(summary.failures) - _MAX_PRINTED_FAILURES} more", file=sys.stderr)
    return 1 if summary.failures else 0


def _lines(summary: Statistics) -> Iterator[str]:
    before = f" ({summary.kept} by an earlier sweep)" if summary.kept else ""
    rate = "" if summary.success_rate is None else f"; success rate {summary.success_rate:.1%}"
    failed = f"{len(summary.failures)} failed, {summary.retried} retried"
    yield f"{summary.done} of {summary.jobs} jobs done{before}, {failed}{rate}"
    if summary.jobs_per_s is None:
        return
    yield (
        f"{summary.wall_s:.2f} s, {summary.jobs_per_s:,.1f} jobs/s, workers: {summary.workers}; "
        f"including their start {summary.total_s:.2f} s, {summary.total_jobs_per_s or 0:,.1f} jobs/s"
    )
    for name, used in summary.devices.items():
        parts = [f"{used.jobs:,} {'job' if used.jobs == 1 else 'jobs'}"]
        if used.success_rate is not None:
            parts.append(f"{used.failed} failed attempts, success rate {used.success_rate:.1%}")
        if used.memory_per_job is not None:
            parts.append(f"{used.memory_per_job / 2**20:.2f} MiB per job")
        share = f"utilization unknown: {used.why_not}" if used.utilisation is None else f"{used.utilisation:.0%} used"
        yield f"{name}: {', '.join(parts)}, workers busy {used.busy:.0%} of the time, {share}"
    yield f"memory: {(summary.memory_per_job or 0) / 2**20:.2f} MiB per job in addition to what its process held before"


def _print_cells(summary: Statistics) -> None:
    """Print the losses of each combination, as medians over seeds."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = "medians over seeds; the generalization loss with its quartiles"
    # fits 80 columns
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.padding = (0, 1, 0, 0)
    for name in ("method", "rank", "dim", "jobs", "fitted", "train loss", "gen. loss", "quartiles", "passes"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for cell in summary.cells:
        low, high = cell.generalization_quartiles
        numbers = map(str, (cell.rank, cell.dim, cell.jobs, cell.fitted))
        losses = (f"{cell.train_loss:.3g}", f"{cell.generalization_loss:.3g}", f"{low:.3g} – {high:.3g}")
        table.add_row(cell.method, *numbers, *losses, f"{cell.guesses or cell.epochs:,.0f}")
    Console(width=None if sys.stdout.isatty() else 100).print(table)


def main(argv: list[str] | None = None) -> int:
    """Run the command; a user error becomes one line."""
    arguments = _parser().parse_args(argv)
    return guarded(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
