"""The ladder of fixes in the JSON report: every row with its measures, its gain and the base of the gain."""

from __future__ import annotations

from typing import Any, Final

from profiler.analyse.model import Measure, Ratio
from profiler.core.notice import Notice
from profiler.report.model import ReportInput
from profiler.report.render.json import Null, measures_json, number, ranges_json, ratio_json
from profiler.report.text import describe
from reference_trainer.report.ladder import LadderRow, comparison_ladder

ROW_KEYS: Final = (
    "tokens_per_s", "step_time", "syncs_per_step", "h2d_per_step", "d2h_per_step", "allocations_per_step",
    "device_utilization", "host_cpu", "loss", "accuracy",
)  # fmt: skip
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
    stated = {name: getattr(row, name) for name in ("label", "kind", "fix", "also", "fixes", "removes", "rule", "what")}
    return {
        **{name: list(value) if isinstance(value, tuple) else value for name, value in stated.items()},
        "cpu_time": number(row.cpu_time, row.measure("host_cpu").reason),
        **measures_json(measures),
        "ranges": ranges_json(measures),
        "gain": _ratio(row.gain),
        "predicted": _ratio(row.predicted, is_lower_bound=row.is_lower_bound),
        "against": row.against,
        "total": _ratio(row.total),
    }


def _ratio(ratio: Ratio, **more: Any) -> dict[str, Any]:
    return {**ratio_json(ratio), **more, "reason": describe(ratio.reason)}
