"""Makes `next_step`, the field of every JSON document of a result: one concrete thing to do now."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.analyse.model.device import RunCounts
from profiler.analyse.model.finding import Cure, Prediction
from profiler.core.terminal import called_as
from profiler.core.units import significant
from profiler.diagnose.model import WORTH_LEADING
from profiler.report.action_text import command_text, comparison_actions, run_actions
from profiler.report.blocks import Action
from profiler.report.model import ReportInput
from profiler.report.text import listed


def next_step(actions: Sequence[Action]) -> str:
    """Return the first action; of a change to the code with its lines first, and the command that measures it last.

    `Edit train.py:12: Sum on the device. Then measure what the change gives: python -m profiler compare ...`
    """
    if not actions:
        return ""
    first, *others = actions
    is_heading = bool(first.lines and first.text)  # such as `Next in after`
    what = first.text if is_heading else ": ".join(filter(None, (first.title, first.text)))
    if first.command and not first.lines:
        return f"{what}: {first.command}"
    if first.code and "\n" not in first.code:
        what = f"{what}: {first.code}"
    if first.lines:
        also = f" (also {listed(first.lines[1:])})" if first.lines[1:] else ""
        what = f"Edit {first.lines[0]}{also}: {what}"
    # commands are in the order of their use, and the last one measures what a change gave
    last = next((each for each in reversed(others) if each.command), None)
    then = f" Then {last.title[:1].lower()}{last.title[1:]}: {last.command}" if last else ""
    return f"{what.removesuffix('.')}.{then}"


def results_next_step(report_input: ReportInput) -> str:
    """Return what to do after a run or a comparison was read."""
    if report_input.comparison is None:
        assert report_input.analysis is not None
        return next_step(run_actions(report_input.analysis, None))
    first, *others = comparison_actions(report_input, report_input.comparison)
    compare = f"{called_as()} compare --before OLD --after NEW"
    again = Action("Compare it with the program as it is now", command=compare)
    return next_step((first, again) if first.lines else (first, *others))


def counts_next_step(counted: RunCounts) -> str:
    """Return what to do after the steps were counted: have the line wait less that waits most, or keep the counts."""
    how = "--virtual-cuda" if "virtual_cuda" in counted.info.facts else "--count"
    program = f"{how} -- {command_text(counted.info) or 'COMMAND'}"
    waits = [(count.mean, count.name, count.site) for count in counted.counts if count.waits and count.mean]
    number, name, site = max(waits, key=lambda each: each[0], default=(0.0, "", None))
    if site is None:
        keep = f"{called_as()} check --baseline counters.json --update {program}"
        return next_step((Action("Keep the counts as they are", command=keep),))
    title = f"Have the host wait here less often: {name} makes it wait {significant(number)} times in each step"
    again = Action("Count again", command=f"{called_as()} run {program}")
    return next_step((Action(title, lines=(f"{site.file}:{site.line}",)), again))


def what_if_next_step(cures: Sequence[Cure], prediction: Prediction, run: str) -> str:
    """Return what to do after a change was predicted.

    :param run: the run directory, as a shell reads it.
    """
    names = listed([cure.name for cure in cures])
    if prediction.factor < WORTH_LEADING:
        return next_step((Action(f"Leave {names} as it is: the change gives too little"),))
    return next_step((Action(f"Find the lines of {names}, and change them", command=f"{called_as()} diagnose {run}"),))
