"""Shows the counts of a run by line and step, in the terminal and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from profiler.analyse.model.comparison import Mismatch
from profiler.analyse.model.device import RunCounts, SiteCount
from profiler.core.units import nth, rate, significant, size
from profiler.report.table import short_path, short_site
from profiler.report.text import library_line, mismatch, plural, shortened, times
from profiler.run.model import RunInfo, Site
from profiler.run.tables import NON_BLOCKING, CountKind

_WIDTH: Final = 80
_COPIES: Final = (CountKind.H2D, CountKind.D2H, CountKind.D2D)
_MAX_NAMES: Final = 4
"""Operators that are named beside a line."""
_MAX_FRAMES: Final = 2
"""Lines of libraries that are named below a line."""
WAITS_ON_CPU: Final = "reads for which a GPU would make the host wait"
NO_LINE: Final = "no line of the program"
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


class PerStep(NamedTuple):
    """A number in each step after the first one."""

    usual: int
    """The number in a usual step."""
    others: Mapping[tuple[int, int], int]
    """Process and number of each other step -> by how much it differs."""
    steps: int

    @classmethod
    def sum_of(cls, counts: Sequence[SiteCount]) -> PerStep:
        """The sum of counts."""
        others = Counter[tuple[int, int]]()
        for count in counts:
            others.update(count.others)
        differing = {step: number for step, number in others.items() if number}
        steps = max((count.steps for count in counts), default=0)
        return cls(sum(count.usual_number for count in counts), differing, steps)

    @property
    def step(self) -> str:
        """What the usual number is of."""
        return "a usual step" if self.others else "a step"

    @property
    def in_others(self) -> str:
        """What other steps do: `7 more in every 14th step`, `2 times in the run`; empty if there are none."""
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
        if not self._is_regular:
            return f"{number} in {'one' if len(self.others) == 1 else len(self.others)} of {self.steps:,} steps"
        return f"{number} in every {nth(often)} step"

    @property
    def _is_regular(self) -> bool:
        """Whether the other steps follow each other at one distance."""
        numbers = sorted({number for _, number in self.others})
        gaps = {after - before for before, after in pairwise(numbers)}
        return len(numbers) > _FEW and len(gaps) == 1


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

    @property
    def bytes_alike(self) -> float:
        """Bytes of the number in a usual step; of one, if a usual step has none."""
        return self.bytes_per_step / self.mean * max(1, self.steps.usual) if self.mean else 0.0


def by_line(counts: Iterable[SiteCount], kind: CountKind) -> tuple[LineCount, ...]:
    """The lines with counts of a kind, those with most bytes or else with the highest number first."""
    lines: dict[Site | None, list[SiteCount]] = {}
    for count in counts:
        if count.kind is kind:
            lines.setdefault(count.site, []).append(count)
    sums = (
        LineCount(
            site,
            PerStep.sum_of(own),
            sum(count.mean for count in own),
            sum(count.bytes_per_step for count in own),
            sum(count.before for count in own),
            sum(count.before_bytes for count in own),
            tuple((count.name, count.usual_number) for count in sorted(own, key=lambda each: (-each.mean, each.name))),
            tuple(frame for frame, _ in _frames(own)),
        )
        for site, own in lines.items()
    )
    return tuple(sorted(sums, key=lambda line: (-line.bytes_per_step, -line.mean, -line.before, str(line.site))))


def _frames(counts: Iterable[SiteCount]) -> list[tuple[Site, int]]:
    sums = Counter[Site]()
    for count in counts:
        sums.update(dict(count.frames))
    return sums.most_common()


def head_lines(counted: RunCounts) -> Iterator[str]:
    """What was counted, and how often the host waits."""
    waits, facts = PerStep.sum_of([count for count in counted.counts if count.waits]), counted.info.facts
    number = f"{times(waits.usual)} in {waits.step}{f'; {waits.in_others}' if waits.others else ''}"
    if "virtual_cuda" in facts:
        devices = plural(int(facts["virtual_cuda"]), "virtual CUDA device")
        yield f"{plural(counted.steps, 'step')} on {devices}: exact counts, no times (there is no GPU)"
        yield f"the host waits for the device {number}"
    else:
        yield f"{plural(counted.steps, 'step')} on the CPU: exact counts, no times"
        yield f"on a GPU the host would wait for the device {number}"
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
                f"{kind_title(counted.info, kind)}: {total_text(counted.counts, kind)}"
                f"{f' ({text.note})' if text.note else ''}",
                _WIDTH,
            )
            if kind is not CountKind.VIEW:
                for line in lines[:limit]:
                    yield _line(kind, line)
                    yield from (_frame_line(frame) for frame in line.frames[:_MAX_FRAMES])
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


def total_text(counts: Iterable[SiteCount], kind: CountKind) -> str:
    """The sum over the lines, per step."""
    own = [count for count in counts if count.kind is kind]
    if KINDS[kind].has_bytes:
        return f"{size(sum(count.bytes_per_step for count in own))} in a step"
    if not any(count.mean for count in own) and (before := sum(count.before for count in own)):
        return f"{before:,} before the first step ended"
    steps = PerStep.sum_of(own)
    return f"{amount_text(kind, steps.usual)} in {steps.step}{f'; {_others_text(kind, steps)}' if steps.others else ''}"


def _others_text(kind: CountKind, steps: PerStep) -> str:
    return steps.in_others if kind is not CountKind.FLOPS else f"others in {len(steps.others)} of {steps.steps:,} steps"


def line_amount(kind: CountKind, line: LineCount) -> str:
    """What a line does in a usual step."""
    return amount_text(kind, line.bytes_per_step if KINDS[kind].has_bytes else line.steps.usual)


def amount_text(kind: CountKind, amount: float) -> str:
    """A number, or bytes, of a kind."""
    if KINDS[kind].has_bytes:
        return size(amount)
    return rate(amount, "").strip() if kind is CountKind.FLOPS else _number(amount)


_BEFORE: Final = ("once before the first step ended", "once at the start")


def _line(kind: CountKind, line: LineCount) -> str:
    has_bytes = KINDS[kind].has_bytes
    first = line.before if line.before and not (line.bytes_per_step if has_bytes else line.mean) else 0
    amount = f"{first:,}" if first else line_amount(kind, line)
    details = [names_text(kind, line)]
    if kind in (CountKind.ALLOCATION, CountKind.GROWTH):
        details.append(f"{_number(line.mean)} tensor{'s' * (line.mean != 1)}")
    elif line.bytes_per_step and not has_bytes:
        details.append(size(line.bytes_alike))
    if line.steps.others and not has_bytes and not first:
        details.insert(len(details) if line.steps.usual else 0, _others_text(kind, line.steps))
    place, source = line.site, line.site.source if line.site else ""
    wheres = (short_site(place), f"{PurePath(place.file).name}:{place.line}") if place else (NO_LINE,)
    for when, where in product(_BEFORE if first else ("",), wheres):
        told = ", ".join(filter(None, (*details, when)))
        text = f"  {amount:>8}  {where}{f'  {told}' if told else ''}"
        if len(text) <= _WIDTH:
            break
    return shortened(f"{text}  {source}" if source and len(text) + 10 < _WIDTH else text, _WIDTH)


def frame_text(frame: Site) -> str:
    """The line of a library that makes calls."""
    return library_line(short_path(frame.file), frame.line, frame.function)


def _frame_line(frame: Site) -> str:
    text = f"{'':12}{frame_text(frame)}"
    return shortened(f"{text}  {frame.source}" if frame.source and len(text) + 10 < _WIDTH else text, _WIDTH)


def names_text(kind: CountKind, line: LineCount) -> str:
    """The operators or calls of a line; several operators with their numbers in a usual step."""
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


def counts_json(counted: RunCounts) -> dict[str, Any]:
    """The same as data: `steps`, `devices`, `card`, and for each line its kind, call, place and numbers."""
    return {
        "steps": counted.steps,
        "devices": counted.info.facts.get("virtual_cuda"),
        "card": counted.info.facts.get("virtual_card"),
        "waits_per_step": sum(count.mean for count in counted.counts if count.waits),
        "waits_per_usual_step": PerStep.sum_of([count for count in counted.counts if count.waits]).usual,
        "per_step": {
            kind.name.lower(): {
                "number": sum(count.mean for count in own),
                "usual": PerStep.sum_of(own).usual,
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
                "libraries": [
                    {"file": frame.file, "line": frame.line, "function": frame.function, "source": frame.source}
                    | {"calls": calls}
                    for frame, calls in count.frames
                ],
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
