"""The ladder of fixes in the JSON report: every row with its measures, its gain and the base of the gain."""

from __future__ import annotations

from typing import Any

from profiler.report.model import ReportInput
from profiler.report.render.json import values_of
from reference_trainer.report.ladder import LadderRow, comparison_ladder


def ladder_json(report_input: ReportInput) -> dict[str, Any]:
    """The key `ladder` of a comparison's JSON report; none where the fixes were not measured one by one."""
    ladder = comparison_ladder(report_input.comparison)
    return {"ladder": {**values_of(ladder), "rows": [*map(_row, ladder.rows)]}} if ladder else {}


def _row(row: LadderRow) -> dict[str, Any]:
    """The fields of a row but its last run, with the CPU time that follows from its measures."""
    values = values_of(row)
    del values["analysis"]
    return {**values, "cpu_time": row.cpu_time}
