"""Throughput of each side with its range, the ratio with its interval, and the floor of the baseline's pattern."""

from __future__ import annotations

from profiler.analyse.model import Comparison
from profiler.core.metrics import label
from profiler.report.blocks import Block, Cell, Column, Group, Interval, Intervals, NotMeasured, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.quantities import measure_cell, phrase, ratio_cell, ratio_text
from profiler.report.subject import Subject, View, rate_of, rate_unit, rate_words, ratio, side_view, views
from profiler.report.text import describe

TITLE = "Throughput"
FLOOR_MEANING = "the same calls with empty kernels, the least this pattern can cost"
_LOG_SPAN = 4.0
"""Largest over smallest value from which a logarithmic axis reads better than a linear one."""


def build(subject: Subject) -> Section:
    """Table of sides and floor, then every run and every pair as a dot."""
    sides = views(subject)
    if not isinstance(subject, Comparison):
        return Section("throughput", TITLE, (_of_one(sides[0]),))
    floor = _floor(subject)
    rate = rate_of(subject)
    rows = tuple(_row(subject, view, rate) for view in sides)
    blocks: list[Block] = []
    if floor is not None:
        rows += (_row(subject, floor, rate, note=FLOOR_MEANING),)
    name = rate_words(sides, rate).capitalize()
    blocks.append(Table(_caption(sides[0], name), _columns(name), rows))
    if floor is not None:
        blocks.extend(_floor_text(sides, floor))
    drawn = (_runs_plot((*sides, *((floor,) if floor else ())), rate), _pairs_plot(subject, sides, rate))
    plots = [(title, plot) for title, plot in zip(("Every run", "Every pair"), drawn, strict=True) if plot]
    if len(sides) > 1 and not plots:
        blocks.append(
            NotMeasured("throughput of single runs", describe(sides[0].measure(rate).reason) or "no run is kept")
        )
    if plots:
        blocks.append(Group(tuple((title, (plot,)) for title, plot in plots)))
    return Section("throughput", TITLE, tuple(blocks))


def _of_one(view: View) -> Table:
    """One run: what a step takes, how much that varies, and tokens where steps say them."""
    names: tuple[str, ...] = ("tokens_per_s", "steps_per_s", "step_time", "step_time_p50", "step_time_p95", "steps")
    if view.measure("step_time").n == 1:  # of one step there is no spread
        names = tuple(name for name in names if not name.startswith("step_time_p"))
    found = [name for name in names if view.measure(name).value is not None] or ["step_time"]
    rows = tuple((Cell(label(name)), measure_cell(view.measure(name), spread=True)) for name in found)
    return Table("Over the measured steps", (Column("Measure"), Column(view.label, number=True)), rows)


def _caption(baseline: View, name: str) -> str:
    runs = len(baseline.runs)
    return f"{name}, median and range over {runs} runs" if runs > 1 else name


def _floor(subject: Subject) -> View | None:
    if not isinstance(subject, Comparison) or subject.floor is None:
        return None
    return side_view(subject.floor, "floor")


def _columns(name: str) -> tuple[Column, ...]:
    titles = (name, "Time of a step", "Steps a run", "Ratio")
    return (Column("Side"), *(Column(title, number=True) for title in titles))


def _row(subject: Subject, view: View, rate: str, note: str = "") -> tuple[Cell, ...]:
    baseline = views(subject)[0]
    measured = view.measure(rate)
    if view.label == baseline.label:
        gain = Cell("baseline", sort=1.0)
    else:
        gain = ratio_cell(ratio(subject, view.label, rate), baseline.measures.get(rate), measured)
    return (
        Cell(view.label, note=note),
        measure_cell(measured, spread=True, bare=True),
        measure_cell(view.measure("step_time"), spread=True),
        measure_cell(view.measure("steps")),
        gain,
    )


def _floor_text(sides: tuple[View, ...], floor: View) -> tuple[Text, ...]:
    speed, baseline = floor.measure("tokens_per_s"), sides[0].measure("tokens_per_s").value
    least = speed.value
    if not least or not baseline:
        return ()
    text = (
        f"With kernels that do nothing, the calls of {sides[0].label} still allow only {phrase(least, speed.unit)}: "
        f"{ratio_text(least / baseline)} its throughput is the most that faster kernels could give it."
    )
    best = sides[-1].measure("tokens_per_s").value
    if len(sides) > 1 and best and best > least:
        text += f" {sides[-1].label} passes that floor {ratio_text(best / least)} because it makes fewer calls."
    return (Text(text),)


def _values(view: View, rate: str) -> tuple[float, ...]:
    found = (run.measures.get(rate) for run in view.runs)
    return tuple(m.value for m in found if m is not None and m.value is not None)


def _runs_plot(sides: tuple[View, ...], rate: str) -> Intervals | None:
    rows = []
    for view in sides:
        measured, dots = view.measure(rate), _values(view, rate)
        if measured.value is not None and len(dots) > 1:
            text = phrase(measured.value, measured.unit)
            rows.append(Interval(view.label, view.tone, dots, measured.value, measured.low, measured.high, text))
    if not rows:
        return None
    everything = [dot for row in rows for dot in row.dots]
    log = min(everything) > 0 and max(everything) / min(everything) > _LOG_SPAN
    note = "Logarithmic axis." if log else ""
    title = f"{rate_words(sides, rate).capitalize()}, with median and range"
    return Intervals(title, rate_unit(sides, rate), tuple(rows), log=log, note=note)


def _pairs_plot(subject: Subject, sides: tuple[View, ...], rate: str) -> Intervals | None:
    rows, before = [], _values(sides[0], rate)
    for view in sides[1:]:
        found = ratio(subject, view.label, rate)
        pairs = tuple(last / first for first, last in zip(before, _values(view, rate), strict=False) if first)
        if found is not None and found.value is not None and pairs:
            text = ratio_text(found.value)
            rows.append(Interval(view.label, view.tone, pairs, found.value, found.low, found.high, text))
    if not rows:
        return None
    title = f"{rate_words(sides, rate).capitalize()} over {sides[0].label}, with mean and 95% interval"
    everything = [dot for row in rows for dot in row.dots]
    log = min(everything) > 0 and max(everything) / min(everything) > _LOG_SPAN
    return Intervals(title, f"ratio over {sides[0].label}", tuple(rows), log=log, reference=1.0)


PLUGIN = SectionPlugin("throughput", TITLE, 20, build)
