"""The first screen: how much faster, how sure, why it was slow, what changed."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.model import Comparison, Ratio
from profiler.core.metrics import label
from profiler.report.blocks import Block, Callout, Cell, Group, Section, Stat, Stats, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.compare_table import compare_table
from profiler.report.doubts import not_alone
from profiler.report.ended import ended, without_steps
from profiler.report.quantities import factor, measure_cell, missing_cell, percent, phrase, short_site
from profiler.report.sections._key import key_numbers, key_table
from profiler.report.sections._parts import lines_table, parts_table
from profiler.report.sections.breakdown import share_bars
from profiler.report.sections.idle import blame_summary
from profiler.report.sections.lines import top_lines
from profiler.report.subject import (
    Subject,
    View,
    devices,
    failed_first,
    looked_at,
    of_pass,
    rate_of,
    rate_words,
    ratio,
    views,
)
from profiler.report.text import describe, host_state, mismatches

TITLE = "Verdict"
_HEADLINE = 120
"""Characters that read well in large type."""
_BRIEF_LINES = 3
KEY_MEASURES = (
    "tokens_per_s",
    "device_utilization",
    "syncs_per_step",
    "h2d_per_step",
    "d2h_per_step",
    "allocations_per_step",
    "host_cpu",
    "loss",
)

_OF_STEPS = (
    "steps_per_s",
    "step_time",
    *KEY_MEASURES[1:5],
    "would_sync_per_step",
    "allocations_per_step",
    "host_cpu",
    "children_cpu",
    "peak_memory",
    "loss",
    "accuracy",
)
"""Of programs that do not say their tokens, or have no device with a queue: what applies to them is not known before,
so only what was measured."""


def build(subject: Subject) -> Section:
    """Verdict, key numbers, and the reason beside the change."""
    sides = views(subject)
    warnings = _warnings(subject)
    verdict = _verdict(subject, f"Measured on {devices(sides)}")
    if looked_at(subject) or failed_first(subject):
        return Section("verdict", TITLE, (verdict, *warnings), brief=(verdict, *warnings))
    compared = isinstance(subject, Comparison)
    rate = rate_of(subject)
    table = compare_table(subject, _measures(sides, rate), "Before and after") if compared else key_table(sides[0])
    more = (*parts_table(sides), *lines_table(sides))
    over = f"over {sides[0].label}, {rate_words(sides, rate)}"
    ratios = [_ratio_stat(view, ratio(subject, view.label, rate), over) for view in sides[1:]]
    why: tuple[Block, ...] = (
        Text(_why(sides[0])),
        *share_bars(sides, "Host time of a step, as shares"),
        *blame_summary(sides[0]),
        *_lines(subject, sides[0]),
    )
    changed = f"What {sides[-1].label} changes" if len(sides) > 1 else "In numbers"
    columns = ((_question(sides), why), (changed, (table, *more)))
    # the table of three or more sides needs the whole width
    groups = (Group(columns),) if len(sides) < 3 else tuple(Group((column,)) for column in columns)
    said = tuple(Text(_in_words(stat)) for stat in ratios)
    blocks: tuple[Block, ...] = (verdict, *warnings, _stats(subject, sides, ratios), *groups)
    return Section("verdict", TITLE, blocks, brief=(verdict, *warnings, *said, table, *more))


def _measures(sides: tuple[View, ...], rate: str) -> tuple[str, ...]:
    if rate == KEY_MEASURES[0] and not _on_cpu(sides):
        return KEY_MEASURES
    names = (rate, *_OF_STEPS[1:])
    return tuple(name for name in names if any(view.measure(name).value is not None for view in sides))


def _on_cpu(sides: tuple[View, ...]) -> bool:
    """Whether all of them are plain torch on the CPU: it has no queue, and so no figures of one."""
    return all(view.info.facts.get("device") == "cpu" for view in sides)


def _verdict(subject: Subject, measured: str) -> Callout:
    """Of a program that ended badly before its first step, only that: a time that it took to fail has no cure."""
    if not isinstance(subject, Comparison) and failed_first(subject):
        return Callout(f"The program {ended(subject.info)}; no step was seen.", "verdict", "How it ended")
    return _sentence(subject.verdict or "No verdict was reached.", subject.headline, measured)


def _sentence(verdict: str, headline: str, label: str) -> Callout:
    """The verdict; of a long one what follows the headline goes into smaller type."""
    if len(verdict) <= _HEADLINE or not headline:
        return Callout(verdict, "verdict", label)
    return Callout(headline, "verdict", label, detail=verdict[len(headline) :].strip())


def _warnings(subject: Subject) -> tuple[Callout, ...]:
    """What qualifies the verdict."""
    load = not_alone(subject)
    return (*_of_the_end(subject), *((Callout(load, "warning", "Not alone"),) if load else ()))


def _of_the_end(subject: Subject) -> tuple[Callout, ...]:
    """Programs that ended early, and sides that are not comparable."""
    if not isinstance(subject, Comparison):
        bad = "" if without_steps(subject) else ended(subject.info)
        return (Callout(f"The program {bad}: only its first part is here.", "warning", "Ended early"),) if bad else ()
    if subject.comparable:
        return _ended_early(subject)
    reasons = mismatches(subject.mismatches) or "no reason was recorded"
    if subject.forced:
        text = f"These sides are not comparable: {reasons}. Compared all the same (--anyway); no ratio here is a gain."
        return (Callout(text, "warning", "Forced"), *_ended_early(subject))
    return (Callout(f"These sides are not comparable: {reasons}.", "warning", "Not comparable"),)


def _ended_early(comparison: Comparison) -> tuple[Callout, ...]:
    """Beside the ratio: runs whose numbers are of a part of them."""
    said = {f"{s.label} {bad}": None for s in comparison.sides for run in s.runs if (bad := ended(run.info))}
    return (
        (Callout(f"{'; '.join(said)}. Ratios are of the parts before that.", "warning", "Ended early"),) if said else ()
    )


def _lines(subject: Subject, view: View) -> tuple[Table, ...]:
    """Of one run without device idle time to explain: the lines that cost most."""
    if isinstance(subject, Comparison) or view.any_detail.idle or not view.any_detail.lines:
        return ()
    table = top_lines(view, _BRIEF_LINES)
    return (replace(table, columns=table.columns[:3], rows=tuple(row[:3] for row in table.rows)),)


def _question(sides: tuple[View, ...]) -> str:
    return f"Why {sides[0].label} takes its time" if len(sides) > 1 else "Where the time goes"


def _why(view: View) -> str:
    """The baseline's own verdict, else its largest cause in numbers, else that it is not known."""
    own = view.any_detail.verdict or next((run.verdict for run in view.runs if run.verdict), "")
    if own and view.slowdown is not None:  # a single run's verdict stands above already
        return f"{own} Measured in the breakdown pass." if of_pass(view) else own
    if view.any_detail.idle:
        first = view.any_detail.idle[0]
        where = f" at {short_site(first.site)}" if first.site else ""
        return f"The device idles {percent(first.share_of_wall)} of the time {host_state(first)}{where}."
    known = [m for m in view.any_detail.breakdown.values() if m.value]
    if known:
        largest = max(known, key=lambda m: m.value or 0.0)
        return f"The largest part of a step is {largest.name}: {phrase(largest.value or 0.0, 's')}."
    return "Not known: neither a breakdown nor device idle time was recorded."


def _stats(subject: Subject, sides: tuple[View, ...], ratios: list[Stat]) -> Stats:
    """The ratios, the last side's first; of one or two sides what stands behind them too."""
    if not isinstance(subject, Comparison):
        return Stats(tuple(Stat(title, replace(cell, note="")) for title, cell in key_numbers(sides[0])))
    if len(sides) > 2:
        return Stats(tuple(reversed(ratios)))
    items, rate = list(ratios), rate_of(subject)
    names = (rate, "device_utilization")
    if (rate != KEY_MEASURES[0] or _on_cpu(sides)) and all(view.measure(names[1]).value is None for view in sides):
        names = (rate, "step_time")
    for name in names:
        for view in sides:
            cell = measure_cell(view.measure(name), share=name == "device_utilization", spread=len(sides) > 1)
            title = f"{label(name)}, {view.label}" if len(sides) > 1 else label(name)
            items.append(Stat(title, cell, tone=view.tone if len(sides) > 1 else ""))
    return Stats(tuple(items))


def _ratio_stat(after: View, found: Ratio | None, over: str) -> Stat:
    title = f"{after.label} {over}"
    if found is None or found.value is None:
        return Stat(title, missing_cell(found.reason if found else "no pair of runs was measured"), tone=after.tone)
    detail = describe(found.reason) or f"{found.n} pair{'s' * (found.n != 1)}"
    if found.low is not None and found.high is not None:
        detail = f"95% interval {factor(found.low)[0]} to {factor(found.high)[0]}, {found.n} pairs"
    if not found.different and not found.reason:
        detail = f"no difference seen: {detail}"
    return Stat(title, Cell(*factor(found.value), sort=found.value, note=detail), tone=after.tone)


def _in_words(stat: Stat) -> str:
    """A ratio as a sentence, for where no key number can be drawn large."""
    if stat.value.missing:
        return f"{stat.label}: not measured: {stat.value.missing}"
    return f"{stat.label}: {stat.value.text}{stat.value.unit} ({stat.value.note})"


PLUGIN = SectionPlugin("verdict", TITLE, 10, build)
