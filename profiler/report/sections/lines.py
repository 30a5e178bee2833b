"""Shows the lines of the program's own code: the parts of a step and its lines, threads, and flame graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import PurePath
from typing import TypeVar

from profiler.analyse.model.host import FlameDiff, FlameNode, LineCost, ThreadActivity
from profiler.analyse.model.measures import MIN_SAMPLES, Topic
from profiler.core.metrics import label
from profiler.report import blocks as b
from profiler.report.build import section
from profiler.report.category_text import PHASES, category_label
from profiler.report.model import ReportInput, ReportSide
from profiler.report.table import (
    Field,
    RowKey,
    in_one_table,
    make_table,
    more_lines,
    percent,
    phrase,
    ratio_text,
    row_key,
    seconds_cell,
    share_cell,
    short_site,
    sides_table,
    site_cell,
)
from profiler.report.text import THREAD_STATES, plural, step_text
from profiler.run.model import Site

# ---------------------------------------------------------------- lines

_MAX_LINES, _BRIEF_LINES, _COMPARED_LINES = 25, 6, 4
_SMALLEST_CATEGORY = 0.1
"""Share of a line's time below which a category is not mentioned."""


def callee_cell(line: LineCost) -> b.Cell:
    """Return the function that a line calls, with its module or class; the title has the full name."""
    if not line.calls:
        return b.Cell(b.NOTHING)
    return b.Cell(".".join(line.calls.replace("<locals>.", "").split(".")[-2:]), title=line.calls, code=True)


def _categories(line: LineCost) -> b.Cell:
    """Return the categories of a line, the largest first: `compute 80%, python 20%`."""
    total = sum(line.categories.values()) or 1.0
    ranked = sorted(((name, value / total) for name, value in line.categories.items()), key=lambda item: -item[1])
    shown = [(name, share) for name, share in ranked if share >= _SMALLEST_CATEGORY] or ranked[:1]
    if len(shown) == 1:
        return b.Cell(category_label(shown[0][0]))
    return b.Cell(", ".join(f"{category_label(name)} {100 * share:.0f}%" for name, share in shown))


_BRIEF_FIELDS = (
    Field[LineCost]("Line", lambda line: site_cell(line.site)),
    Field[LineCost]("Time", lambda line: seconds_cell(line.seconds_per_step), number=True),
    Field[LineCost]("Share", lambda line: share_cell(line.share, (line.low, line.high)), number=True, bar=True),
    Field[LineCost]("What it is", _categories),
)


def _with_callee(cell: b.Cell, line: LineCost) -> b.Cell:
    """Add the function that takes a line's time: half a page has no column for it."""
    return replace(cell, note=f"in {callee_cell(line).text}") if line.calls else cell


_FIELDS = (
    *_BRIEF_FIELDS[:-1],
    Field[LineCost]("What it is", lambda line: _with_callee(_categories(line), line)),
)


def _time_and_share(line: LineCost) -> b.Cell:
    interval = f"{100 * line.low:.0f} to {_rounded(line.high)}"
    return replace(seconds_cell(line.seconds_per_step), note=f"{_rounded(line.share)}, {interval}")


def _largest_category(line: LineCost) -> b.Cell:
    name = max(line.categories, key=lambda name: line.categories[name], default="")
    part = line.categories.get(name, 0.0) / (sum(line.categories.values()) or 1.0)
    text = category_label(name) if part > 1.0 - _SMALLEST_CATEGORY else f"{category_label(name)} {_rounded(part)}"
    return _with_callee(b.Cell(text if name else b.NOTHING), line)


_COMPARED_FIELDS = (
    Field[LineCost]("Time", _time_and_share, number=True),
    Field[LineCost]("Mostly", _largest_category),
)


def _brief_lines(report_input: ReportInput) -> Iterator[b.Block]:
    """Yield the parts and lines of the first side that has them, unless both stand compared below the verdict."""
    sides = report_input.sides
    if not (list(compare_phases(sides)) and list(compare_lines(sides))):
        first = next(side for side in sides if side.detailed.lines)
        if phases := first.detailed.phases:
            parts = tuple(
                b.Segment(PHASES[each.name][0], each.seconds_per_step, percent(each.share), PHASES[each.name][1])
                for each in phases
                if each.name in PHASES
            )
            total = phrase(sum(phase.seconds_per_step for phase in phases), "s")
            yield b.StackedBars("The parts of a step", (b.Bar(first.label, parts, total),), share=True)
        lines = first.detailed.lines[:_BRIEF_LINES]
        yield make_table("Lines with most of the training thread's time, per step", _BRIEF_FIELDS, lines)


@section("lines", "Time by line", 32, "code", brief=_brief_lines)
def lines(report_input: ReportInput) -> Iterator[b.Block]:
    """Show the lines of each side. Without stack samples there are none; the section with the flame graph says why."""
    sides = [side for side in report_input.sides if side.detailed.lines]
    tables = list(map(_lines_table, in_one_table(sides, _shown_lines, _line_key)))
    yield from tables[:-1]
    steps = dict.fromkeys(step_text(side.detailed.step) for side in sides if side.detailed.step)
    counted = f"Counted as steps: {'; '.join(steps)}." if steps else ""
    for last in tables[-1:]:
        yield replace(last, note=" ".join(filter(None, (_LINES_NOTE, counted, last.note))))
    comparison = report_input.comparison
    if comparison is not None and comparison.flame_diff is not None and report_input.lines_differ_many_times:
        yield _slopes(report_input)


def _shown_lines(side: ReportSide) -> Sequence[LineCost]:
    return side.detailed.lines[:_MAX_LINES]


def _line_key(line: LineCost) -> RowKey:
    return row_key(line.site)


_LINES_NOTE = "Shares of a step of the training thread, with 95% intervals from the number of stack samples."


def _lines_table(sides: Sequence[ReportSide]) -> b.Table:
    """Return the lines with most time; of several sides in one table, each with what it is there."""
    several, notes = len(sides) > 1, list[str]()
    for side in sides:
        costs, of = side.detailed.lines, f"{side.label}: " * several
        if (samples := sum(line.samples for line in costs)) < MIN_SAMPLES:
            few = "only" if several else "Only"
            notes.append(
                f"{of}{few} {plural(samples, 'stack sample')}: with fewer than {MIN_SAMPLES}, shares are only a hint."
            )
        if remaining := costs[_MAX_LINES:]:
            share = sum(line.share for line in remaining)
            notes.append(f"{of}{more_lines(len(remaining), share)} of the step.")
    rows = [(side, _shown_lines(side)) for side in sides]
    caption = "time by innermost line of the program's own code, per step"
    fields = _COMPARED_FIELDS if several else _FIELDS[1:]
    return sides_table(caption, rows, _line_key, _FIELDS[:1], fields, note=" ".join(notes))


def compare_phases(sides: tuple[ReportSide, ...]) -> Iterator[b.Table]:
    """Yield the parts of a step of all sides in seconds; nothing unless the parts of every side are known."""
    seconds = [{phase.name: phase.seconds_per_step for phase in side.detailed.phases} for side in sides]
    if len(sides) < 2 or not all(seconds):
        return

    def field(side: ReportSide, phases: dict[str, float]) -> Field[str]:
        def cell(name: str) -> b.Cell:
            return seconds_cell(phases[name]) if phases.get(name) else b.Cell("none", sort=0.0)

        return Field(side.label, cell, number=True, tone=side.tone)

    names = dict.fromkeys(name for phases in seconds for name in phases)
    present = [name for name in names if any(phases.get(name) for phases in seconds)]
    fields = [Field[str]("Part", lambda name: b.Cell(label(name))), *map(field, sides, seconds)]
    yield make_table(f"The parts of a step{_source_note(sides)}", fields, present)


_SideLine = tuple[ReportSide, LineCost]
_Rank = tuple[LineCost | None, ...]
"""The line of each side that takes most time, that takes second most, ..."""
_SIDE_LINE_FIELDS = (
    Field[_SideLine]("Side", lambda row: b.Cell(row[0].label)),
    Field[_SideLine]("Line", lambda row: site_cell(row[1].site)),
    Field[_SideLine]("Time per step", lambda row: seconds_cell(row[1].seconds_per_step), number=True),
    Field[_SideLine]("Share", lambda row: share_cell(row[1].share), number=True, bar=True),
)


def compare_lines(sides: tuple[ReportSide, ...]) -> Iterator[b.Table]:
    """Yield the lines with most time of each side: two sides beside each other, more of them below each other.

    Lines are not matched: an edited program has other numbers for the same lines.
    """
    if len(sides) < 2 or not all(side.detailed.phases and side.detailed.lines for side in sides):
        return
    caption = f"The lines with most time{_source_note(sides)}"
    if len(sides) == 2:
        fields = [field for index, side in enumerate(sides) for field in _ranked(index, side)]
        ranks = zip_longest(*(side.detailed.lines[:_COMPARED_LINES] for side in sides))
        note = "Each side is sorted by its own times; percentages are of that side's step."
        yield make_table(caption, fields, ranks, note)
    else:
        rows = [(side, line) for side in sides for line in side.detailed.lines[:_COMPARED_LINES]]
        yield make_table(caption, _SIDE_LINE_FIELDS, rows)


def _ranked(index: int, side: ReportSide) -> tuple[Field[_Rank], Field[_Rank]]:
    """Return the columns of a side: its line of each rank, and the time of that."""

    def location(row: _Rank) -> b.Cell:
        line = row[index]
        if line is None:
            return b.Cell(b.NOTHING)
        # two columns of locations in half a page: without folders
        return replace(site_cell(line.site), text=f"{PurePath(line.site.file).name}:{line.site.line}")

    def time(row: _Rank) -> b.Cell:
        line = row[index]
        return replace(seconds_cell(line.seconds_per_step), note=percent(line.share)) if line else b.Cell(b.NOTHING)

    times = Field(f"{side.label}: per step", time, number=True, tone=side.tone)
    return Field(f"{side.label}: line", location), times


def _source_note(sides: tuple[ReportSide, ...]) -> str:
    notes = {side.source_note for side in sides}
    return notes.pop() if len(notes) == 1 else ""


# ---------------------------------------------------------------- threads

_MAX_STATES = 4
_SMALLEST_SHARE = 0.02
"""States that a sentence mentions after the first one take at least this share."""
_THREADS_NOTE = (
    "Shares come from stack samples of the whole recording, start and end included, with 95% intervals. "
    "On CPU comes from the clock of the thread, and GIL from samples of its holder."
)


def _threads_summary(report_input: ReportInput) -> Iterator[b.Block]:
    """Yield a sentence per thread of a running job, and the lines of all threads."""
    analysis = report_input.analysis
    if analysis is not None and analysis.threads:
        if analysis.info.state == "attached":
            yield b.Items(tuple(map(_thread_sentence, analysis.threads)))
        if rows := [(thread, line) for thread in analysis.threads for line in thread.lines]:
            fields = _THREAD_LINE_FIELDS[len(analysis.threads) == 1 :]
            yield make_table("Lines with most time, of the whole recording", fields, rows)


def _brief_threads(report_input: ReportInput) -> Iterator[b.Block]:
    if report_input.analysis is not None and report_input.analysis.info.state == "attached":
        yield from _threads_summary(report_input)


@section("doing", "What each thread was doing", 28, "code", brief=_brief_threads)
def threads(report_input: ReportInput) -> Iterator[b.Block]:
    """Show the states of each sampled thread; nothing without stack samples, and for comparisons."""
    yield from _threads_summary(report_input)
    if report_input.analysis is not None and (activities := report_input.analysis.threads):
        yield make_table("Shares of the sampled time", _THREAD_FIELDS, activities, _THREADS_NOTE)


def _thread_sentence(thread: ThreadActivity) -> str:
    """`rank 0 (1234): waiting for data 62% of the time, 55% at train.py:44: for batch in loader: [in ...]; else ...`"""
    name = f"{thread.process} ({thread.pid})" + (f", thread {thread.thread}" if thread.thread else "")
    text = f"{name}: {THREAD_STATES[thread.state]} {_rounded(thread.share)} of the time"
    if thread.site:
        at_site = _rounded(thread.share_at_site)
        text += f"{'' if at_site == _rounded(thread.share) else f', {at_site}'} at {short_site(thread.site)}"
        text += f": {thread.site.source}" if thread.site.source else ""
    text += f" [in {thread.calls}]" if thread.calls else ""
    further = [(state, share) for state, share in thread.states[1:_MAX_STATES] if share >= _SMALLEST_SHARE]
    if further:
        text += "; else " + ", ".join(f"{THREAD_STATES[state]} {_rounded(share)}" for state, share in further)
    return text


def _rounded(share: float) -> str:
    return f"{100 * share:.0f}%"


def _sampled_share(row: ThreadActivity | LineCost) -> b.Cell:
    return share_cell(row.share, note=f"{_rounded(row.low)} to {_rounded(row.high)}")


def _thread_name(thread: ThreadActivity) -> b.Cell:
    return b.Cell(f"{thread.process} {thread.pid}" + (f", {thread.thread}" if thread.thread else ""))


_THREAD_FIELDS = (
    Field[ThreadActivity]("Process, thread", _thread_name),
    Field[ThreadActivity]("Mostly", lambda thread: b.Cell(THREAD_STATES[thread.state])),
    Field[ThreadActivity]("Share", _sampled_share, number=True, bar=True),
    Field[ThreadActivity](
        "On CPU", lambda thread: share_cell(thread.on_cpu, missing="the thread's clock was not read"), number=True
    ),
    Field[ThreadActivity](
        "GIL", lambda thread: share_cell(thread.gil, missing="no window of the GIL's holder was recorded"), number=True
    ),
    Field[ThreadActivity](
        "Samples", lambda thread: b.Cell(f"{thread.samples:,}", sort=float(thread.samples)), number=True
    ),
)
_ThreadLine = tuple[ThreadActivity, LineCost]


def _thread_of_line(row: _ThreadLine) -> b.Cell:
    """Return the thread's name, in the first of its rows."""
    thread, line = row
    name = _thread_name(thread)
    return name if line is thread.lines[0] else b.Cell("", title=name.text)


def _mostly(row: _ThreadLine) -> b.Cell:
    line = row[1]
    state = max(line.categories, key=lambda name: (line.categories[name], name), default="")
    return _with_callee(b.Cell(THREAD_STATES.get(state, state)), line)


_THREAD_LINE_FIELDS = (
    Field[_ThreadLine]("Process, thread", _thread_of_line),
    Field[_ThreadLine]("Line", lambda row: site_cell(row[1].site)),
    Field[_ThreadLine]("Share", lambda row: _sampled_share(row[1]), number=True, bar=True),
    Field[_ThreadLine]("Mostly", _mostly),
)


# ---------------------------------------------------------------- flame graphs

_SMALLEST_FRAME = 0.001
"""Frames below this share of the root are left out: at 1,000 pixels they are less than one wide."""
_MAX_DEPTH = 100
"""Frames below this depth are left out: no page shows them, and recursion must end."""
_FLAME_NOTE = (
    "Width is time, and callers stand above. Choose a frame to zoom in, and a chain of calls to open it. "
    "Callees stand in the order in which a step runs them."
)
Node = TypeVar("Node", FlameNode, FlameDiff)


@section("flame", "Flame graphs", 80, "code")
def flame_graphs(report_input: ReportInput) -> Iterator[b.Block]:
    """Show a graph for each side that has stacks, then the difference, unless a slope chart of functions shows it."""
    last = max((n for n, side in enumerate(report_input.sides) if side.detailed.flame), default=0)
    for number, side in enumerate(report_input.sides):
        root = side.detailed.flame
        if root is None or root.value <= 0:
            yield side.not_measured("flame graph", Topic.FLAME_GRAPH, otherwise="no stack samples were recorded")
        else:
            caption = f"{side.label}: {phrase(root.value, 's')} per step, by stack samples"
            whole = root.value

            def frame(node: FlameNode, children: tuple[b.Frame, ...], whole: float = whole) -> b.Frame:
                text = f"{percent(node.value / whole)}, {phrase(node.value, 's')}"
                return b.Frame(node.name, node.value, text, *_line_of(node), position=node.position, children=children)

            frames = _frames(root, lambda node: node.value, frame)
            yield b.Flame(caption, frames, note=_FLAME_NOTE if number == last else "")
    comparison = report_input.comparison
    if comparison is not None and comparison.flame_diff is not None and not report_input.lines_differ_many_times:
        yield from _flame_difference(report_input, comparison.flame_diff)


_SLOPES = 6
"""Functions in a slope chart."""


def _slopes(report_input: ReportInput) -> b.Block:
    """Return the functions with most time on both sides, which differ many times.

    Sides that have no function in common are told as such: every frame of their difference would have one colour.
    """
    sides = report_input.sides[0], report_input.sides[-1]
    work = report_input.compared_work
    times = [_function_times(side, each) for side, each in zip(sides, work or (1.0, 1.0), strict=True)]
    totals = [sum(seconds for seconds, _ in each.values()) for each in times]
    unit = sides[0].measure("tokens_per_s").unit.removesuffix("/s").removesuffix("s") if work else "step"
    # the largest shares: all of the longest times may be of the slower side
    shares = [
        {key: seconds / total for key, (seconds, _) in each.items()} for each, total in zip(times, totals, strict=True)
    ]
    keys = sorted({*times[0], *times[1]}, key=lambda key: (-max(each.get(key, 0.0) for each in shares), key))
    names = _names_of_functions(keys[:_SLOPES])
    slopes = tuple(_slope(name, times[0].get(key), times[1].get(key)) for key, name in names.items())
    if not any(slope.change for slope in slopes):
        return b.Text(f"{sides[0].label} and {sides[1].label} have none of the functions with most time in common.")
    first, last = (b.Column(side.label, number=True, tone=side.tone) for side in sides)
    note = (
        f"Seconds per {unit} on a logarithmic scale, by the innermost function of the program's own code. "
        f"Shown: the {plural(len(slopes), 'function')} with the largest share of either side's time. "
        f"{b.NOTHING}: no sample saw it."
    )
    return b.SlopeChart(f"{first.title} to {last.title}: time of functions per {unit}", (first, last), slopes, note)


def _function_times(side: ReportSide, work: float) -> dict[tuple[str, str], tuple[float, Site]]:
    """(file, function) -> its seconds per unit of work, and its line with most time."""
    times: dict[tuple[str, str], tuple[float, Site]] = {}
    for line in side.detailed.lines:
        key = line.site.file, line.site.function
        seconds, site = times.get(key, (0.0, line.site))
        times[key] = seconds + line.seconds_per_step / work, site
    return times


def _names_of_functions(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """(file, function) -> `forward (model.py)`; with its class where two would be equal, as the file has both."""
    short, whole = ([_name_of_function(*key, parts) for key in keys] for parts in (1, 2))
    return {key: one if short.count(one) == 1 else two for key, one, two in zip(keys, short, whole, strict=True)}


def _name_of_function(file: str, function: str, parts: int) -> str:
    if function in {"", "<module>"}:
        return PurePath(file).name
    names = function.replace("<locals>.", "").split(".")
    parts += names[-1].startswith("<")  # a lambda or a comprehension, of which the function around it tells more
    return f"{'.'.join(names[-parts:])} ({PurePath(file).name})"


def _slope(name: str, before: tuple[float, Site] | None, after: tuple[float, Site] | None) -> b.Slope:
    known = after or before
    values = before[0] if before else None, after[0] if after else None
    first, last = (phrase(value, "s") if value else b.NOTHING for value in values)
    change = ratio_text(values[1] / values[0]) if values[0] and values[1] else ""
    return b.Slope(name, values, (first, last), change, f"{known[1].file}:{known[1].line}" if known else "")


def _flame_difference(report_input: ReportInput, root: FlameDiff) -> Iterator[b.Block]:
    first, last = report_input.sides[0].label, report_input.sides[-1].label
    if root.before + root.after <= 0:
        yield b.NotMeasured("difference of the flame graphs", "neither side has stack samples")
        return

    def frame(node: FlameDiff, children: tuple[b.Frame, ...]) -> b.Frame:
        total = node.before + node.after
        text = f"{phrase(node.before, 's')} to {phrase(node.after, 's')}"
        lean = (node.after - node.before) / total if total > 0 else 0.0
        return b.Frame(node.name, total, text, *_line_of(node), lean, children=children)

    note = (
        f"Width is the time of both sides together. Orange: more time in {last} than in {first}; blue: less; "
        "grey: the same. A frame that is fully one colour exists on one side only."
    )
    frames = _frames(root, lambda node: node.before + node.after, frame)
    yield b.Flame(f"{first} to {last}: difference", frames, difference=True, note=note)


def _frames(
    root: Node, value: Callable[[Node], float], frame: Callable[[Node, tuple[b.Frame, ...]], b.Frame]
) -> b.Frame:
    """Return the tree of frames, the widest children first, without what is too narrow or too deep to be seen."""
    smallest = value(root) * _SMALLEST_FRAME

    def convert(node: Node, depth: int) -> b.Frame:
        children = [child for child in node.children if value(child) >= smallest and depth < _MAX_DEPTH]
        children.sort(key=lambda child: (-value(child), child.name))
        return frame(node, tuple(convert(child, depth + 1) for child in children))

    return convert(root, 0)


def _line_of(node: FlameNode | FlameDiff) -> tuple[str, str]:
    """Return the location of a frame, and the text of its line."""
    return (f"{node.site.file}:{node.site.line}", node.site.source) if node.site is not None else ("", "")


PLUGINS = (lines, threads, flame_graphs)
