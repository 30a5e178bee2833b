"""Reports on runs that were counted: what each line makes the device and its host do in a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from profiler.analyse.model.comparison import Mismatch
from profiler.analyse.model.device import RunCounts, SiteCount
from profiler.core.facts import program_name
from profiler.core.units import nth, rate, significant, size
from profiler.report.action_text import command_text, keep_action
from profiler.report.blocks import Cell, Chip, CodePlace, FirstScreen, Headline, Places, Report, Section, Table
from profiler.report.notices import mismatches
from profiler.report.table import Field, make_table, short_path, short_site, site_cell
from profiler.report.text import capitalized, library_line, local_time, plural, times
from profiler.run.model import RunInfo, Site
from profiler.run.tables import NON_BLOCKING, CountKind

_COPIES: Final = (CountKind.H2D, CountKind.D2H, CountKind.D2D)
_MAX_NAMES: Final = 4
"""Operators that are named beside a line."""
_PLACES: Final = 5
"""Lines on the first screen."""
_BRIEF: Final = 6
"""Lines of each kind in a terminal."""
NO_LINE: Final = "no line of the program"
_EXACT: Final = "Counts are exact. No times were recorded."


@dataclass(frozen=True, slots=True)
class KindText:
    """How the counts of a kind are shown."""

    title: str
    has_bytes: bool = False
    """Whether bytes are what counts, and not the number."""
    note: str = ""


KINDS: Final = {
    CountKind.SYNC: KindText("waits for the device"),
    CountKind.H2D: KindText("copies to the device"),
    CountKind.D2H: KindText("copies to the host"),
    CountKind.D2D: KindText("copies between devices"),
    CountKind.LAUNCH: KindText("launches", note="Launches of the program itself, and of CUDA graphs."),
    CountKind.GRAPH_BREAK: KindText("graph breaks"),
    CountKind.RECOMPILATION: KindText("recompilations"),
    CountKind.COLLECTIVE: KindText("collectives"),
    CountKind.OPERATOR: KindText("operators", note="A GPU would launch at least one kernel for each."),
    CountKind.VIEW: KindText("views", note="A GPU would launch nothing for these operators."),
    CountKind.FLOPS: KindText("FLOPs", note="FLOPs of matrix products, convolutions and attention."),
    CountKind.ALLOCATION: KindText("memory allocated, by a model", has_bytes=True),
    CountKind.PEAK: KindText("memory in use at the peak, by a model", has_bytes=True),
    CountKind.GROWTH: KindText("growth of the memory in use, by a model", has_bytes=True),
    CountKind.TEXT: KindText("tokenized texts"),
    CountKind.FILE: KindText("files opened for writing"),
}
"""In the order in which they are shown."""


# ---------------------------------------------------------------- numbers


class PerStep(NamedTuple):
    """A number in each step after the first one."""

    usual: int
    """The number in a usual step."""
    others: Mapping[tuple[int, int], int]
    """Process and number of each other step -> by how much it differs."""
    steps: int

    @classmethod
    def sum_of(cls, counts: Iterable[SiteCount]) -> PerStep:
        """Add up counts."""
        others, usual, steps = Counter[tuple[int, int]](), 0, 0
        for count in counts:
            others.update(count.others)
            usual += count.usual_number
            steps = max(steps, count.steps)
        return cls(usual, {step: number for step, number in others.items() if number}, steps)

    @property
    def step(self) -> str:
        """Name what the usual number is of."""
        return "a usual step" if self.others else "a step"

    @property
    def in_others(self) -> str:
        """Tell what other steps do: `7 more in every 14th step`, `2 times in the run`; empty if there are none."""
        if not self.others:
            return ""
        low, high = min(self.others.values()), max(self.others.values())
        often = round(self.steps / len(self.others))
        if self.usual == 0 and len(self.others) <= _FEW:
            return f"{times(sum(self.others.values()))} in the run"
        if low < 0 < high or often < _RARELY:
            number = f"{self.usual + low:,} to {self.usual + high:,}"
        else:
            more = (" more" if high > 0 else " fewer") if self.usual else ""
            number = f"{'up to ' if low != high else ''}{max(-low, high):,}{more}"
        if often < _RARELY:
            return f"{number} in others"
        numbers = sorted({number for _, number in self.others})
        distances = {after - before for before, after in pairwise(numbers)}
        if len(numbers) > _FEW and len(distances) == 1:
            return f"{number} in every {nth(often)} step"
        return f"{number} in {'one' if len(self.others) == 1 else len(self.others)} of {self.steps:,} steps"


_FEW: Final = 2
"""Steps that are told by their number."""
_RARELY: Final = 2
"""In so many steps nothing recurs that could be told as every so many steps."""


class LineCount(NamedTuple):
    """What a line does in a step, of one kind: the sum over the names of its counts."""

    site: Site | None
    steps: PerStep
    mean: float
    """Mean number in a step."""
    bytes_per_step: float
    before: int
    before_bytes: int
    names: tuple[tuple[str, int], ...]
    """Each name with its number in a usual step, the most frequent first."""
    frames: tuple[Site, ...]
    """The lines of libraries that make the calls, the most frequent first."""


def by_line(counts: Iterable[SiteCount], kind: CountKind) -> tuple[LineCount, ...]:
    """Return the lines with something of a kind, those with most bytes or else with the highest number first.

    Of memory only what the steps after the first one do counts.
    """
    lines: dict[Site | None, list[SiteCount]] = {}
    for count in counts:
        if count.kind is kind:
            lines.setdefault(count.site, []).append(count)
    sums = []
    for site, own in lines.items():
        frames = Counter[Site]()
        for count in own:
            frames.update(dict(count.frames))
        line = LineCount(
            site,
            PerStep.sum_of(own),
            sum(count.mean for count in own),
            sum(count.bytes_per_step for count in own),
            sum(count.before for count in own),
            sum(count.before_bytes for count in own),
            tuple((count.name, count.usual_number) for count in sorted(own, key=lambda each: (-each.mean, each.name))),
            tuple(frame for frame, _ in frames.most_common()),
        )
        if round(line.bytes_per_step) if KINDS[kind].has_bytes else line.mean or line.before:
            sums.append(line)
    return tuple(sorted(sums, key=lambda line: (-line.bytes_per_step, -line.mean, -line.before, str(line.site))))


# ---------------------------------------------------------------- the report of a run


def count_report(counted: RunCounts) -> Report:
    """Build the report of a run that was counted: how often the host waits, and what each line does in a step."""
    info, name = counted.info, counted.info.label or counted.info.run_id or "run"
    sections = []
    for kind, text in KINDS.items():
        if lines := by_line(counted.counts, kind):
            title = capitalized(kind_title(info, kind))
            is_told = kind is CountKind.VIEW or (
                kind is CountKind.SYNC and len(lines) <= _PLACES
            )  # on the first screen
            brief = () if is_told else lines[:_BRIEF]
            more = f" ({len(brief)} of {len(lines)} lines)" * (0 < len(brief) < len(lines))
            head = f"{title}: {total_text(counted.counts, kind)}{more}"
            places = (Places(head, tuple(_place(kind, line) for line in brief), text.note),) if brief else ()
            sections.append(Section(kind.name.lower(), title, (_table(counted.counts, kind, lines),), places))
    when = local_time(info.started_at)
    return Report(name, f"Counts · {when}", tuple(sections), _first_screen(counted, when))


def _first_screen(counted: RunCounts, when: str) -> FirstScreen:
    info, is_virtual = counted.info, "virtual_cuda" in counted.info.facts
    waits = [count for count in counted.counts if count.waits]
    total = PerStep.sum_of(waits)
    who = "The host waits for the device " if is_virtual else "On a GPU the host would wait for the device "
    often, judged = (
        f"{times(total.usual)} in {total.step}",
        "bad" if total.usual else "open" if total.others else "good",
    )
    headline = Headline(who, often, f"; {total.in_others}" if total.others else "", judged)
    if not counted.steps:
        headline = Headline("The program made no step, so nothing is counted per step", judged="open")
    shown, title = waits, "Lines for which the host waits" if is_virtual else "Lines for which the host would wait"
    kinds: tuple[CountKind, ...] = (CountKind.SYNC, *_COPIES)
    if not waits:
        shown, kinds, title = list(counted.counts), (CountKind.OPERATOR,), "Lines with most operators"
    lines = [(kind, line) for kind in kinds for line in by_line(shown, kind)]
    lines.sort(key=lambda each: -each[1].mean)
    places = tuple(_place(kind, line) for kind, line in lines[:_PLACES])
    device = plural(int(info.facts["virtual_cuda"]), "virtual CUDA device") if is_virtual else "CPU"
    name = info.label or (program_name(info.argv) if info.argv else info.run_id)
    present = [kind for kind in KINDS if kind is not CountKind.SYNC and by_line(counted.counts, kind)]
    return FirstScreen(
        tuple(filter(None, (name, plural(counted.steps, "step"), device, when))),
        headline,
        (_EXACT,),
        tuple(Chip(f"{KINDS[kind].title}: {total_text(counted.counts, kind)}") for kind in present),
        places_title=f"{title}, in a step" if places else "",
        places=places,
        places_note="Steps after the first one are counted. What a line did before stands with it.",
        actions=(keep_action("Keep these counts from rising", command_text(info)),) if info.argv else (),
    )


def _place(kind: CountKind, line: LineCount) -> CodePlace:
    """Show a line with what it does in a usual step, in other steps, and before the first step ended."""
    has_bytes = KINDS[kind].has_bytes
    first = line.before if line.before and not (line.bytes_per_step if has_bytes else line.mean) else 0
    amount = f"{first:,}" if first else amount_text(kind, line.bytes_per_step if has_bytes else line.steps.usual)
    details = [names_text(kind, line)]
    if kind in (CountKind.ALLOCATION, CountKind.GROWTH):
        details.append(f"{_number(line.mean)} tensor{'s' * (line.mean != 1)}")
    elif line.bytes_per_step and line.mean and not has_bytes:  # the bytes of a usual step, or of one call
        details.append(size(line.bytes_per_step / line.mean * max(1, line.steps.usual)))
    if line.steps.others and not has_bytes and not first:
        details.insert(len(details) if line.steps.usual else 0, _others_text(kind, line.steps))
    if first:
        details.append("once at the start")
    details += [f"in {frame_text(frame)}" for frame in line.frames[:1]]
    told = ", ".join(filter(None, details))
    where, site = (short_site(line.site), line.site) if line.site else (NO_LINE, Site("", 0, ""))
    path = f"{site.file}:{site.line}" if line.site else ""
    return CodePlace(None, f"{where}{f': {told}' if told else ''}", site.source, path, amount)


def _table(counts: tuple[SiteCount, ...], kind: CountKind, lines: Sequence[LineCount], side: str = "") -> Table:
    text = KINDS[kind]

    def amount(line: LineCount) -> Cell:
        others = "" if text.has_bytes else line.steps.in_others
        shown = amount_text(kind, line.bytes_per_step if text.has_bytes else line.steps.usual)
        value = line.bytes_per_step if text.has_bytes else line.mean
        return Cell(f"{shown}{others and f'; {others}'}", sort=value)

    def before(line: LineCount) -> Cell:
        value = line.before_bytes if text.has_bytes else line.before
        return Cell(amount_text(kind, value), sort=value)

    frames = Field[LineCount]("In a library", lambda line: Cell(", ".join(map(frame_text, line.frames)), code=True))
    fields = (
        Field[LineCount]("Line", lambda line: site_cell(line.site, NO_LINE)),
        *([frames] if any(line.frames for line in lines) else []),
        Field[LineCount]("In a usual step", amount, number=True),
        Field[LineCount]("Before the first step ended", before, number=True),
        Field[LineCount]("Calls", lambda line: Cell(names_text(kind, line), code=True)),
    )
    caption = total_text(counts, kind)
    return make_table(f"{side}: {caption}" if side else capitalized(caption), fields, lines, text.note)


# ---------------------------------------------------------------- words


def kind_title(info: RunInfo, kind: CountKind) -> str:
    """Name a kind as it is called in this run."""
    is_on_cpu = kind is CountKind.SYNC and "virtual_cuda" not in info.facts
    return "reads for which a GPU would make the host wait" if is_on_cpu else KINDS[kind].title


def total_text(counts: Iterable[SiteCount], kind: CountKind) -> str:
    """Tell the sum over the lines, per step."""
    own = [count for count in counts if count.kind is kind]
    if KINDS[kind].has_bytes:
        return f"{size(sum(count.bytes_per_step for count in own))} in a step"
    if not any(count.mean for count in own) and (before := sum(count.before for count in own)):
        return f"{before:,} before the first step ended"
    steps = PerStep.sum_of(own)
    return f"{amount_text(kind, steps.usual)} in {steps.step}{f'; {_others_text(kind, steps)}' if steps.others else ''}"


def _others_text(kind: CountKind, steps: PerStep) -> str:
    return steps.in_others if kind is not CountKind.FLOPS else f"others in {len(steps.others)} of {steps.steps:,} steps"


def amount_text(kind: CountKind, amount: float) -> str:
    """Write a number, or bytes, of a kind."""
    if KINDS[kind].has_bytes:
        return size(amount)
    return rate(amount, "").strip() if kind is CountKind.FLOPS else _number(amount)


def frame_text(frame: Site) -> str:
    """Name the line of a library that makes calls."""
    return library_line(short_path(frame.file), frame.line, frame.function)


def names_text(kind: CountKind, line: LineCount) -> str:
    """Name the operators or calls of a line; several operators with their numbers in a usual step."""
    names = [(_name_text(kind, name), usual) for name, usual in line.names if name]
    if len(names) == 1 or kind is not CountKind.OPERATOR:
        return ", ".join(name for name, _ in names)
    text = ", ".join(f"{name} {usual:,}" if usual else name for name, usual in names[:_MAX_NAMES])
    return f"{text}, …" if len(names) > _MAX_NAMES else text


_WRITTEN: Final = {
    **{name: f".{name}()" for name in ("to", "cpu", "cuda", "copy_", "numpy", "new_tensor")},
    **{name: f"torch.{name}()" for name in ("tensor", "as_tensor", "asarray", "save", "load")},
    "__setitem__": "assignment",
}
"""Calls that copy -> as a program writes them."""


def _name_text(kind: CountKind, name: str) -> str:
    if kind not in _COPIES:
        return name.removeprefix("aten::")
    call, *memory = name.removesuffix(f" {NON_BLOCKING}").split(" ")
    place = f" {'into' if kind is CountKind.D2H else 'from'} {memory[0]} memory" if memory else ""
    return f"{_WRITTEN.get(call, call)}{place}{' without a wait' if name.endswith(NON_BLOCKING) else ''}"


def _number(mean: float) -> str:
    return f"{round(mean):,}" if mean == round(mean) else significant(mean)


# ---------------------------------------------------------------- two programs


class ComparedCount(NamedTuple):
    """What the sides do in a step, of one kind."""

    title: str
    kind: CountKind
    has_bytes: bool
    amounts: tuple[float, ...]
    """The amount of each side."""

    def text(self, side: int) -> str:
        """Write the amount of a side."""
        amount = self.amounts[side]
        return size(amount) if self.has_bytes else amount_text(self.kind, amount)


def compared_counts(sides: Sequence[RunCounts]) -> tuple[ComparedCount, ...]:
    """Return a row for each kind that a side has; the waits come first, blocking copies among them."""
    waits = tuple(sum(count.mean for count in side.counts if count.waits) for side in sides)
    rows = [ComparedCount("waits for the device", CountKind.SYNC, has_bytes=False, amounts=waits)]
    for kind, text in KINDS.items():
        own = [[count for count in side.counts if count.kind is kind] for side in sides]
        if kind is CountKind.SYNC:
            continue
        sizes = tuple(sum(count.bytes_per_step for count in each) for each in own)
        if not text.has_bytes:
            numbers = tuple(sum(count.mean for count in each) for each in own)
            rows.append(ComparedCount(text.title, kind, has_bytes=False, amounts=numbers))
        if text.has_bytes or kind in _COPIES:
            title = text.title if text.has_bytes else f"bytes of {text.title}"
            rows.append(ComparedCount(title, kind, has_bytes=True, amounts=sizes))
    return tuple(
        row for row in rows if any(map(round, row.amounts) if row.has_bytes else row.amounts) or row is rows[0]
    )


def change_text(before: float, after: float) -> str:
    """`27 times fewer`, `1.5 times as many`; `new` and `gone` where one is 0; empty where both are equal."""
    if before == after:
        return ""
    if not before or not after:
        return "gone" if before else "new"
    return (
        f"{significant(before / after)} times fewer"
        if before > after
        else f"{significant(after / before)} times as many"
    )


def compared_counts_report(sides: Sequence[RunCounts], differences: Sequence[Mismatch] = ()) -> Report:
    """Build the report of two programs that were counted: all kinds in one table, then their lines.

    :param differences: the facts in which the sides differ, so that they do not do the same.
    """
    first, last, rows = sides[0], sides[-1], compared_counts(sides)
    fields = [Field[ComparedCount]("In a step", lambda row: Cell(capitalized(row.title), strong=True))]
    fields += [Field(side.label, partial(_side_cell, index), number=True) for index, side in enumerate(sides)]
    fields.append(Field[ComparedCount]("Change", lambda row: Cell(change_text(row.amounts[0], row.amounts[-1]))))
    before, after = rows[0].amounts[0], rows[0].amounts[-1]
    waits = "waits for the device" if "virtual_cuda" in last.info.facts else "would wait for a GPU"
    headline = Headline(f"{last.label} and {first.label} {waits.replace('waits', 'wait')} equally often", judged="open")
    if before != after:
        ratio = change_text(before, after).replace("fewer", "less often").replace("as many", "as often")
        how = ratio if before and after else "no longer" if before else "and not before"
        amounts = f": {rows[0].text(0)} → {rows[0].text(-1)} in a step"
        headline = Headline(f"{last.label} {waits} ", how, amounts, "good" if after < before else "bad")
    given = f"The sides differ in what they are given: {mismatches(differences)}."
    sections = []
    for kind, text in KINDS.items():
        tables = [
            _table(side.counts, kind, lines, side.label) for side in sides if (lines := by_line(side.counts, kind))
        ]
        if tables:
            sections.append(Section(kind.name.lower(), capitalized(text.title), tuple(tables)))
    when = local_time(last.info.started_at)
    screen = FirstScreen(
        (
            " → ".join(side.label for side in sides),
            *(f"{side.label}: {plural(side.steps, 'step')}" for side in sides),
            when,
        ),
        headline,
        (*((given,) if differences else ()), _EXACT),
        (Chip("not the same work", "warning", given),) if differences else (),
        make_table("Counts of both sides", fields, rows),
    )
    title = " against ".join(side.label for side in reversed(sides))
    return Report(title, f"Counts · {when}", tuple(sections), screen)


def _side_cell(index: int, row: ComparedCount) -> Cell:
    return Cell(row.text(index), sort=row.amounts[index])
