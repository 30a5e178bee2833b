"""Shows the counts of a run by line and step, in the terminal and as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from profiler.analyse.model import Mismatch, RunCounts, SiteCount
from profiler.core.units import rate, significant, size
from profiler.report.table import short_site
from profiler.report.text import mismatch, plural, shortened
from profiler.run.model import RunInfo, Site
from profiler.run.tables import CountKind

_WIDTH: Final = 80
_COPIES: Final = (CountKind.H2D, CountKind.D2H, CountKind.D2D)
_MAX_NAMES: Final = 4
"""Operators that are named beside a line."""
WAITS_ON_CPU: Final = "reads for which a GPU would make the host wait"
MODEL: Final = "from a model of the allocator"


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
    CountKind.LAUNCH: KindText("launches", note="of the program itself, and of CUDA graphs"),
    CountKind.GRAPH_BREAK: KindText("graph breaks"),
    CountKind.RECOMPILATION: KindText("recompilations"),
    CountKind.COLLECTIVE: KindText("collectives"),
    CountKind.OPERATOR: KindText("operators", note="a GPU would launch at least one kernel for each"),
    CountKind.VIEW: KindText("views", note="operators for which a GPU would launch nothing"),
    CountKind.FLOPS: KindText("FLOPs", note="matrix products, convolutions, attention"),
    CountKind.ALLOCATION: KindText("memory allocated", has_bytes=True, note=MODEL),
    CountKind.PEAK: KindText("memory in use at the peak", has_bytes=True, note=MODEL),
    CountKind.GROWTH: KindText("growth of the memory in use", has_bytes=True, note=MODEL),
    CountKind.TEXT: KindText("tokenized texts"),
    CountKind.FILE: KindText("files opened for writing"),
}
"""In the order in which they are shown."""


class LineCount(NamedTuple):
    """What a line does in a step, of one kind: the sum over the names of its counts."""

    site: Site | None
    mean: float
    """Number in a step."""
    bytes_per_step: float
    before: int
    before_bytes: int
    names: tuple[tuple[str, float], ...]
    """Each name with its number in a step, the most frequent first."""


def by_line(counts: Iterable[SiteCount], kind: CountKind) -> tuple[LineCount, ...]:
    """The lines with counts of a kind, those with most bytes or else with the highest number first."""
    lines: dict[Site | None, list[SiteCount]] = {}
    for count in counts:
        if count.kind is kind:
            lines.setdefault(count.site, []).append(count)
    sums = (
        LineCount(
            site,
            sum(count.mean for count in own),
            sum(count.bytes_per_step for count in own),
            sum(count.before for count in own),
            sum(count.before_bytes for count in own),
            tuple(sorted(((count.name, count.mean) for count in own), key=lambda name: (-name[1], name[0]))),
        )
        for site, own in lines.items()
    )
    return tuple(sorted(sums, key=lambda line: (-line.bytes_per_step, -line.mean, -line.before, str(line.site))))


def head_lines(counted: RunCounts) -> Iterator[str]:
    """What was counted, and how often the host waits."""
    waits, facts = _number(sum(count.mean for count in counted.counts if count.waits)), counted.info.facts
    if "virtual_cuda" in facts:
        devices = plural(int(facts["virtual_cuda"]), "virtual CUDA device")
        yield f"{plural(counted.steps, 'step')} on {devices}: exact counts, no times (there is no GPU)"
        yield f"the host waits for the device {waits} times in a step"
    else:
        yield f"{plural(counted.steps, 'step')} on the CPU: exact counts, no times"
        yield f"on a GPU the host would wait for the device {waits} times in a step"
    if not counted.steps:
        yield "the program made no step, so there is nothing to count per step"


def count_lines(counted: RunCounts, limit: int = 6) -> Iterator[str]:
    """What each line of the program does in a step, in at most 80 columns.

    :param limit: lines of each kind.
    """
    yield from head_lines(counted)
    for kind, text in KINDS.items():
        lines = shown_lines(counted.counts, kind)
        if lines:
            yield ""
            yield shortened(
                f"{kind_title(counted.info, kind)}: {total_text(kind, lines)}{f' ({text.note})' if text.note else ''}",
                _WIDTH,
            )
            if kind is not CountKind.VIEW:
                yield from (_line(kind, line) for line in lines[:limit])
                if len(lines) > limit:
                    yield f"  and {plural(len(lines) - limit, 'more line')}"


def shown_lines(counts: tuple[SiteCount, ...], kind: CountKind) -> tuple[LineCount, ...]:
    """The lines that have something of a kind; for memory, in the steps after the first one."""
    has_bytes = KINDS[kind].has_bytes
    lines = by_line(counts, kind)
    return tuple(line for line in lines if (round(line.bytes_per_step) if has_bytes else line.mean or line.before))


def kind_title(info: RunInfo, kind: CountKind) -> str:
    """What a kind is called in this run."""
    return WAITS_ON_CPU if kind is CountKind.SYNC and "virtual_cuda" not in info.facts else KINDS[kind].title


def total_text(kind: CountKind, lines: tuple[LineCount, ...]) -> str:
    """The sum over lines, per step."""
    total = sum(line.bytes_per_step if KINDS[kind].has_bytes else line.mean for line in lines)
    before = sum(line.before for line in lines)
    if not total and before:
        return f"{before:,} until the first step ended"
    return f"{amount_text(kind, total)} in a step"


def amount_text(kind: CountKind, amount: float) -> str:
    """A number, or bytes, of a kind."""
    if KINDS[kind].has_bytes:
        return size(amount)
    return rate(amount, "").strip() if kind is CountKind.FLOPS else _number(amount)


def _line(kind: CountKind, line: LineCount) -> str:
    where = short_site(line.site) if line.site else "no line of the program"
    amount = line.bytes_per_step if KINDS[kind].has_bytes else line.mean
    first = line.before if line.before and not amount else 0
    text = f"  {amount_text(kind, amount) if not first else f'{first:,}':>8}  {where}"
    if names := names_text(line, alone=kind is not CountKind.OPERATOR):
        text += f"  {names}"
    if kind in (CountKind.ALLOCATION, CountKind.GROWTH):
        text += f"  {_number(line.mean)} tensors"
    elif line.bytes_per_step and not KINDS[kind].has_bytes:
        text += f" {size(line.bytes_per_step)}"
    if first:
        text += " until the first step ended"
    source = line.site.source if line.site else ""
    return shortened(f"{text}  {source}" if source and len(text) + 10 < _WIDTH else text, _WIDTH)


def names_text(line: LineCount, *, alone: bool) -> str:
    """The operators or calls of a line, with their numbers where there are several.

    :param alone: without the number if there is only one name.
    """
    names = [(name.removeprefix("aten::"), mean) for name, mean in line.names if name]
    if len(names) == 1 or alone:
        return ", ".join(name for name, _ in names)
    text = ", ".join(f"{name} {_number(mean)}" for name, mean in names[:_MAX_NAMES])
    return f"{text}, …" if len(names) > _MAX_NAMES else text


def _number(mean: float) -> str:
    return f"{round(mean):,}" if mean == round(mean) else significant(mean)


def counts_json(counted: RunCounts) -> dict[str, Any]:
    """The same as data: `steps`, `devices`, `card`, and for each line its kind, call, place and numbers."""
    return {
        "steps": counted.steps,
        "devices": counted.info.facts.get("virtual_cuda"),
        "card": counted.info.facts.get("virtual_card"),
        "waits_per_step": sum(count.mean for count in counted.counts if count.waits),
        "per_step": {
            kind.name.lower(): {
                "number": sum(count.mean for count in own),
                "bytes": sum(count.bytes_per_step for count in own),
            }
            for kind in KINDS
            if (own := [count for count in counted.counts if count.kind is kind])
        },
        "counts": [
            {
                "kind": count.kind.name.lower(),
                "call": count.name,
                "waits": count.waits,
                "file": count.site.file if count.site else None,
                "line": count.site.line if count.site else None,
                "function": count.site.function if count.site else None,
                "source": count.site.source if count.site else None,
                "per_step": count.mean,
                "usual": count.usual[0],
                "bytes_per_step": count.bytes_per_step,
                "usual_bytes": count.usual[1],
                "before_second_step": count.before,
                "bytes_before_second_step": count.before_bytes,
            }
            for count in counted.counts
        ],
    }


class ComparedCount(NamedTuple):
    """What the sides do in a step, of one kind."""

    title: str
    kind: CountKind
    has_bytes: bool
    amounts: tuple[float, ...]
    """The amount of each side."""

    def text(self, side: int) -> str:
        """The amount of a side."""
        amount = self.amounts[side]
        return size(amount) if self.has_bytes else amount_text(self.kind, amount)


def compared_counts(sides: Sequence[RunCounts]) -> tuple[ComparedCount, ...]:
    """A row for each kind of which a side counted something; the waits come first, blocking copies among them."""
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
    if before > after:
        return f"{significant(before / after)} times fewer"
    return f"{significant(after / before)} times as many"


def comparison_json(sides: Sequence[RunCounts], differences: Iterable[Mismatch] = ()) -> dict[str, Any]:
    """The counts of both sides as data, the first side first.

    :param differences: the facts in which the sides differ, so that they do not do the same.
    """
    reasons = [mismatch(each) for each in differences]
    counted = [{"label": side.label, **counts_json(side)} for side in sides]
    return {"comparable": not reasons, "reasons": reasons, "sides": counted}


def print_counts(counted: RunCounts) -> None:
    """Print them on the standard output."""
    print("\n".join(count_lines(counted)))
