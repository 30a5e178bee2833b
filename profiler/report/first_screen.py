"""Builds the first screen of a report: what limits the program, where, how much there is to gain, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from profiler.analyse.model import Analysis, Comparison, Topic
from profiler.core.facts import program_name
from profiler.core.units import seconds
from profiler.diagnose.model import RunVerdict
from profiler.report.blocks import CodePlace, FirstScreen, PhaseStrip, Segment
from profiler.report.category_text import PHASES, category_label, category_tone
from profiler.report.comparison_screen_text import (
    comparison_actions,
    comparison_chips,
    comparison_context,
    comparison_headline,
    comparison_why,
)
from profiler.report.first_screen_text import (
    lead_finding,
    place_text,
    run_actions,
    run_chips,
    run_context,
    run_headline,
    run_why,
    strip_change,
    strip_label,
)
from profiler.report.model import ReportInput, ReportSide
from profiler.report.text import host_state
from profiler.report.timeline import main_timeline
from profiler.run.model import Site

PLACES: Final = 5
"""Lines on the first screen of a run."""
_COMPARED_PLACES: Final = 4
"""Lines on that of a comparison, whose timeline is taller than the strip of a step."""
_SMALLEST_PLACE: Final = 0.01
"""Share below which a line is not shown on a first screen."""
_WAITING: Final = "waiting for data"
_OF_DEVICE: Final = (RunVerdict.DEVICE_IDLE, RunVerdict.DEVICE_IDLE_UNEXPLAINED, RunVerdict.DEVICE_BUSY)


def first_screen(report_input: ReportInput, time: str) -> FirstScreen:
    """The first screen of a comparison or of a single run.

    :param time: when it was made, for people.
    """
    if report_input.comparison is not None:
        return _of_comparison(report_input, report_input.comparison, time)
    analysis = report_input.analysis
    assert analysis is not None
    title, places, note = _places(report_input.sides[0])
    name = analysis.info.label or (program_name(analysis.info.argv) if analysis.info.argv else analysis.info.run_id)
    return FirstScreen(
        run_context(analysis, report_input.devices, name, time),
        run_headline(analysis, report_input.devices),
        run_why(analysis),
        run_chips(analysis),
        None if report_input.without_steps else main_timeline(report_input) or _strip(analysis),
        title,
        places,
        note,
        actions=run_actions(analysis),
    )


def _of_comparison(report_input: ReportInput, comparison: Comparison, time: str) -> FirstScreen:
    first = report_input.sides[0]
    title, places, note = _places(first, of=first.label)
    return FirstScreen(
        comparison_context(comparison, report_input.devices, time),
        comparison_headline(report_input),
        comparison_why(report_input),
        comparison_chips(report_input),
        main_timeline(report_input) or _strip(first.detailed),
        title,
        places[:_COMPARED_PLACES],
        note,
        actions=comparison_actions(report_input),
    )


def _strip(analysis: Analysis) -> PhaseStrip | None:
    """One step by its phases, or by the categories of the host's time, with its length after the first change.

    Where the verdict is about a device, by what the device did.
    """
    segments = _device_segments(analysis) if analysis.outcome in _OF_DEVICE else ()
    segments = segments or _phase_segments(analysis) or _category_segments(analysis)
    total = sum(segment.value for segment in segments)
    if not total:
        return None
    lead = lead_finding(analysis)
    if lead is None or lead.is_of_run or lead.gain <= 1:
        return PhaseStrip(strip_label(total), segments)
    after = total / lead.gain
    return PhaseStrip(strip_label(total), segments, after, strip_change(lead, after))


def _segment(label: str, value: float, tone: str) -> Segment:
    return Segment(label, value, seconds(value), tone)


def _phase_segments(analysis: Analysis) -> tuple[Segment, ...]:
    names = {**PHASES, "data": (_WAITING, PHASES["data"][1])}
    phases = [phase for phase in analysis.phases if phase.name in names and phase.seconds_per_step > 0]
    return tuple(_segment(names[phase.name][0], phase.seconds_per_step, names[phase.name][1]) for phase in phases)


def _category_segments(analysis: Analysis) -> tuple[Segment, ...]:
    values = {name: measure.value for name, measure in analysis.breakdown.items() if measure.value}
    return tuple(_segment(category_label(name), value, category_tone(name)) for name, value in values.items())


def _device_segments(analysis: Analysis) -> tuple[Segment, ...]:
    values = {name: measure.value for name, measure in analysis.device_breakdown.items() if measure.value}
    return tuple(_segment(f"device {name}", value, category_tone(name)) for name, value in values.items())


def _places(side: ReportSide, of: str = "") -> tuple[str, tuple[CodePlace, ...], str]:
    """Title, lines and note: where the device is left idle, else the lines with most time.

    :param of: the label of the side, where there are several.
    """
    analysis = side.detailed
    if analysis.outcome == RunVerdict.DEVICE_IDLE and analysis.idle:
        title = f"Where {of} leaves the device idle" if of else "Where the device is left idle"
        return title, idle_places(analysis), "Shares of the time, summed by function."
    thread = analysis.threads[0] if analysis.threads and not analysis.lines else None
    if lines := thread.lines if thread else analysis.lines:
        places = _code_places([(line.site, line.share) for line in lines], lambda site: (site.file, str(site.line)))
        if thread is not None:
            return (
                f"Lines of the {thread.process}, by time",
                places,
                "Shares of its stack samples, start and end included.",
            )
        return f"Lines of {of}, by time" if of else "Your lines, by time", places, "Shares of a step, by stack samples."
    reason = side.why_missing(Topic.FLAME_GRAPH, otherwise="no stack samples were recorded")
    return "Your lines, by time", (), f"No line is known: {reason}."


def idle_places(analysis: Analysis) -> tuple[CodePlace, ...]:
    """The functions in which the host is while the device is idle, the most idle time first."""
    sited = [(row.site, row.share_of_wall) for row in analysis.idle if row.site is not None]
    places = _code_places(sited, lambda site: (site.file, site.function))
    named = tuple(CodePlace(row.share_of_wall, host_state(row)) for row in analysis.idle if row.site is None)
    return _largest((*places, *named))


def _code_places(costs: Iterable[tuple[Site, float]], key: Callable[[Site], tuple[str, str]]) -> tuple[CodePlace, ...]:
    """The places with most time, their lines summed by `key`; each has the location of its largest line."""
    groups: dict[tuple[str, str], list[tuple[Site, float]]] = {}
    for site, share in costs:
        groups.setdefault(key(site), []).append((site, share))
    places = []
    for members in groups.values():
        largest = max(members, key=lambda member: member[1])[0]
        lines = sorted({site.line for site, _ in members})
        path = f"{largest.file}:{largest.line}"
        places.append(CodePlace(sum(share for _, share in members), place_text(largest, lines), largest.source, path))
    return _largest(places)


def _largest(places: Sequence[CodePlace]) -> tuple[CodePlace, ...]:
    """At most PLACES of them, without those that are too small to matter."""
    ranked = sorted((place for place in places if place.share >= _SMALLEST_PLACE), key=lambda place: -place.share)
    return tuple(ranked[:PLACES])
