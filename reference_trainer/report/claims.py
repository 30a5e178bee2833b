"""The claims of the case beside the measurements here: a row for each claim, in the section and in the JSON report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiler.analyse.model import Analysis, Measure
from profiler.core.facts import HOST_DEVICE
from profiler.core.notice import Notice
from profiler.core.units import TIMES, count
from profiler.report.blocks import Cell, Column, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide
from profiler.report.table import measure_cell, missing_cell, percent, phrase, ratio_cell, seconds_cell
from reference_trainer.report.ladder import Ladder, comparison_ladder

SOURCE: Final = "the case as reported"

AS_FOUND_TOKENS_PER_S: Final = 20.0
AS_FOUND_CPU: Final = 1.0
"""Share of the machine's core or cores."""
AS_FOUND_DEVICE_BUSY: Final = 0.10
"""Share of the time."""
SYNCS_PER_CHUNK: Final = 3000
"""A GPU-to-CPU sync after every token."""
BATCH_SAMPLES: Final = 8
BATCH_TOKENIZE_S: Final = 0.0453
"""Tokenization of BATCH_SAMPLES samples in one call."""
SAMPLE_TOKENIZE_S: Final = 0.0057
"""The same, a sample."""
HOPED_GAIN: Final = 300.0
"""Ratio of tokens a second, fixed over as found."""
HOPED_CPU: Final = (0.10, 0.15)
HOPED_DEVICE_BUSY: Final = (0.85, 0.90)
CAUSE: Final = "named as a cause"
"""The claim about inline tokenization, which names no share."""
THOUSANDS: Final = "thousands, named as a cause"
"""The claim about tiny copies and about allocations."""

_MODULE: Final = "reference_trainer.lm"
UNTIMED = "the batch call was not timed in this run"
_COPIES = ("h2d_per_step", "d2h_per_step", "d2d_per_step")

_Row = tuple[str, str, str, Cell]
"""The quantity, the side, the claim, the measurement."""


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One claim; `side` is empty where it is about none."""

    what: str
    side: str
    claimed: str
    measured: Cell
    """Its `sort` is the number in base units, None where there is none."""


def claim_rows(report_input: ReportInput) -> tuple[ClaimRow, ...]:
    """Every claim of the case, measured or not; none without a ladder or of another trainer than the language model."""
    ladder = comparison_ladder(report_input.comparison)
    if ladder is None or not report_input.sides or not is_language_model(report_input):
        return ()
    as_found, fixed = report_input.sides[0], report_input.sides[-1]
    rows = (
        *_speed(report_input, as_found, fixed),
        *_use(as_found, fixed),
        *_pattern(as_found, fixed),
        *_tokenize(ladder, as_found, fixed),
    )
    return tuple(ClaimRow(*row) for row in rows)


def is_language_model(report_input: ReportInput) -> bool:
    """Whether it is the trainer that the case is about; the baseline may say that it is another."""
    sides = report_input.sides
    return not sides or sides[0].info.facts.get("trainer", _MODULE) == _MODULE


def _speed(report_input: ReportInput, as_found: ReportSide, fixed: ReportSide) -> Iterator[_Row]:
    measured = measure_cell(as_found.measure("tokens_per_s"), spread=True)
    yield "Tokens a second", as_found.label, f"{count(AS_FOUND_TOKENS_PER_S)} tokens/s", measured
    gain = ratio_cell(report_input.ratio(fixed.label, "tokens_per_s"))
    yield "Tokens a second over as-found", fixed.label, f"{count(HOPED_GAIN)}{TIMES}, hoped for", gain


def _use(as_found: ReportSide, fixed: ReportSide) -> Iterator[_Row]:
    """CPU of the host and time in which the device was busy."""
    title = "CPU of the host's threads"
    yield title, as_found.label, f"{_whole(AS_FOUND_CPU)} of the machine", _cpu(as_found)
    yield title, fixed.label, f"{_span(HOPED_CPU)}, hoped for", _cpu(fixed)
    busy = [measure_cell(view.measure("device_utilization"), share=True) for view in (as_found, fixed)]
    yield "Device busy", as_found.label, _whole(AS_FOUND_DEVICE_BUSY), busy[0]
    yield "Device busy", fixed.label, f"{_span(HOPED_DEVICE_BUSY)}, hoped for", busy[1]


def _cpu(view: ReportSide) -> Cell:
    measured, cores = view.measure("host_cpu"), view.info.host.get("cores")
    if measured.value is None:
        return missing_cell(measured.reason)
    note = f"of one core; the machine has {cores}" if cores else "of one core"
    return Cell(f"{100 * measured.value:.0f}", "%", sort=measured.value, note=note)


def _pattern(as_found: ReportSide, fixed: ReportSide) -> Iterator[_Row]:
    """Count the synchronizations, copies and allocations of a chunk."""
    claimed = f"{count(SYNCS_PER_CHUNK)}, one after every token"
    yield "Syncs a chunk", as_found.label, claimed, _beside(as_found, fixed, ("syncs_per_step",))
    yield "Copies a chunk", as_found.label, THOUSANDS, _beside(as_found, fixed, _COPIES)
    yield "Allocations a chunk", as_found.label, THOUSANDS, _beside(as_found, fixed, ("allocations_per_step",))


def _beside(as_found: ReportSide, fixed: ReportSide, names: tuple[str, ...]) -> Cell:
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


def _tokenize(ladder: Ladder, as_found: ReportSide, fixed: ReportSide) -> Iterator[_Row]:
    """Share and time of tokenization, which is the category input of the breakdown."""
    title = "Tokenization (input), share of the host's time"
    yield title, as_found.label, CAUSE, _input_share(as_found)
    yield title, fixed.label, "not claimed", _input_share(fixed)
    batch, single = _batched(ladder), _sample_time(as_found.detailed, as_found)
    for what, claimed, samples in (
        (f"Tokenization of {BATCH_SAMPLES} samples in one batch", BATCH_TOKENIZE_S, BATCH_SAMPLES),
        ("The same, a sample", SAMPLE_TOKENIZE_S, 1),
    ):
        yield what, "", f"{1e3 * claimed:g} ms", _times(batch, single, samples)


def _times(batch: Measure | None, single: Measure, samples: int) -> Cell:
    """Time of `samples` in one call; where that was not timed, the time of as many calls, as text only."""
    included = "reading of the text included"
    if batch is not None and batch.value is not None:
        return replace(seconds_cell(samples * batch.value), note=f"one call a chunk; {included}")
    if batch is not None or single.value is None:
        return missing_cell((batch or single).reason)
    return Cell(f"one call a sample: {phrase(samples * single.value, 's')}; {UNTIMED}", note=included)


def _input_share(view: ReportSide) -> Cell:
    parts = view.detailed.breakdown
    total = sum(part.value for part in parts.values() if part.value is not None)
    part = parts.get("input")
    if part is None or part.value is None or not total:
        return missing_cell(part.reason if part is not None and part.reason else view.why_no_breakdown())
    return Cell(percent(part.value / total).removesuffix("%"), "%", sort=part.value / total, note="breakdown pass")


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


def _whole(share: float) -> str:
    return f"{100 * share:.0f}%"


def _span(shares: tuple[float, float]) -> str:
    return f"{100 * shares[0]:.0f} to {100 * shares[1]:.0f}%"


TITLE = "Claimed and measured"
_COLUMNS = (Column("What"), Column("Claimed"), Column("Measured here"))


def build(report_input: ReportInput) -> Section | None:
    """One table; every claim of the case has a row, measured or not."""
    rows = claim_rows(report_input)
    if not rows:
        return None
    device = report_input.devices
    caption = f"Claimed by {SOURCE}, and measured on {device}"
    table = Table(caption, _COLUMNS, tuple(map(_cells, rows)))
    return Section("claims", TITLE, (Text(_of_what(device)), table))


def _cells(row: ClaimRow) -> tuple[Cell, ...]:
    return Cell(row.what, note=row.side), Cell(row.claimed), row.measured


def _of_what(device: str) -> str:
    text = f"The numbers of {SOURCE} were given for a GPU; the bundled trainer rebuilds its pattern."
    if device == HOST_DEVICE:
        return (
            f"{text} Everything measured here is of the {device}, which is not a GPU: counts and shares can be held "
            "against the claims, rates and times of the device cannot."
        )
    return f"{text} Everything measured here is of {device}, on this machine."


PLUGIN = SectionPlugin("claims", TITLE, 26, build)
