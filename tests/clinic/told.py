"""Reads what the profiler told about a recorded program: the only file of the clinic that knows its JSON schema."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.clinic.program import ROOT

WORTH_LEADING: Final = 1.1
"""Gain from which a finding leads a verdict, as `profiler.report.finding_text` has it; a test holds it equal."""
_COUNTS: Final = {
    "syncs": "syncs_per_step", "launches": "launches_per_step", "h2d": "h2d_per_step", "d2h": "d2h_per_step",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One cause that the report names, in the report's order."""

    title: str
    evidence: str
    advice: str
    """Its cure in words, and the code that it prints."""
    lines: tuple[tuple[str, int], ...]
    """Name of the file and number of each line."""
    inside: str
    """Libraries and functions that are named with it."""
    share: float
    gain: tuple[float, float, float] | None
    """The predicted gain with its interval."""
    is_limit: bool
    """Whether the gain is told as the most that can be gained."""
    is_sure: bool
    """Whether it may lead: its confidence is not low, and no other cause overlaps it."""

    @property
    def leads(self) -> bool:
        """Whether its gain is worth leading."""
        return self.is_sure and self.gain is not None and self.gain[0] >= WORTH_LEADING


@dataclass(frozen=True, slots=True)
class Told:
    """All that a verdict is judged by."""

    steps: dict[int, int]
    """Recorded steps of each process."""
    screen: str
    """The first screen of the terminal report."""
    entries: tuple[Entry, ...]
    lines: tuple[tuple[str, int, float], ...] = ()
    """The lines with most time: file, number and share of a step."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Counts of one step by the names of `case.Counts`, as far as they were counted."""
    has_spikes: bool = False

    def as_json(self) -> dict[str, Any]:
        """For the file of results."""
        return asdict(self)


def read_told(run: Path) -> Told:
    """What `diagnose` tells about a run directory."""
    report = json.loads(_profiler("diagnose", str(run), "--format", "json"))
    if "per_step" in report:
        return Told(_steps(run), _profiler("diagnose", str(run)), (), counts=_exact_counts(report))
    screen = _profiler("diagnose", str(run)).partition("\nOver the measured steps")[0]
    measures = report["run"]
    counts = {name: measures[key] for name, key in _COUNTS.items() if measures.get(key) is not None}
    if {"h2d", "d2h"} <= set(counts):
        counts["copies"] = counts.pop("h2d") + counts.pop("d2h")
    return Told(
        steps=_steps(run),
        screen=screen,
        entries=tuple(map(_entry, report["findings"])),
        lines=tuple((Path(line["file"]).name, line["line"], line["share"]) for line in report["lines"][:8]),
        counts=counts,
        has_spikes=bool(report["spikes"]),
    )


def _exact_counts(report: Mapping[str, Any]) -> dict[str, float]:
    """The counts of a run with a virtual device, about which nothing else is told."""
    number = {kind: each["number"] for kind, each in report["per_step"].items()}
    return {
        "syncs": report["waits_per_step"],
        "copies": number.get("h2d", 0.0) + number.get("d2h", 0.0),
        "launches": number["operator"],
        "growth": report["per_step"]["growth"]["bytes"],
    }


def _profiler(*words: str) -> str:
    command = [sys.executable, "-m", "profiler", *words]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise ValueError(f"profiler {' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def _steps(run: Path) -> dict[int, int]:
    from profiler import load

    recorded = load(run)
    if recorded.step is None or recorded.step.is_whole_run:
        return {}
    processes, counts = np.unique(recorded.steps["pid"], return_counts=True)
    return dict(zip(processes.tolist(), counts.tolist(), strict=True))


def _entry(finding: Mapping[str, Any]) -> Entry:
    gains = finding["gains"]
    first = gains[0] if gains else None
    sites = finding["sites"]
    return Entry(
        title=finding["title"],
        evidence=" ".join(finding["evidence"]),
        advice=f"{finding['fix']}\n{finding['code']}".strip(),
        lines=tuple((Path(site["file"]).name, site["line"]) for site in sites),
        inside=" ".join(site.get("function") or "" for site in sites),
        share=finding["share"],
        gain=(first["factor"], first["low"] or first["factor"], first["high"] or first["factor"]) if first else None,
        is_limit=bool(first and first.get("is_most")),
        is_sure=finding["confidence"] != "low" and not finding["overlaps"],
    )
