"""The ratio with the device's queue beside the ratio without it, and which part of a step waits for the device.

Without the queue, the host device runs each command in the thread that calls, so that nothing waits. What the fixes
gain there, they gain in the calls and in Python, not in waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from profiler.analyse.compare.ratios import SideRuns, over_runs, paired_ratio
from profiler.analyse.model import Analysis, Comparison, Measure, Ratio
from profiler.core.units import count, share
from profiler.report.blocks import Cell, Column, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput
from profiler.report.table import factor, measure_cell, phrase, ratio_cell, ratio_text

NAME: Final = "calls-alone"
"""Name of this extension in a comparison."""
TITLE: Final = "Waiting for the device, and the calls alone"
LADDER: Final = "compare --ladder"
"""Arguments of the profiler that measure every fix."""
_SPEED: Final = "tokens_per_s"
_WAITING, _CALLS, _PYTHON = "waiting for the device", "calls to the device", "Python"
_OTHER, _REST = "other waits", "unknown"
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    _WAITING: ("sync",),
    _CALLS: ("copy", "launch"),
    _OTHER: ("waiting", "gil", "ranks"),
    _PYTHON: ("python", "input", "log", "checkpoint", "framework", "compute"),
}
"""Part of a step -> the host categories that are in it. Time without a core is no part of the program's step."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speeds of both sides on one device."""

    before: Measure
    after: Measure
    ratio: Ratio


@dataclass(frozen=True, slots=True)
class CallsAlone:
    """Both sides with the device's queue and without it."""

    labels: tuple[str, str]
    queue: Speeds
    alone: Speeds
    parts: Mapping[str, float]
    """Shares of the baseline's step in the breakdown pass, by name of _PARTS, and _REST; empty: not measured."""

    def method_sentences(self) -> Iterator[str]:
        """Describe how the runs without the queue were made."""
        yield (
            "Without the queue, the host device has no worker: each call runs its command itself, in the calling "
            f"thread, and nothing waits. {count(self.alone.ratio.n)} pairs of such runs, of half a second each, were "
            "made in the same rounds."
        )

    def next_command(self) -> str:
        """The ladder, which this comparison is a part of."""
        return LADDER

    def verdict_sentence(self) -> str:
        """The ratio without the queue, and how much of the baseline's step is waiting."""
        if self.alone.ratio.value is None:
            return ""
        label, low, high = self.labels[0], self.alone.ratio.low, self.alone.ratio.high
        interval = "" if low is None or high is None else f" (95% {factor(low)[0]} to {factor(high)[0]})"
        ratio = f"{ratio_text(self.alone.ratio.value)}{interval}"
        sentence = f"Without the device's queue, where nothing waits, it is {ratio}"
        if not self.parts:
            return f"{sentence}."
        waiting, calls, python = (share(self.parts[name]) for name in (_WAITING, _CALLS, _PYTHON))
        return (
            f"{sentence}: {waiting} of a step of {label} is waiting for the device, {calls} calls to the device, "
            f"{python} Python."
        )


@dataclass(frozen=True, slots=True)
class CallsAloneFailed:
    """A run without the queue failed: there is nothing to show."""

    reason: str

    def method_sentences(self) -> Iterator[str]:
        """Say that the runs failed, and why."""
        yield f"The runs without the device's queue failed: {self.reason}."

    def verdict_sentence(self) -> str:
        """Nothing: the verdict is about what was measured."""
        return ""

    def next_command(self) -> str:
        """The ladder, which this comparison is a part of."""
        return LADDER


def measure_calls_alone(sides: Sequence[str], alone: Sequence[str], runs: Mapping[str, SideRuns]) -> CallsAlone | None:
    """Compare both sides with the queue and without it; None where a side has no run without it.

    :param sides: labels of the sides, the baseline first.
    :param alone: labels of the same sides without the queue.
    """
    if not alone or not all(label in runs for label in alone):
        return None
    queue, direct = (_speeds([runs[label] for label in labels]) for labels in (sides, alone))
    return CallsAlone((sides[0], sides[1]), queue, direct, _parts(runs[sides[0]].detail))


def _speeds(pair: Sequence[SideRuns]) -> Speeds:
    before, after = (over_runs(side)[_SPEED] for side in pair)
    return Speeds(before, after, paired_ratio(_SPEED, *pair))


def _parts(detail: Analysis | None) -> dict[str, float]:
    """The share of each part in the time in which the program had a core."""
    seconds = {name: part.value or 0.0 for name, part in detail.breakdown.items()} if detail else {}
    own = sum(seconds.values()) - seconds.get("core", 0.0) - seconds.get("throttled", 0.0)
    if own <= 0:
        return {}
    parts = {part: sum(seconds.get(name, 0.0) for name in names) / own for part, names in _PARTS.items()}
    return parts | {_REST: max(0.0, 1.0 - sum(parts.values()))}


def comparison_calls_alone(comparison: Comparison | None) -> CallsAlone | None:
    """The runs without the queue of a comparison that has them."""
    measured = comparison.extensions.get(NAME) if comparison is not None else None
    return measured if isinstance(measured, CallsAlone) else None


def build(report_input: ReportInput) -> Section | None:
    """Two rows, with the queue and without it, and what the difference means."""
    measured = comparison_calls_alone(report_input.comparison)
    if measured is None:
        return None
    before, after = measured.labels
    columns = (
        Column("Host device"),
        Column(before, number=True),
        Column(after, number=True),
        Column("Ratio", number=True),
    )
    rows = tuple(
        (
            Cell(name, note=note),
            measure_cell(speeds.before, bare=True),
            measure_cell(speeds.after, bare=True),
            ratio_cell(speeds.ratio),
        )
        for name, note, speeds in (
            ("with its queue", "a worker runs the commands", measured.queue),
            ("calls alone", "each call runs its command itself", measured.alone),
        )
    )
    table = Table("Tokens a second with the device's queue and without it", columns, rows)
    return Section("calls-alone", TITLE, (Text(_summary(measured)), table), brief=(table,))


_SMALLEST: Final = 0.005
"""Share below which a part is not mentioned."""


def _summary(measured: CallsAlone) -> str:
    """What the queue costs the baseline, and where its step goes."""
    before, alone = measured.queue.before.value, measured.alone.before.value
    if not before or not alone:
        return "The speed without the queue was not measured."
    text = (
        f"A token of {measured.labels[0]} takes {phrase(1 / before, 's')} with the device's queue and "
        f"{phrase(1 / alone, 's')} without it, where nothing waits and no other thread takes part."
    )
    if not measured.parts:
        return text
    parts = ", ".join(f"{share(value)} is {name}" for name, value in measured.parts.items() if value >= _SMALLEST)
    return f"{text} In a step of its breakdown pass, {parts}. What remains without the queue is the cost of each call."


PLUGIN = SectionPlugin("calls-alone", TITLE, 37, build, group="time")
