"""The verdict of a program recorded as it is, on a device without a queue to watch: what to cure, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler.analyse.model import MIN_SAMPLES, WAITING_FOR_WORK, WAITING_FOR_WORKERS, Analysis
from profiler.core.units import share
from profiler.diagnose.spikes import spikes_sentence
from profiler.diagnose.words import place
from profiler.run.model import Site

BUSY: Final = 0.8
"""Share of a step from which computing is what limits it: without any other cost it would gain at most a quarter."""
WORTH: Final = 0.05
"""Share of a step below which nothing is named beside computing."""
UNKNOWN: Final = 0.1
"""Share of a step from which what is not known of it is said first: it may be larger than any cause."""
LEADS: Final = 0.6
"""Share of a step from which computing is named first, before what can be cured beside it."""
AFTER_LEADS: Final = 0.2
"""Share of a step from which what runs after the optimizer is named first, though computing may be most of it: it is no
part of training."""
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
_BESIDE_A_DEVICE: Final = ("input", "log", "checkpoint")
"""What takes the host's time whether the device is busy or not; in all else it may be waiting for it."""
_FAVOUR: Final = 1.25
"""It is the same time as that of some categories: of about equal ones the place says more."""


@dataclass(frozen=True, slots=True)
class _Cause:
    category: str
    share: float
    words: str
    favour: float = 1.0


def found_verdict(analysis: Analysis) -> str:
    """The largest part of a step that can be cured, with its line; empty where nothing was divided."""
    parts, total = _parts(analysis)
    if not analysis.phases or not total:
        return ""
    computing = parts.get("compute", 0.0) / total
    most = _largest(_causes(analysis))
    long = spikes_sentence(analysis.spikes) if analysis.spikes and analysis.spikes.lines else ""
    return " ".join(filter(None, (_unknown(analysis, most), _of_causes(computing, most), long)))


def unknown(analysis: Analysis, part: float) -> str:
    """That nothing says what ran in this share of a step."""
    samples = sum(line.samples for line in analysis.lines)
    return f"What ran in {share(part)} of each step is not known: {samples or 'no'} stack samples cannot say it."


def beside_a_busy_device(analysis: Analysis) -> str:
    """The largest cause that is not a wait for the device; empty where there is none."""
    most = _largest([cause for cause in _causes(analysis) if cause.category in _BESIDE_A_DEVICE])
    return f"{share(most.share)} of each step {most.words}" if most else ""


def _unknown(analysis: Analysis, most: _Cause | None) -> str:
    parts, total = _parts(analysis)
    part = parts.get("unattributed", 0.0) / total
    if part >= UNKNOWN or part > max(most.share if most else 0.0, parts.get("compute", 0.0) / total):
        return unknown(analysis, part)
    return ""


def _of_causes(computing: float, most: _Cause | None) -> str:
    after = most is not None and most.category == _AFTER and most.share >= AFTER_LEADS
    if computing >= BUSY and not after:
        also = f"; {share(most.share)} of it {most.words}" if most else ""
        return f"Computing takes {share(computing)} of the step: neither data nor Python is what limits this run{also}."
    if most is None:
        return ""
    if computing >= LEADS and not after:
        return f"Computing takes {share(computing)} of the step; {share(most.share)} of the step {most.words}."
    also = f"; computing takes {share(computing)}" if computing >= WORTH else ""
    return f"{share(most.share)} of each step {most.words}{also}."


def _parts(analysis: Analysis) -> tuple[dict[str, float], float]:
    """Seconds of each category, and their sum."""
    parts = {name: measure.value or 0.0 for name, measure in analysis.breakdown.items()}
    return parts, sum(parts.values())


def _largest(causes: list[_Cause]) -> _Cause | None:
    most = max(causes, key=lambda cause: cause.share * cause.favour, default=None)
    return most if most is not None and most.share >= WORTH else None


def _causes(analysis: Analysis) -> list[_Cause]:
    parts, total = _parts(analysis)
    causes = [
        _Cause(name, parts[name] / total, f"{words}{_at(_line(analysis, name))}")
        for name, words in _DOING.items()
        if parts.get(name)
    ]
    if parts.get("input"):
        causes.append(_Cause("input", parts["input"] / total, _waiting(analysis)))
    enough = sum(line.samples for line in analysis.lines) >= MIN_SAMPLES
    for phase in analysis.phases:
        if phase.name == _AFTER and enough:
            calls = f" ({phase.calls})" if phase.calls else ""
            words = f"runs after optimizer.step(){place(phase.site)}{calls}"
            causes.append(_Cause(_AFTER, phase.share, words, _FAVOUR))
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
