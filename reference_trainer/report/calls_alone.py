"""The ratio with the device's queue beside the ratio without it, and which part of a step waits for the device.

Without the queue, the host device runs each command in the thread that calls, so that nothing waits. What the fixes
gain there, they gain in the calls and in Python, not in waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from profiler.analyse.compare.ratios import SideRuns, over_runs, paired_ratio
from profiler.analyse.model import Analysis, Measure, Ratio
from profiler.core.units import count, share
from profiler.report.blocks import Cell, Column, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput
from profiler.report.table import factor, measure_cell, ratio_cell, ratio_text

NAME: Final = "calls-alone"
"""Name of this extension in a comparison."""
TITLE: Final = "Waiting for the device, and the calls alone"
LADDER: Final = "compare --ladder"
"""Arguments of the profiler that measure every fix."""
_SPEED: Final = "tokens_per_s"
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "waiting for the device": ("sync",),
    "calls to the device": ("copy", "launch"),
    "other waits": ("waiting", "gil", "ranks"),
    "Python": ("python", "input", "log", "checkpoint", "framework", "compute"),
}
"""Part of a step -> the host categories that are in it. Time without a core is no part of the program's step."""
_SMALLEST: Final = 0.005
"""Share below which a part is not mentioned."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speeds of both sides on one device."""

    before: Measure
    after: Measure
    ratio: Ratio


@dataclass(frozen=True, slots=True)
class CallsAlone:
    """Both sides with the device's queue and without it."""

    labels: tuple[str, ...]
    queue: Speeds | None = None
    alone: Speeds | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """Shares of the baseline's step in the breakdown pass, those of _PARTS and unknown; empty: not measured."""
    failed: str = ""
    """Why the runs without the queue failed; empty: they did not."""

    def method_sentences(self) -> Iterator[str]:
        """Describe how the runs without the queue were made."""
        if self.failed:
            yield f"The runs without the device's queue failed: {self.failed}."
        elif self.alone:
            yield (
                "Without the queue, the host device has no worker: each call runs its command itself, in the calling "
                f"thread, and nothing waits. {count(self.alone.ratio.n)} pairs of such runs, of half a second each, "
                "were made in the same rounds."
            )

    def next_command(self) -> str:
        """The ladder, which this comparison is a part of."""
        return LADDER

    def verdict_sentence(self) -> str:
        """The ratio without the queue, and where the baseline's step goes."""
        if self.alone is None or self.alone.ratio.value is None:
            return ""
        ends = [factor(end)[0] for end in (self.alone.ratio.low, self.alone.ratio.high) if end is not None]
        interval = f" (95% {' to '.join(ends)})" if ends else ""
        sentence = (
            f"Without the device's queue, where nothing waits, it is {ratio_text(self.alone.ratio.value)}{interval}"
        )
        parts = ", ".join(f"{share(value)} {name}" for name, value in self.parts.items() if value >= _SMALLEST)
        return f"{sentence}; a step of {self.labels[0]} is {parts}." if parts else f"{sentence}."


def measure_calls_alone(
    sides: Sequence[str], alone: Sequence[str], runs: Mapping[str, SideRuns], failed: Mapping[str, str] | None = None
) -> CallsAlone | None:
    """Compare both sides with the queue and without it; None where a side has no run without it.

    :param sides: labels of the sides, the baseline first.
    :param alone: labels of the same sides without the queue.
    :param failed: programs that failed, by label, and why.
    """
    if reasons := [failed[label] for label in alone if failed and label in failed]:
        return CallsAlone((), failed=reasons[0])
    if not alone or not all(label in runs for label in alone):
        return None
    queue, direct = (_speeds([runs[label] for label in labels]) for labels in (sides, alone))
    return CallsAlone(tuple(sides), queue, direct, _parts(runs[sides[0]].detail))


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
    return parts | {"unknown": max(0.0, 1.0 - sum(parts.values()))}


def build(report_input: ReportInput) -> Section | None:
    """Two rows, with the queue and without it, below what the difference means."""
    measured = report_input.comparison and report_input.comparison.extensions.get(NAME)
    if not isinstance(measured, CallsAlone) or measured.queue is None or measured.alone is None:
        return None
    columns = (Column("Host device"), *(Column(label, number=True) for label in (*measured.labels, "Ratio")))
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
    return Section("calls-alone", TITLE, (Text(measured.verdict_sentence()), table), brief=(table,))


PLUGIN = SectionPlugin("calls-alone", TITLE, 37, build, group="time")
