"""Reads what the profiler told about a recorded program: the only file of the clinic that knows its JSON schema."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.clinic.program import ROOT

if TYPE_CHECKING:
    from profiler.analyse.model.analysis import Analysis
    from profiler.analyse.model.finding import Finding

WORTH_LEADING: Final = 1.1
"""Gain from which a finding leads a verdict, as `profiler.diagnose.model` has it; a test holds it equal."""
THROTTLED: Final = "throttled"
"""The rule that must tell of a CPU quota."""
LOADED: Final = frozenset({"core", "throttled"})
"""Categories of a busy machine: they are true wherever the scheduler's clocks say so."""
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
    """Whether the report gives the gain as an upper limit."""
    is_least: bool = field(default=False, kw_only=True)
    """Whether it gives the gain as a lower limit."""
    is_sure: bool
    """Whether it may lead: its confidence is not low, and no other cause overlaps it."""
    is_counted: bool = False
    """Whether it is of exact counts, which need no gain to lead."""
    rule: str = ""
    is_of_run: bool = False
    """Whether it is about the run as a whole; then it predicts no gain of a step."""
    overlaps: bool = False
    """Whether another cause has its time."""

    @property
    def leads(self) -> bool:
        """Whether it was counted, or its gain is worth leading."""
        return self.is_sure and (self.is_counted or (self.gain is not None and self.gain[0] >= WORTH_LEADING))


@dataclass(frozen=True, slots=True)
class Cause:
    """A part of a step that the verdict names."""

    category: str
    share: float
    low: float
    high: float
    path: tuple[tuple[str, int, str], ...]
    """File, line and function of each call down to it."""
    calls: str = ""
    """What the last line calls."""
    notice: str = ""
    """The code of its known reason."""
    ranks: tuple[int, ...] = ()
    """The numbers of a late rank and of the ranks that are late in the same way."""
    lead: float = 0.0
    """Of a late rank: the part of a step for which the others wait."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The parts of a step that the verdict names."""

    state: str
    """How the recorded run ended."""
    causes: tuple[Cause, ...]
    late: Cause | None = None
    """What makes one rank late."""
    waits: tuple[float, float] | None = None
    """The share of a step without a core, and half of its interval; None: no such time is told."""


@dataclass(frozen=True, slots=True)
class Told:
    """All that a verdict is judged by."""

    steps: dict[int, int]
    """Recorded steps of each process."""
    screen: str
    """The first screen of the terminal report."""
    entries: tuple[Entry, ...]
    actions: str = ""
    """What the first screen says to do now."""
    lines: tuple[tuple[str, int, float], ...] = ()
    """The lines with most time: file, number and share of a step."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Counts of one step by the names of `case.Counts`, as far as they were counted."""
    has_spikes: bool = False
    breakdown: Breakdown | None = None
    """Only for cases that are judged by their parts."""
    condition: str = "quiet"
    cores: float | None = None
    """Cores that the program used on average; None: not measured."""
    exit_code: int = 0
    output: str = ""
    """What the program printed."""
    waited: Mapping[int, float] = field(default_factory=dict)
    """By rank: the share of its steps in which its main thread was runnable without a core, by the kernel's clock."""
    harm: tuple[str, ...] = ()
    """What the recording changed of the program, or does not contain."""

    @property
    def unwrapped(self) -> str:
        """The screen as one line, since a sentence may be divided anywhere."""
        return " ".join(self.screen.split())

    @property
    def own(self) -> tuple[Entry, ...]:
        """The entries about the program: under a quota, all but the one about the quota."""
        return tuple(each for each in self.entries if self.condition != "quota" or each.rule != THROTTLED)


NO_CAUSES: Final = ("compute", "backward-and-update", "unattributed")
"""Names of time that says nothing about a cause."""
_ACTIONS: Final = "\nWhat now\n"
"""Head of the actions on a first screen."""
LINT: Final = "clinic-lint.json"
"""What `lint` printed about a CUDA program, in its run directory."""


def read_told(run: Path) -> Told:
    """What `diagnose` tells about a run directory; of a CUDA program also what `lint` told."""
    report = json.loads(_profiler("diagnose", str(run), "--format", "json"))
    if "per_step" in report:
        return _told_of_counts(run, report)
    screen = _profiler("diagnose", str(run)).partition("\nOver the measured steps")[0]
    measures = {name: measure["value"] for name, measure in report["measures"].items()}
    counts = {name: measures[key] for name, key in _COUNTS.items() if measures.get(key) is not None}
    if {"h2d", "d2h"} <= set(counts):
        counts["copies"] = counts.pop("h2d") + counts.pop("d2h")
    return Told(
        steps=_steps(run),
        screen=screen,
        entries=tuple(_entry(each) for each in report["findings"] if each["fix"] or each["rule"] not in NO_CAUSES),
        actions=screen.partition(_ACTIONS)[2],
        lines=tuple(
            (Path(line["site"]["file"]).name, line["site"]["line"], line["share"]) for line in report["lines"][:8]
        ),
        counts=counts,
        has_spikes=bool(report["spikes"]),
        cores=measures.get("host_cpu"),
    )


def _told_of_counts(run: Path, report: Mapping[str, Any]) -> Told:
    lint = json.loads((run / LINT).read_text(encoding="utf-8") or "{}") if (run / LINT).exists() else {}
    found = [f"{each['title']}\n{each['file']}:{each['line']}\n{each['fix']}" for each in lint.get("findings", ())]
    return Told(
        steps={0: report["steps"]},
        screen="\n".join([_profiler("diagnose", str(run)).partition("\noperators:")[0], *found]),
        entries=tuple(map(_lint_entry, lint.get("findings", ()))),
        counts=_exact_counts(report),
    )


def _lint_entry(finding: Mapping[str, Any]) -> Entry:
    return Entry(
        title=finding["title"],
        # what a reader sees below the title; sentences about recorded lines have their code, too
        evidence=f"{finding['source']}\n{finding['operation']} {finding['per_step']} per step",
        advice=f"{finding['fix']}\n{finding['instead']}",
        lines=tuple((Path(at["file"]).name, at["line"]) for at in (finding, finding.get("made_at")) if at),
        inside=" ".join([finding["file"], finding["function"], *map(str, (finding.get("library") or {}).values())]),
        share=0.0,
        gain=None,
        is_limit=False,
        is_sure=True,
        is_counted=True,
    )


def _exact_counts(report: Mapping[str, Any]) -> dict[str, float]:
    """The counts of a run with a virtual device, about which nothing else is told."""
    number = {kind: each["usual"] for kind, each in report["per_step"].items()}
    return {
        "syncs": report["waits_per_usual_step"],
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
    changed = finding.get("cure_site")
    sites = [*finding["sites"], *([changed] if changed else [])]
    return Entry(
        title=finding["title"],
        evidence=" ".join(finding["evidence"]),
        advice=f"{finding['fix']}\n{finding['code']}".strip(),
        lines=tuple((Path(site["file"]).name, site["line"]) for site in sites),
        inside=" ".join(site.get("function") or "" for site in sites),
        share=finding["share"],
        gain=(first["factor"], first["low"] or first["factor"], first["high"] or first["factor"]) if first else None,
        is_limit=bool(first and first.get("is_most")),
        is_least=bool(first and first.get("is_least")),
        is_sure=finding["confidence"] != "low" and not finding["overlaps"],
        rule=finding["rule"],
        is_of_run=finding["is_of_run"],
        overlaps=bool(finding["overlaps"]),
    )


def read_breakdown(run: Path) -> Breakdown:
    """The causes of the verdict about a run directory, by the analysis: the JSON report has not all of it."""
    from profiler import analyse_run, load

    analysis = analyse_run(load(run))
    values = {name: each for name, each in analysis.breakdown.items() if each.value is not None}
    total = sum(each.value or 0.0 for each in values.values()) or 1.0
    without_core = [values[name] for name in LOADED if name in values]
    wide = sum(each.high - each.low for each in without_core if each.high is not None and each.low is not None)
    waits = sum(each.value or 0.0 for each in without_core) / total, wide / 2 / total
    causes = tuple(map(_told_cause, filter(lambda finding: finding.is_told, analysis.findings)))
    return Breakdown(analysis.info.state, causes, _late(analysis), waits if without_core else None)


def _told_cause(finding: Finding) -> Cause:
    whole = finding.recorded_share / finding.share if finding.share else 1.0
    return Cause(
        max(finding.costs, key=lambda name: finding.costs[name]),
        finding.recorded_share,
        whole * finding.low,
        whole * finding.high,
        tuple((site.file, site.line, site.function) for site in finding.sites),
        finding.values.get("calls") or "",
        finding.rule.name,
    )


def _late(analysis: Analysis) -> Cause | None:
    """The late rank, in the form of a cause."""
    late = analysis.ranks.straggler if analysis.ranks else None
    step = analysis.value("step_time")
    if late is None or not step:
        return None
    share = late.seconds / step
    path = ((late.site.file, late.site.line, late.site.function),) if late.site else ()
    return Cause(late.category, share, share, share, path, ranks=(late.rank, *late.alike), lead=late.lead / step)
