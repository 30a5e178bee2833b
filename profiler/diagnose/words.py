"""The words of a verdict: what the device and a site are called, and what each category of idle time means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

from profiler.analyse.model import RECORDING_ITSELF, Analysis, IdleBlame, Measure
from profiler.core.device_names import stated_device
from profiler.run.model import RunInfo, Site

WHILE: Final[Mapping[str, str]] = {
    "input": "while the host prepared input",
    "sync": "in and after syncs",
    "copy": "in copy calls",
    "launch": "in launch and allocation calls",
    "framework": "during the framework's operators",
    "compute": "while the host computed",
    "log": "while the host logged",
    "checkpoint": "while the host wrote a checkpoint",
    "python": "while the host ran Python",
    "unattributed": "while nothing recorded what the host did",
}
"""Host category -> when the device was idle, after the words `idle time`."""


def device_of(info: RunInfo) -> str:
    """`host device (CPU)`, the name of the GPU, `CPU`."""
    return stated_device(info.facts, info.devices)


def place(site: Site | None) -> str:
    """` at train.py:88`; empty where the site is not known."""
    return f" at {PurePath(site.file).name}:{site.line}" if site else ""


def points(share: float) -> str:
    """A share of the wall time as percentage points: `61 points`, `0.4 points`."""
    value = share * 100
    text = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
    return f"{text} point{'' if text == '1.0' else 's'}"


def sampled(busy: Measure) -> bool:
    """Whether only NVML says how busy the device was: it sees no short gaps, so idle time does not follow from it."""
    return busy.source.startswith("NVML")


def waits_unseen(analysis: Analysis) -> bool:
    """Whether Python of this run may be a wait inside CUDA: calls toward the device were not recorded."""
    launch = analysis.breakdown.get("launch")
    return analysis.info.facts.get("device") == "cuda" and (launch is None or launch.value is None)


def causes(analysis: Analysis) -> list[IdleBlame]:
    """The blame that the program can do something about: all but what recording itself took."""
    return [row for row in analysis.idle if row.doing != RECORDING_ITSELF]


def rows_of(analysis: Analysis, category: str) -> list[IdleBlame]:
    """The blame of one category, the largest first."""
    rows = [row for row in causes(analysis) if row.category == category]
    return sorted(rows, key=lambda row: -row.share_of_wall)


def main_site(analysis: Analysis, category: str) -> Site | None:
    """The line that most of a category's blame goes to."""
    totals: dict[Site | None, float] = {}
    for row in rows_of(analysis, category):
        totals[row.site] = totals.get(row.site, 0.0) + row.share_of_wall
    return max(totals, key=lambda site: totals[site], default=None)
