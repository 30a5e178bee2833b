"""What a recorded run and its diagnosis say, as JSON for the judge: `python -m tests.wild.facts RUN`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from profiler import analyse_run, load
from profiler.analyse.model import Analysis
from profiler.diagnose.run import diagnose_run
from profiler.report.text import describe, step_text
from profiler.run.model import Run


def run_facts(path: str) -> dict[str, Any]:
    """The run's steps and diagnosis as plain values."""
    run = load(path)
    analysis = analyse_run(run)
    diagnosis = diagnose_run(analysis)
    return {
        "verdict": diagnosis.verdict.value,
        "headline": analysis.headline,
        "text": analysis.verdict,
        "state": run.info.state,
        "exit_code": run.info.exit_code,
        "steps": _steps(run),
        "step_source": step_text(run.step),
        "computing": diagnosis.share,
        "unknown": diagnosis.unknown.share if diagnosis.unknown else 0.0,
        "causes": [_cause(cause) for cause in diagnosis.causes],
        "spikes": _plain(diagnosis.spikes) if diagnosis.spikes else None,
        "breakdown": _breakdown(analysis),
        "lines": [
            {"at": f"{line.site.file}:{line.site.line}:{line.site.function}", "share": line.share, "calls": line.calls}
            for line in analysis.lines[:8]
        ],
        "problems": [describe(problem) for problem in run.problems],
        "warnings": [describe(warning) for warning in analysis.warnings],
        "straggler": _straggler(analysis),
    }


def _straggler(analysis: Analysis) -> dict[str, Any] | None:
    """The late rank, in the form of a cause."""
    late = analysis.ranks.straggler if analysis.ranks else None
    step = analysis.value("step_time")
    if late is None or not step:
        return None
    path = [[late.site.file, late.site.line, late.site.function]] if late.site else []
    return {"rank": late.rank, "alike": list(late.alike), "lead": late.lead / step, "category": late.category,
            "share": late.seconds / step, "low": None, "high": None, "kind": "line" if late.at_line else "function",
            "path": path, "calls": "", "notice": None}  # fmt: skip


def _steps(run: Run) -> list[dict[str, Any]]:
    rows, steps = [], run.steps
    if run.step is None or run.step.is_whole_run:
        return []
    for pid in np.unique(steps["pid"]).tolist():
        mine = steps[steps["pid"] == pid]
        rank = int(mine["rank"][0])
        rows.append({"pid": pid, "rank": rank, "count": len(mine), "begin": int(mine["begin"].min()),
                     "end": int(mine["end"].max())})  # fmt: skip
    return rows


def _breakdown(analysis: Analysis) -> dict[str, Any]:
    measures = {name: measure for name, measure in analysis.breakdown.items() if measure.value is not None}
    total = sum(measure.value or 0.0 for measure in measures.values()) or 1.0
    result = {}
    for name, measure in measures.items():
        ends = [end / total if end is not None else None for end in (measure.value, measure.low, measure.high)]
        result[name] = ends
    return result


def _cause(cause: Any) -> dict[str, Any]:
    """A cause with its location, in the form of either version of `Cause`."""
    location = getattr(cause, "location", None)
    site = getattr(cause, "site", None)
    path = list(getattr(location, "path", ())) or ([site] if site else [])
    notice = getattr(cause, "notice", None)
    return {
        "category": cause.category,
        "share": cause.share,
        "low": getattr(cause, "low", None),
        "high": getattr(cause, "high", None),
        "kind": getattr(getattr(location, "kind", None), "value", "line" if site else "none"),
        "path": [[site.file, site.line, site.function] for site in path],
        "calls": getattr(location, "calls", None) or getattr(cause, "calls", "") or "",
        "rank": getattr(cause, "rank", None),
        "notice": [notice.code, _plain(notice.values)] if notice else None,
    }


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


if __name__ == "__main__":
    json.dump(run_facts(sys.argv[1]), sys.stdout, default=str)
