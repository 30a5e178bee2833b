"""The claims of the case beside the measurements here: a row for each claim, in the section and in the JSON report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from profiler.analyse.model import Analysis, Measure
from profiler.core.facts import HOST_DEVICE
from profiler.core.notice import Notice
from profiler.core.units import TIMES, count
from profiler.report.blocks import Cell, Column, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.category_text import category_label
from profiler.report.model import ReportInput, ReportSide
from profiler.report.table import factor, measure_cell, missing_cell, percent, phrase, ratio_cell, seconds_cell
from reference_trainer.report.ladder import NO_ROW, NOT_RECORDED, SPEED, Ladder, LadderRow, comparison_ladder

SOURCE: Final = "the case as reported"

_THOUSANDS: Final = "thousands, named as a cause"
_WAITING: Final = "sync"
_OTHER_PARTS: Final = "16%, 8%, 4% and 2%; the case does not name these parts"
_PHASES: Final = (
    (f"2.5{TIMES}, 20 to 50 tokens/s", "async"),
    (f"40{TIMES}, 50 to 2,000 tokens/s", "device-loss"),
    (f"3{TIMES}, 2,000 to 6,000 tokens/s", ""),
)
"""The factor of each phase of the case, and the last of the ladder's fixes that stands for it (empty: all). The case
names the factors only: its fixes are divided here by what they remove, waits, calls for single tokens, and the rest."""
_POINTS: Final = "+20 to 40 points of GPU utilization, hoped for"
_MOST_TOKEN_S: Final = 1e-3
_MOST_CPU: Final = 0.2
"""Thresholds of the case: a token takes less than 1 ms, and the host less than 20% CPU."""
_MODULE: Final = "reference_trainer.lm"
_BATCH_SAMPLES: Final = 8
"""Samples of the batch whose tokenization the case timed."""
_COPIES: Final = ("h2d_per_step", "d2h_per_step", "d2d_per_step")


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One claim; `side` is empty where it is about none."""

    what: str
    side: str
    claimed: str
    measured: Cell
    """Its `sort` is the number in base units, None where there is none."""


def claim_rows(report_input: ReportInput) -> tuple[ClaimRow, ...]:
    """Every claim of the case, measured or not; without a ladder its thresholds only; none of another trainer."""
    ladder = comparison_ladder(report_input.comparison)
    if not report_input.sides or not is_language_model(report_input):
        return ()
    if ladder is None:
        stated = all(side.info.facts.get("trainer") == _MODULE for side in report_input.sides)
        return tuple(_thresholds(report_input.sides)) if stated else ()
    as_found, fixed = report_input.sides[0], report_input.sides[-1]
    batch, single = _batched(ladder), _sample_time(as_found.detailed, as_found)
    tokens_per_s = measure_cell(as_found.measure("tokens_per_s"), spread=True)
    gain = ratio_cell(report_input.ratio(fixed.label, "tokens_per_s"))
    syncs, copies, allocations = (
        _sum_of_both(as_found, fixed, names) for names in (("syncs_per_step",), _COPIES, ("allocations_per_step",))
    )
    cpu, busy, share = (
        "CPU of the host's threads",
        "Device busy",
        "Data loading (tokenization), share of the host's time",
    )
    batched = f"Tokenization of {_BATCH_SAMPLES} samples in one batch"
    return (
        ClaimRow("Tokens a second", as_found.label, "20 tokens/s", tokens_per_s),
        ClaimRow("Tokens a second over as-found", fixed.label, f"300{TIMES}, hoped for", gain),
        ClaimRow(cpu, as_found.label, "100% of the machine", _cpu(as_found)),
        ClaimRow(cpu, fixed.label, "10 to 15%, hoped for", _cpu(fixed)),
        ClaimRow(busy, as_found.label, "10%", _busy(as_found)),
        ClaimRow(busy, fixed.label, "85 to 90%, hoped for", _busy(fixed)),
        ClaimRow("Syncs a chunk", as_found.label, "3,000, one after every token", syncs),
        ClaimRow("Copies a chunk", as_found.label, _THOUSANDS, copies),
        ClaimRow("Allocations a chunk", as_found.label, _THOUSANDS, allocations),
        ClaimRow("Waiting for the device, share of the host's time", as_found.label, "70%", _share(as_found, _WAITING)),
        ClaimRow("The other parts of the host's time", as_found.label, _OTHER_PARTS, _other_shares(as_found)),
        ClaimRow(share, as_found.label, "30 to 40% of a step", _share(as_found, "input")),
        ClaimRow(share, fixed.label, "not claimed", _share(fixed, "input")),
        ClaimRow(batched, "", "45.3 ms", _times(batch, single, _BATCH_SAMPLES)),
        ClaimRow("The same, a sample", "", "5.7 ms", _times(batch, single, 1)),
        *_phases(ladder),
        ClaimRow("Pre-tokenization and prefetching, beside the other fixes", "", _POINTS, _points(ladder, fixed)),
        *_thresholds(report_input.sides),
    )


def _thresholds(sides: Sequence[ReportSide]) -> Iterator[ClaimRow]:
    """The case's thresholds of every side; whether a side meets them stands below its figure."""
    for side in sides:
        yield ClaimRow("Time of a token", side.label, "below 1 ms on a GPU, the case's threshold", _token_time(side))
    for side in sides:
        yield ClaimRow("CPU of the host's threads", side.label, "below 20%, the case's threshold", _cpu_threshold(side))


def _token_time(side: ReportSide) -> Cell:
    speed = side.measure("tokens_per_s")
    if not speed.value:
        return missing_cell(speed.reason)
    spread = ""
    if speed.low and speed.high and speed.low != speed.high:
        spread = f"{phrase(1 / speed.high, 's')} to {phrase(1 / speed.low, 's')}; "
    is_gpu = side.info.facts.get("device") == "cuda"
    status = _met(1 / speed.value < _MOST_TOKEN_S) if is_gpu else "not judged"
    return replace(seconds_cell(1 / speed.value), note=spread + status)


def _cpu_threshold(side: ReportSide) -> Cell:
    """The threshold is held against both readings, because the case does not say whether it is of one core."""
    used, cores = side.measure("host_cpu").value, side.info.host.get("cores")
    cell = _cpu(side)
    if used is None or not cores:
        return cell
    machine = used / cores
    one, all_cores = _met(used < _MOST_CPU), _met(machine < _MOST_CPU)
    return replace(cell, note=f"of one core: {one}; {percent(machine)} of the machine's {cores}: {all_cores}")


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def _phases(ladder: Ladder) -> Iterator[ClaimRow]:
    """The gain of the fixes that stand for each phase, over the phase before."""
    before, rows = ladder.baseline, ladder.of_kind("cumulative")
    fixes: tuple[str, ...] = ()
    for number, (claimed, last) in enumerate(_PHASES, start=1):
        after = next((row for row in rows if row.fix == last), None) if last else rows[-1] if rows else None
        added = tuple(fix for fix in after.fixes if fix not in fixes) if after is not None else ()
        title = f"Tokens a second over the phase before, phase {number}"
        yield ClaimRow(title, ", ".join(added), claimed, _phase_gain(before, after, is_first=number == 1))
        before, fixes = after, after.fixes if after is not None else fixes


def _phase_gain(before: LadderRow | None, after: LadderRow | None, *, is_first: bool) -> Cell:
    if before is None or after is None:
        return missing_cell(NO_ROW)
    speeds = tuple(row.measure(SPEED).value for row in (before, after))
    if not (speeds[0] and speeds[1]):
        return missing_cell(after.total.reason or NOT_RECORDED)
    rates = " to ".join(phrase(speed, "tokens/s") for speed in speeds if speed)
    if is_first:  # the phase before is as-found, the one set of fixes that every row is paired with
        cell = ratio_cell(after.total)
        return cell if cell.missing else replace(cell, note=rates)
    ratio = speeds[1] / speeds[0]
    return Cell(*factor(ratio), sort=ratio, note=f"of the means; {rates}")


def _points(ladder: Ladder, fixed: ReportSide) -> Cell:
    """Points of device time that each of the two adds to the other fixes: two differences, of means."""
    name = "device_utilization"
    busy = fixed.measure(name).value
    prefetch = next((row for row in ladder.of_kind("without") if row.fix == "prefetch"), None)
    shards = next((row for row in ladder.of_kind("instead") if row.fix == "pretokenize"), None)
    parts = []
    if busy is not None and prefetch is not None and (without := prefetch.measure(name).value) is not None:
        parts.append(f"prefetch {100 * (busy - without):+.1f} points")
    if busy is not None and shards is not None and (instead := shards.measure(name).value) is not None:
        parts.append(f"pretokenize {100 * (instead - busy):+.1f} points")
    if not parts:
        return missing_cell(fixed.measure(name).reason or "no row of the ladder measured how busy the device was")
    return Cell(", ".join(parts), note="of device time, of the means")


def is_language_model(report_input: ReportInput) -> bool:
    """Whether it is the trainer that the case is about; the baseline may say that it is another."""
    sides = report_input.sides
    return not sides or sides[0].info.facts.get("trainer", _MODULE) == _MODULE


def _busy(side: ReportSide) -> Cell:
    return measure_cell(side.measure("device_utilization"), share=True)


def _cpu(view: ReportSide) -> Cell:
    measured, cores = view.measure("host_cpu"), view.info.host.get("cores")
    if measured.value is None:
        return missing_cell(measured.reason)
    note = f"of one core; the machine has {cores}" if cores else "of one core"
    return Cell(f"{100 * measured.value:.0f}", "%", sort=measured.value, note=note)


def _sum_of_both(as_found: ReportSide, fixed: ReportSide, names: tuple[str, ...]) -> Cell:
    """The sum of counters as found, with that of the fixed side below."""
    counted, reason = _sum(as_found, names)
    if counted is None:
        return missing_cell(reason)
    after, _ = _sum(fixed, names)
    note = "" if after is None else f"{fixed.label}: {count(after)}"
    return Cell(count(counted), sort=counted, note=note)


def _sum(view: ReportSide, names: tuple[str, ...]) -> tuple[float | None, Notice | None]:
    """Sum of those of `names` that were counted; None with the reason where the first was not."""
    measures = [view.measure(name) for name in names]
    values = [measure.value for measure in measures if measure.value is not None]
    return (None, measures[0].reason) if measures[0].value is None else (sum(values), None)


def _times(batch: Measure | None, single: Measure, samples: int) -> Cell:
    """Time of `samples` in one call; where that was not timed, the time of as many calls, as text only."""
    included = "reading of the text included"
    if batch is not None and batch.value is not None:
        return replace(seconds_cell(samples * batch.value), note=f"one call a chunk; {included}")
    if batch is not None or single.value is None:
        return missing_cell((batch or single).reason)
    took = phrase(samples * single.value, "s")
    return Cell(f"one call a sample: {took}; the batch call was not timed in this run", note=included)


def _share(view: ReportSide, category: str) -> Cell:
    """The share of a category in the host's time of a step."""
    parts = view.detailed.breakdown
    total = sum(part.value for part in parts.values() if part.value is not None)
    part = parts.get(category)
    if part is None or part.value is None or not total:
        return missing_cell(part.reason if part is not None and part.reason else view.why_no_breakdown())
    return Cell(percent(part.value / total).removesuffix("%"), "%", sort=part.value / total, note="breakdown pass")


def _other_shares(view: ReportSide) -> Cell:
    """The shares of all categories but waiting, the largest first."""
    values = {name: part.value for name, part in view.detailed.breakdown.items() if part.value}
    others = sorted((name for name in values if name != _WAITING), key=lambda name: -values[name])
    if not others:
        return missing_cell(view.why_no_breakdown())
    total = sum(values.values())
    return Cell(
        ", ".join(f"{category_label(name)} {percent(values[name] / total)}" for name in others), note="breakdown pass"
    )


def _batched(ladder: Ladder) -> Measure | None:
    """Seconds of input a sample in one call a chunk; None where no row of that has a breakdown."""
    rows = (row.analysis for row in ladder.rows if row.fixes == ("batch-tokenize",) and row.analysis)
    return next(
        (_sample_time(analysis, None) for analysis in rows if (p := analysis.breakdown.get("input")) and p.value), None
    )


def _sample_time(analysis: Analysis, view: ReportSide | None) -> Measure:
    """Seconds of the category input a sample, or why they are not known."""
    part = analysis.breakdown.get("input")
    if part is None or part.value is None:
        reason = part.reason if part else None
        if reason is None and view:
            reason = Notice("text", {"text": view.why_no_breakdown()})
        return Measure("sample", None, "s", reason=reason)
    samples = _samples(analysis)
    if not samples:
        return Measure(
            "sample",
            None,
            "s",
            reason=Notice("text", {"text": "the program does not say how many samples a chunk has"}),
        )
    return Measure("sample", part.value / samples, "s")


def _samples(analysis: Analysis) -> float:
    """Samples a chunk: counted, else as the program said; 0 where neither."""
    counted = analysis.measures.get("tokenized_samples_per_step")
    if counted is not None and counted.value:
        return counted.value
    stated = analysis.info.facts.get("samples_per_chunk")
    return float(stated) if isinstance(stated, int | float) else 0.0


TITLE = "Claimed and measured"
_LADDER_NOTE: Final = (
    "Measured by python -m profiler compare --ladder. Ranges are over the runs; a ratio has a 95% interval where its "
    "runs are paired. The case names no fixes for its phases: here waits for single tokens go first, then calls for "
    "single tokens, then all others. Differences of means have no interval."
)
_COLUMNS = (Column("What"), Column("Claimed"), Column("Measured here"))
_THRESHOLDS_NOTE: Final = "Only the thresholds are here: python -m profiler compare --ladder measures the other claims."


def build(report_input: ReportInput) -> Section | None:
    """One table; every claim of the case has a row, measured or not."""
    rows = claim_rows(report_input)
    if not rows:
        return None
    device = report_input.devices
    caption = f"Claimed by {SOURCE}, and measured on {device}"
    if comparison_ladder(report_input.comparison) is not None:
        table = Table(caption, _COLUMNS, tuple(map(_cells, rows)), _LADDER_NOTE)
    else:
        table = _thresholds_table(caption, rows, report_input.sides)
    return Section("claims", TITLE, (table, Text(_of_what(device))))


def _thresholds_table(caption: str, rows: Sequence[ClaimRow], sides: Sequence[ReportSide]) -> Table:
    """A row for each threshold, and a column for each side."""
    measured = {(row.what, row.claimed, row.side): row.measured for row in rows}
    columns = (*_COLUMNS[:2], *(Column(side.label, tone=side.tone) for side in sides))
    names = dict.fromkeys((row.what, row.claimed) for row in rows)
    cells = tuple(
        (Cell(what), Cell(claimed), *(measured[what, claimed, side.label] for side in sides)) for what, claimed in names
    )
    return Table(caption, columns, cells, _THRESHOLDS_NOTE)


def _cells(row: ClaimRow) -> tuple[Cell, ...]:
    return Cell(row.what, note=row.side), Cell(row.claimed), row.measured


def _of_what(device: str) -> str:
    if device == HOST_DEVICE:
        return (
            f"The numbers of {SOURCE} are of a GPU, and those measured here of the {device}: counts and shares can be "
            "held against the claims, rates and times cannot."
        )
    return f"The numbers of {SOURCE} are of a GPU, and those measured here of {device}, on this machine."


PLUGIN = SectionPlugin("claims", TITLE, 38, build, group="time")
