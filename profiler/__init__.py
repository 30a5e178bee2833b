"""Records PyTorch training, explains why it is slow, and shows what a fix changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike
    from pathlib import Path
    from typing import Any

    from profiler.analyse.comparability import SideRuns
    from profiler.analyse.model.analysis import Analysis
    from profiler.analyse.model.comparison import Comparison
    from profiler.analyse.model.device import RunCounts
    from profiler.core.errors import ProfilerError
    from profiler.exact import virtual_cuda
    from profiler.marks import count, describe, gauge, open_step, region, result, step
    from profiler.record.session import record
    from profiler.run.frames import DataFrame
    from profiler.run.model import Run

__all__ = [
    "ProfilerError",
    "compare",
    "count",
    "describe",
    "findings",
    "gauge",
    "load",
    "open_step",
    "read",
    "record",
    "region",
    "result",
    "step",
    "virtual_cuda",
]

__version__ = "0.1.0"
_MARKS = ("count", "describe", "gauge", "open_step", "region", "result", "step")


def __getattr__(name: str) -> Any:
    """Import the marks and `record` at their first use, so that importing the package is cheap."""
    from importlib import import_module

    if name == "record":  # a package that can be called; see there
        return import_module("profiler.record")
    if name == "ProfilerError":
        return import_module("profiler.core.errors").ProfilerError
    if name == "virtual_cuda":
        return import_module("profiler.exact").virtual_cuda
    if name in _MARKS:
        function = globals()[name] = getattr(import_module("profiler.marks"), name)
        return function
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MARKS, "ProfilerError", "record", "virtual_cuda"})


def load(path: Path | str | PathLike[str], *, max_size: int | None = None) -> Run:
    """Load the tables of a recorded run from a run directory or a .zip of it.

    `profiler.run.frames` converts the tables to data frames. A notebook shows a run as the first screen of its report.
    The same holds for the results of `read` and `compare`.

    :param max_size: largest allowed file in bytes, unpacked; None: 2 GB.
    :raises ProfilerError: there is no run at `path`, it cannot be read, or a file is too large.
    """
    from os import fspath

    from profiler.core.files import limited_to
    from profiler.report.write import show_in_notebooks
    from profiler.run.load import load as load_run
    from profiler.run.model import Run as LoadedRun

    def results(run: Run) -> Analysis | RunCounts:
        from profiler.analyse.timing.counts import run_counts

        return run_counts(run) if run.info.is_counted else analyse_run(run)

    show_in_notebooks(LoadedRun, results)
    with limited_to(max_size):
        return load_run(fspath(path))


def read(path: Path | str | PathLike[str], *, timeline: bool = False, max_size: int | None = None) -> Analysis:
    """Load and analyse a recorded run. The result has the verdict and findings of `python -m profiler diagnose`.

    :param timeline: also return the part of the run that the HTML report draws as a timeline.
    :param max_size: as in `load`.
    :raises ProfilerError: as in `load`.
    """
    return analyse_run(load(path, max_size=max_size), timeline=timeline)


def findings(analysis: Analysis) -> DataFrame:
    """Return the findings of a run as a data frame, one row each, in the order of the verdict.

    `seconds` and `share` are the cost in a step. `low` and `high` are the 95% interval of the share. `gain` is the
    predicted speed without the cause, relative to the present speed; it is missing without a prediction. Time that no
    rule explains has an empty `fix`.

    :raises ProfilerError: pandas is not installed.
    """
    from profiler.report.finding_text import FINDING_COLUMNS, finding_row
    from profiler.run.frames import rows

    return rows(map(finding_row, analysis.findings), FINDING_COLUMNS)


def analyse_run(run: Run, *, timeline: bool = False) -> Analysis:
    """Analyse a loaded run. The result has findings and a verdict.

    :param timeline: also return the part of the run that the HTML report draws as a timeline.
    """
    from dataclasses import replace

    from profiler.analyse.analysis import analyse
    from profiler.diagnose.findings import find, with_trials
    from profiler.diagnose.run import diagnose_run
    from profiler.report.verdict_text import with_verdict
    from profiler.report.write import show_in_notebooks
    from profiler.run.trials import read_trials

    trials, problems = read_trials(run.path)
    analysis = analyse(replace(run, problems=(*run.problems, *problems)))
    show_in_notebooks(type(analysis))
    found = find(analysis)
    findings = with_trials(found.findings, trials, analysis.ranks.late if analysis.ranks else None)
    analysis = replace(analysis, findings=findings, not_judged=found.not_judged, ledger=found.ledger, replay=None)
    analysis = with_verdict(analysis, diagnose_run(analysis))
    if timeline:
        from profiler.analyse.figures import timeline_excerpt

        return replace(analysis, timeline=timeline_excerpt(run, analysis.value("device_utilization")))
    return analysis


def compare(sides: Mapping[str, Iterable[Path | str]], *, anyway: bool = False) -> Comparison:
    """Compare recorded runs. The first side is the baseline, and the result has a verdict.

    Ratios come from runs at level light: run i of a side is paired with run i of the baseline. The breakdown comes from
    a side's last run at a higher level. If a side has no light run, its ratios come from its other runs.

    :param sides: label -> recorded runs of the side, in the order of recording.
    :param anyway: also compare sides that are not comparable; the result says so.
    :raises ProfilerError: there are fewer than two sides, a side has no run, runs cannot be read or compared, or the
        sides are ranks of one job.
    """
    from profiler.analyse.comparison import compare as compare_sides
    from profiler.core.errors import Exit, ProfilerError
    from profiler.diagnose.comparison import diagnose_comparison
    from profiler.report.comparison_text import with_comparison_verdict
    from profiler.report.notices import mismatches
    from profiler.report.write import show_in_notebooks

    runs = {label: [load(path) for path in paths] for label, paths in sides.items()}
    if not anyway and (group := read_ranks([run for each in runs.values() for run in each])):
        raise ProfilerError(f"these are ranks of one job, which are not compared: {group.verdict}", Exit.NOT_COMPARABLE)
    comparison = compare_sides([_side(label, each) for label, each in runs.items()], anyway=anyway)
    if not comparison.comparable and not anyway:
        reasons = mismatches(comparison.mismatches)
        raise ProfilerError(f"not comparable: {reasons} (anyway=True compares them)", Exit.NOT_COMPARABLE)
    show_in_notebooks(type(comparison))
    return with_comparison_verdict(comparison, diagnose_comparison(comparison))


def read_ranks(runs: Sequence[Run]) -> Analysis | None:
    """Analyse the recordings of several ranks of one job as one run. Return None for any other runs."""
    from os.path import commonpath
    from pathlib import Path

    from profiler.run.load import are_ranks_of_one_job, merge_ranks

    if not are_ranks_of_one_job(runs):
        return None
    return analyse_run(merge_ranks(runs, Path(commonpath([run.path.absolute() for run in runs]))))


def _side(label: str, loaded: Sequence[Run]) -> SideRuns:
    import shlex

    from profiler.analyse.comparability import SideRuns
    from profiler.core.errors import ProfilerError

    runs = [analyse_run(run) for run in loaded]
    if not runs:
        raise ProfilerError(f"there is no run of side {label}: give each side at least one")
    light = tuple(run for run in runs if run.info.level == "light")
    detail = next((run for run in reversed(runs) if run.info.level != "light"), None)
    return SideRuns(label, shlex.join(runs[0].info.argv), light or tuple(runs), detail)
