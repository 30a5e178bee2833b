"""The claims of the case beside the measurements here: a row for each claim, in the section and in the JSON report."""

from __future__ import annotations

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

_THOUSANDS: Final = "thousands, named as a cause"
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
    """Every claim of the case, measured or not; none without a ladder or of another trainer than the language model."""
    ladder = comparison_ladder(report_input.comparison)
    if ladder is None or not report_input.sides or not is_language_model(report_input):
        return ()
    as_found, fixed = report_input.sides[0], report_input.sides[-1]
    batch, single = _batched(ladder), _sample_time(as_found.detailed, as_found)
    tokens_per_s = measure_cell(as_found.measure("tokens_per_s"), spread=True)
    gain = ratio_cell(report_input.ratio(fixed.label, "tokens_per_s"))
    syncs, copies, allocations = (
        _sum_of_both(as_found, fixed, names) for names in (("syncs_per_step",), _COPIES, ("allocations_per_step",))
    )
    cpu, busy, share = "CPU of the host's threads", "Device busy", "Tokenization (input), share of the host's time"
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
        ClaimRow(share, as_found.label, "named as a cause", _input_share(as_found)),
        ClaimRow(share, fixed.label, "not claimed", _input_share(fixed)),
        ClaimRow(batched, "", "45.3 ms", _times(batch, single, _BATCH_SAMPLES)),
        ClaimRow("The same, a sample", "", "5.7 ms", _times(batch, single, 1)),
    )


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
