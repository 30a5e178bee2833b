"""What a step asks of the device: syncs, copies, bytes, allocations, launches, with ratios."""

from __future__ import annotations

from profiler.core.metrics import PER_STEP, in_order
from profiler.report.blocks import NotMeasured, Section
from profiler.report.build import SectionPlugin
from profiler.report.compare_table import compare_table
from profiler.report.subject import Subject, views, without_queue

TITLE = "Counters per step"


def build(subject: Subject) -> Section | None:
    """One table of everything that was counted; of a run without a queue, of what it counted all the same."""
    sides = views(subject)
    found = {
        name
        for view in sides
        for measures in (view.measures, view.any_detail.measures)
        for name in measures
        if name.endswith(PER_STEP)
    }
    if without_queue(subject):
        found = {name for name in found if sides[0].measure(name).value is not None}
        if not found:
            return None
    if not found:
        reason = "the program's device counts nothing"
        return Section("counters", TITLE, (NotMeasured("counters per step", reason),))
    note = "Counted, not sampled: every call of the measured steps is in these numbers."
    return Section("counters", TITLE, (compare_table(subject, in_order(found), "Calls and bytes a step", note=note),))


PLUGIN = SectionPlugin("counters", TITLE, 50, build)
