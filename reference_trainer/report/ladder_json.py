"""The ladder of fixes in the JSON report: every row with its measures, its gain and what that is held against."""

from __future__ import annotations

from typing import Any, Final

from profiler.analyse.model import Comparison, Measure
from profiler.core.notice import Notice
from profiler.report.render.json_values import Gaps, ranges_json, ratio_json
from profiler.report.text import describe
from reference_trainer.report.claims import SOURCE, ClaimRow, claim_rows
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


def ladder_json(comparison: Comparison, gaps: Gaps) -> dict[str, Any] | None:
    """The ladder of a comparison; None with its reason where there is none."""
    ladder = comparison_ladder(comparison)
    if ladder is None:
        gaps.reasons["ladder"] = "the fixes were not measured one by one (compare --ladder)"
        return None
    return {
        "rows": [_row(row, f"ladder.rows.{index}", gaps) for index, row in enumerate(ladder.rows)],
        "unavailable": [{"fix": fix, "reason": reason} for fix, reason in ladder.unavailable],
        "rounds": ladder.rounds,
        "interrupted": ladder.interrupted,
        "claims": [_claim(row, f"ladder.claims.{i}", gaps) for i, row in enumerate(claim_rows(comparison))],
    }


def _claim(row: ClaimRow, path: str, gaps: Gaps) -> dict[str, Any]:
    """One claim: what was measured as the report words it, and as a number where it is one."""
    cell = row.measured
    if cell.missing:
        gaps.reasons[f"{path}.measured"] = cell.missing
    return {
        "what": row.what,
        "side": row.side,
        "claimed": row.claimed,
        "measured": None if cell.missing else cell.one_line(),
        "value": gaps.number(f"{path}.value", cell.sort, cell.missing or "in words only, see measured"),
        "note": cell.note,
        "source": SOURCE,
    }


def _row(row: LadderRow, path: str, gaps: Gaps) -> dict[str, Any]:
    absent = Measure("", None, "", reason=Notice("not-in-runs"))
    measures = {name: row.measures.get(name, absent) for name in ROW_KEYS}
    if row.tokens_per_chunk is None:
        gaps.reasons[f"{path}.tokens_per_chunk"] = "the trainer's default"
    return {
        "label": row.label,
        "kind": row.kind,
        "fix": row.fix,
        "also": list(row.also),
        "fixes": list(row.fixes),
        "removes": row.removes,
        "rule": row.rule,
        "tokens_per_chunk": row.tokens_per_chunk,
        **{name: gaps.number(f"{path}.{name}", value.value, value.reason) for name, value in measures.items()},
        "ranges": ranges_json(measures),
        "gain": {**ratio_json(row.gain, f"{path}.gain", gaps), "reason": describe(row.gain.reason)},
        "against": row.against,
        "total": {**ratio_json(row.total, f"{path}.total", gaps), "reason": describe(row.total.reason)},
    }
