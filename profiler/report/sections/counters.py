"""What a step asks of the device: syncs, copies, bytes, allocations, launches, with ratios."""

from __future__ import annotations

from profiler.core.metrics import PER_STEP, in_order
from profiler.report.blocks import NotMeasured, Section
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput
from profiler.report.table import compare_table

TITLE = "Counters per step"


def build(report_input: ReportInput) -> Section | None:
    """One table of all counters; for a run without a queue of those that it has."""
    sides = report_input.sides
    counters = {name for side in sides for name in (*side.measures, *side.detailed.measures) if name.endswith(PER_STEP)}
    if report_input.has_no_queue:
        counters = {name for name in counters if sides[0].has(name)}
        if not counters:
            return None
    if not counters:
        gap = NotMeasured("counters per step", "the program's device counts nothing")
        return Section("counters", TITLE, (gap,))
    note = "Counted, not sampled: every call of the measured steps is in these numbers."
    table = compare_table(report_input, in_order(counters), "Calls and bytes per step", note=note)
    return Section("counters", TITLE, (table,))


PLUGIN = SectionPlugin("counters", TITLE, 50, build)
