"""Builds the report of a comparison, a run or its counts: the first screen, and the sections."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import RunCounts
from profiler.analyse.model.host import LineCost
from profiler.analyse.model.measures import CORELESS_CATEGORIES, HOST_CATEGORIES, Topic
from profiler.analyse.model.ranks import RankActivity
from profiler.core.facts import program_name
from profiler.core.plugins import call_plugin, discover, entry_points
from profiler.core.units import seconds
from profiler.diagnose.model import RunVerdict, busy_thread
from profiler.report import comparison_text
from profiler.report import first_screen_text as texts
from profiler.report.action_text import comparison_actions, run_actions
from profiler.report.blocks import Block, CodePlace, FirstScreen, PhaseStrip, Report, Section, Segment
from profiler.report.category_text import PHASES, category_label, category_tone, device_label
from profiler.report.counts import count_report
from profiler.report.finding_text import NO_GAIN, lead_finding
from profiler.report.model import ReportInput, ReportSide, Results, has_no_steps
from profiler.report.text import host_state, local_time, the_process
from profiler.report.timeline import main_timeline
from profiler.run.model import Site

WITHOUT_STEPS = frozenset({"verdict", "doing", "environment", "method"})
"""Sections that can show something about an attached job, or a program that failed before its first step."""


@dataclass(frozen=True, slots=True)
class SectionPlugin:
    """A section of the report: one of `sections/`, or an entry point of the group `training_profiler.sections`."""

    name: str
    """Anchor of the section in a page."""
    title: str
    order: int
    build: Callable[[ReportInput], Section | None]
    """None: the section has nothing to report."""
    json: Callable[[ReportInput], Mapping[str, Any]] | None = None
    """Top-level keys that the section adds to the JSON report of a comparison or a run."""
    group: str = "evidence"
    """One of `profiler.report.blocks.GROUPS`."""


def section(
    name: str, title: str, order: int, group: str, brief: Callable[[ReportInput], Iterable[Block]] = lambda _: ()
) -> Callable[[Callable[[ReportInput], Iterable[Block]]], SectionPlugin]:
    """Declare a function that yields the blocks of a section, none where it has nothing to report.

    :param group: one of `profiler.report.blocks.GROUPS`.
    :param brief: yields what a terminal shows of the section by default.
    """

    def declare(blocks: Callable[[ReportInput], Iterable[Block]]) -> SectionPlugin:
        def build(report_input: ReportInput) -> Section | None:
            content = tuple(blocks(report_input))
            return Section(name, title, content, tuple(brief(report_input))) if content else None

        return SectionPlugin(name, title, order, build, group=group)

    return declare


def section_plugins() -> tuple[SectionPlugin, ...]:
    """Return all sections, in the order in which a report shows them."""
    plugins = (*discover("profiler.report.sections"), *entry_points("sections").values())
    return tuple(sorted(plugins, key=lambda plugin: (plugin.order, plugin.name)))


def build_report(results: Results | RunCounts) -> Report:
    """Build the report of a comparison, of a run or of its counts, without sections of other packages that fail."""
    if isinstance(results, RunCounts):
        return count_report(results)
    report_input = ReportInput.from_results(results)
    foreign = entry_points("sections").values()
    sections = []
    for plugin in section_plugins():
        if report_input.without_steps and plugin.name not in WITHOUT_STEPS:
            continue
        if plugin in foreign:
            content = call_plugin(f"{plugin.name} (section)", plugin.build, report_input)
        else:
            content = plugin.build(report_input)
        if content is not None:
            sections.append(replace(content, group=plugin.group))
    comparison, analysis = report_input.comparison, report_input.analysis
    if comparison is not None:
        title, kind, time = comparison.title, "Comparison", comparison.created_at
    else:
        assert analysis is not None
        title, kind, time = analysis.info.label or analysis.info.run_id or "run", "Run", analysis.info.started_at
    subtitle = f"{kind} · {report_input.devices} · {local_time(time)}"
    return Report(title, subtitle, tuple(sections), first_screen(report_input, local_time(time)))


PLACES: Final = 5
"""Lines on the first screen of a run."""
_COMPARED_PLACES: Final = 4
"""Lines on that of a comparison, whose timeline is taller than the strip of a step."""
_SMALLEST_PLACE: Final = 0.01
"""Share below which a line is not shown on a first screen."""
_OWN: Final = "the program's own time"
_OF_DEVICE: Final = (RunVerdict.DEVICE_IDLE, RunVerdict.DEVICE_IDLE_UNEXPLAINED, RunVerdict.DEVICE_BUSY)


def first_screen(report_input: ReportInput, time: str) -> FirstScreen:
    """Build the first screen of a comparison or of a single run.

    :param time: when it was made, for people.
    """
    first, comparison, analysis = report_input.sides[0], report_input.comparison, report_input.analysis
    devices, picture = report_input.devices, main_timeline(report_input)
    if comparison is not None:
        title, places, note = _places(first, of=first.label)
        labels = " → ".join(side.label for side in comparison.sides)
        return FirstScreen(
            tuple(filter(None, (labels, devices, time))),
            comparison_text.comparison_headline(report_input, comparison),
            comparison_text.comparison_why(report_input, comparison),
            comparison_text.comparison_chips(report_input, comparison),
            picture or _strip(first, compared=True),
            title,
            places[:_COMPARED_PLACES],
            note,
            actions=comparison_actions(report_input, comparison),
        )
    assert analysis is not None
    title, places, note = _places(first)
    name = analysis.info.label or (program_name(analysis.info.argv) if analysis.info.argv else analysis.info.run_id)
    return FirstScreen(
        texts.run_context(analysis, devices, name, time),
        texts.run_headline(analysis, devices),
        texts.run_why(analysis),
        texts.run_chips(analysis),
        None if report_input.without_steps else picture or _strip(first, compared=False),
        title,
        places,
        note,
        actions=run_actions(analysis),
    )


def _strip(side: ReportSide, *, compared: bool) -> PhaseStrip | None:
    """Draw one step as a strip, and how long it would take after the first change.

    Its parts are those of the device where the verdict is about a device, else the phases of the step. They are the
    categories of the host's time where no phases are known, or where waits for a core, which lie in all phases, take
    much of the step. Where a rank makes the others wait, the categories of its time stand beside those of
    a rank that waits.

    :param compared: the step is that of a side of a comparison; the other side shows what a change made of it, so that
        none is predicted.
    """
    analysis = side.detailed
    if has_no_steps(analysis):
        return None
    late, waiting = _late_and_waiting(analysis) if not compared else (None, None)
    segments = _rank_segments(late) if late else ()
    segments = segments or (_device_segments(analysis) if analysis.outcome in _OF_DEVICE else ())
    by_category = _category_segments(analysis)
    segments = segments or (
        by_category if texts.waits_for_cores(analysis) else _phase_segments(analysis) or by_category
    )
    total = sum(segment.value for segment in segments)
    if not total:
        return None
    strip = PhaseStrip(texts.strip_label(side, total, compared=compared), segments)
    if late is not None and waiting is not None:
        strip = replace(strip, beside=PhaseStrip(texts.waiting_label(waiting, late), _rank_segments(waiting)))
    lead = lead_finding(analysis)
    if compared or lead is None or lead.gain < NO_GAIN:
        return strip
    after = total / lead.gain
    return replace(strip, changed=after, change=texts.strip_change(lead, after))


def _late_and_waiting(analysis: Analysis) -> tuple[RankActivity | None, RankActivity | None]:
    """Return the rank that makes the others wait, and the one that waits longest; None where there is none."""
    ledger = analysis.ranks
    if ledger is None or ledger.straggler is None or not all(rank.categories for rank in ledger.ranks):
        return None, None
    late = next(rank for rank in ledger.ranks if rank.rank == ledger.straggler.rank)
    others = [rank for rank in ledger.ranks if rank is not late]
    waiting = max(others, key=lambda rank: rank.categories.get("ranks", 0.0))
    if not waiting.categories.get("ranks"):  # its waits were recorded as something else
        return None, None
    return late, waiting


def _rank_segments(rank: RankActivity) -> tuple[Segment, ...]:
    """Return the categories of a rank's step: phases are known of one rank only, and do not tell its waits."""
    names = [name for name in HOST_CATEGORIES if rank.categories.get(name)]
    return tuple(_segment(category_label(name), rank.categories[name], category_tone(name)) for name in names)


def _segment(label: str, value: float, tone: str) -> Segment:
    return Segment(label, value, seconds(value), tone)


def _phase_segments(analysis: Analysis) -> tuple[Segment, ...]:
    phases = [phase for phase in analysis.phases if phase.name in PHASES and phase.seconds_per_step > 0]
    return tuple(_segment(PHASES[phase.name][0], phase.seconds_per_step, PHASES[phase.name][1]) for phase in phases)


def _category_segments(analysis: Analysis) -> tuple[Segment, ...]:
    """Return the program's own time by category, then what other programs took."""
    values = {name: measure.value for name, measure in analysis.breakdown.items() if measure.value}
    own = {name: value for name, value in values.items() if name not in CORELESS_CATEGORIES}
    segments = [_segment(category_label(name), value, category_tone(name)) for name, value in own.items()]
    others = [_segment(category_label(name), values[name], "idle") for name in CORELESS_CATEGORIES if name in values]
    return (*segments, *others)


def _device_segments(analysis: Analysis) -> tuple[Segment, ...]:
    values = {name: measure.value for name, measure in analysis.device_breakdown.items() if measure.value}
    return tuple(_segment(device_label(name), value, category_tone(name)) for name, value in values.items())


def _places(side: ReportSide, of: str = "") -> tuple[str, tuple[CodePlace, ...], str]:
    """Return title, lines and note: where the device is left idle, else the lines with most time.

    :param of: the label of the side, where there are several.
    """
    analysis = side.detailed
    if analysis.outcome == RunVerdict.DEVICE_IDLE and analysis.idle:
        title = f"Where {of} leaves the device idle" if of else "Where the device is left idle"
        if analysis.is_trace and not texts.trace_has_lines(analysis):
            return (
                f"{title} (no lines: {texts.NO_LINES_IN_TRACE})",
                idle_places(analysis),
                texts.WITH_STACK,
            )
        return title, idle_places(analysis), f"{texts.IDLE_SHARES}; summed by function."
    title = f"Lines of {of}, by time" if of else "Your lines, by time"
    if analysis.lines:
        own = analysis.own_time if not has_no_steps(analysis) else 0.0
        places = _line_places(analysis.lines, _lead_site(analysis), own)
        note = f"Shares of {_OWN if own else 'the run'} come from stack samples."
        if not of and any(phase.low == phase.high for phase in analysis.phases if phase.name in PHASES):
            note += " The parts above are recorded times, so both can differ a little."
        if any(place.share is None for place in places):
            note += " ?: no sample of the training thread shows this line."
        return title, places, note
    thread = busy_thread(analysis)
    thread = thread if thread and thread.lines else None
    if thread is not None and has_no_steps(analysis):
        note = "Shares of the run, with its start and its end, come from stack samples."
        return f"Lines of {the_process(thread.process)}, by time", _line_places(thread.lines), note
    reason = side.why_missing(Topic.FLAME_GRAPH, otherwise="no stack samples were recorded")
    if thread is not None:  # its samples are of the start and of the end, which are no part of any step
        reason = "no stack sample lies within the measured steps"
    if analysis.is_trace:
        reason = texts.ONLY_HOST_LINES if texts.trace_has_lines(analysis) else texts.NO_LINES_IN_TRACE
    lead = lead_finding(analysis)
    if lead is not None and lead.sites:
        places = tuple(_unsampled(site) for site in lead.sites[:PLACES])
        return "Lines of the largest cause", places, f"Their shares are unknown: {reason}."
    return title, (), f"No line is known: {reason}."


def _lead_site(analysis: Analysis) -> Site | None:
    """Return the first line of the finding that the screen is about."""
    lead = lead_finding(analysis)
    return lead.sites[0] if lead is not None and lead.sites else None


def _line_places(lines: Iterable[LineCost], lead: Site | None = None, own: float = 0.0) -> tuple[CodePlace, ...]:
    """Return the lines with most time.

    :param lead: a line that is among them in any case.
    :param own: seconds of a step that are the program's own, of which they have shares; 0: they keep their shares.
    """
    lines = tuple(replace(line, share=min(1.0, line.active / own)) for line in lines) if own else tuple(lines)
    if lead is not None:
        same = (line.site for line in lines if line.site.line == lead.line and lead.is_in_file_of(line.site))
        lead = next(same, lead)
    return _code_places([(line.site, line.share) for line in lines], lambda site: (site.file, str(site.line)), lead)


def _unsampled(site: Site) -> CodePlace:
    """Return a line that a finding names, and of which there is no stack sample."""
    return CodePlace(None, texts.place_text(site, [site.line]), site.source, f"{site.file}:{site.line}")


def idle_places(analysis: Analysis) -> tuple[CodePlace, ...]:
    """Return the functions in which the host is while the device is idle, the most idle time first."""
    sited = [(row.site, row.share_of_wall) for row in analysis.idle if row.site is not None]
    places = _code_places(sited, lambda site: (site.file, site.function), _lead_site(analysis))
    named = tuple(CodePlace(row.share_of_wall, host_state(row)) for row in analysis.idle if row.site is None)
    return _largest((*places, *named))


def _code_places(
    costs: Iterable[tuple[Site, float]], key: Callable[[Site], tuple[str, str]], lead: Site | None = None
) -> tuple[CodePlace, ...]:
    """Return the places with most time, their lines summed by `key`; each has the location of its largest line.

    :param lead: a line that is among them in any case.
    """
    groups: dict[tuple[str, str], list[tuple[Site, float]]] = {}
    for site, share in costs:
        groups.setdefault(key(site), []).append((site, share))
    places = {}
    for name, members in groups.items():
        largest = max(members, key=lambda member: member[1])[0]
        lines = sorted({site.line for site, _ in members})
        path = f"{largest.file}:{largest.line}"
        total = sum(share for _, share in members)
        places[name] = CodePlace(total, texts.place_text(largest, lines), largest.source, path)
    chosen = _largest(places.values())
    if lead is None or places.get(key(lead)) in chosen:
        return chosen
    return tuple(sorted((*chosen[: PLACES - 1], places.get(key(lead)) or _unsampled(lead)), key=_rank))


def _largest(places: Iterable[CodePlace]) -> tuple[CodePlace, ...]:
    """Return at most PLACES of them, without those that are too small to matter."""
    return tuple(sorted((place for place in places if -_rank(place) >= _SMALLEST_PLACE), key=_rank)[:PLACES])


def _rank(place: CodePlace) -> float:
    """Return the largest share first; after them a line that a finding names and whose share is not known."""
    return math.inf if place.share is None else -place.share
