"""The ladder of fixes in the JSON report: every row with its measures, its gain and the base of the gain."""

from __future__ import annotations

from typing import Any, Final

from profiler.analyse.model import Measure
from profiler.core.notice import Notice
from profiler.report.model import ReportInput
from profiler.report.render.json import Null, measures_json, number, ranges_json, ratio_json
from profiler.report.text import describe
from reference_trainer.report.ladder import LadderRow, comparison_ladder

ROW_KEYS: Final = (
    "tokens_per_s",
    "step_time",
    "syncs_per_step",
    "h2d_per_step",
    "d2h_per_step",
    "allocations_per_step",
    "device_utilization",
    "host_cpu",
    "loss",
    "accuracy",
)
"""Measures that every row has, measured or not."""


def ladder_json(report_input: ReportInput) -> dict[str, Any]:
    """The key `ladder` of a comparison's JSON report: None with its reason where there is none."""
    if report_input.comparison is None:
        return {}
    ladder = comparison_ladder(report_input.comparison)
    if ladder is None:
        return {"ladder": Null("the fixes were not measured one by one (compare --ladder)")}
    document = {
        "rows": [_row(row) for row in ladder.rows],
        "unavailable": [{"fix": fix, "reason": reason} for fix, reason in ladder.unavailable],
        "rounds": ladder.rounds,
        "interrupted": ladder.interrupted,
    }
    return {"ladder": document}


def _row(row: LadderRow) -> dict[str, Any]:
    absent = Measure("", None, "", reason=Notice("not-in-runs"))
    measures = {name: row.measures.get(name, absent) for name in ROW_KEYS}
    return {
        "label": row.label,
        "kind": row.kind,
        "fix": row.fix,
        "also": list(row.also),
        "fixes": list(row.fixes),
        "removes": row.removes,
        "rule": row.rule,
        "what": row.what,
        "cpu_time": number(row.cpu_time, describe(row.measure("host_cpu").reason)),
        **measures_json(measures),
        "ranges": ranges_json(measures),
        "gain": {**ratio_json(row.gain), "reason": describe(row.gain.reason)},
        "predicted": {
            **ratio_json(row.predicted),
            "is_lower_bound": row.is_lower_bound,
            "reason": describe(row.predicted.reason),
        },
        "against": row.against,
        "total": {**ratio_json(row.total), "reason": describe(row.total.reason)},
    }
