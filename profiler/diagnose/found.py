"""The verdict of a program recorded as it is, on a device without a queue to watch: what to cure, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler.base.units import share
from profiler.diagnose.words import place
from profiler.run.model import WAITING_FOR_WORK, WAITING_FOR_WORKERS, Analysis, Site

BUSY: Final = 0.8
"""Share of a step from which computing is what limits it: without any other cost it would gain at most a quarter."""
WORTH: Final = 0.05
"""Share of a step below which nothing is named beside computing."""
_AFTER: Final = "after the optimizer"
_DOING: Final = {
    "sync": "is spent blocked on the device",
    "copy": "goes to copies between host and device",
    "log": "goes to logging",
    "checkpoint": "goes to saving",
    "python": "is Python, or waits in it",
    "framework": "is the framework's own Python and the launching of its operators",
    "launch": "goes to calls toward the device",
}
_MAKING: Final = {
    "dataset": "the dataset",
    "collate": "collating",
    "receive": "receiving batches",
    "send": "sending batches",
}
"""Part of the input -> what it is called in a sentence."""
_FAVOUR: Final = 1.25
"""It is the same time as that of some categories: of about equal ones the place says more."""


@dataclass(frozen=True, slots=True)
class _Cause:
    share: float
    words: str
    favour: float = 1.0


def found_verdict(analysis: Analysis) -> str:
    """The largest part of a step that can be cured, with its line; empty where nothing was divided."""
    parts = {name: measure.value or 0.0 for name, measure in analysis.breakdown.items()}
    total = sum(parts.values())
    if not analysis.phases or not total:
        return ""
    computing = parts.get("compute", 0.0) / total
    causes = sorted(_causes(analysis, parts, total), key=lambda cause: -cause.share * cause.favour)
    most = causes[0] if causes and causes[0].share >= WORTH else None
    if computing >= BUSY:
        also = f"; {share(most.share)} of it {most.words}" if most else ""
        return f"Computing takes {share(computing)} of the step: neither data nor Python is what limits this run{also}."
    if most is None:
        return ""
    also = f"; computing takes {share(computing)}" if computing >= WORTH else ""
    return f"{share(most.share)} of each step {most.words}{also}."


def _causes(analysis: Analysis, parts: dict[str, float], total: float) -> list[_Cause]:
    causes = [
        _Cause(parts[name] / total, f"{words}{_at(_line(analysis, name))}")
        for name, words in _DOING.items()
        if parts.get(name)
    ]
    if parts.get("input"):
        causes.append(_Cause(parts["input"] / total, _waiting(analysis)))
    for phase in analysis.phases:
        if phase.name == _AFTER:
            calls = f" ({phase.calls})" if phase.calls else ""
            words = f"runs after optimizer.step(){place(phase.site)}{calls}"
            causes.append(_Cause(phase.share, words, _FAVOUR))
    return causes


def _waiting(analysis: Analysis) -> str:
    """The wait for data, where it lies, and what the loader was doing most meanwhile."""
    site = next((phase.site for phase in analysis.phases if phase.name == "data"), None)
    where = place(site or _line(analysis, "input")).removeprefix(" at ")
    making = [part for part in analysis.input if part.name not in (WAITING_FOR_WORK, WAITING_FOR_WORKERS)]
    most = max(making, key=lambda part: part.seconds_per_step, default=None)
    within = (
        f"; the loader's time goes mostly to {_MAKING.get(most.name, most.name)}{place(most.site)}, in the {most.where}"
        if most
        else ""
    )
    return f"is waiting for data (next(loader){', ' + where if where else ''}{within})"


def _line(analysis: Analysis, category: str) -> Site | None:
    """The line with most seconds of a category, in the function with most of them."""
    functions: dict[tuple[str, str], float] = {}
    for line in analysis.lines:
        key = line.site.file, line.site.function
        functions[key] = functions.get(key, 0.0) + line.categories.get(category, 0.0)
    largest = max(functions, key=lambda key: functions[key], default=None)
    lines = [line for line in analysis.lines if (line.site.file, line.site.function) == largest]
    lines = [line for line in lines if line.categories.get(category)]
    return max(lines, key=lambda line: line.categories[category]).site if lines else None


def _at(site: Site | None) -> str:
    """` at train.py:88 (log_metrics)`; of a script's own level without a function."""
    return place(site) + (f" ({site.function})" if site and site.function and site.function != "<module>" else "")
