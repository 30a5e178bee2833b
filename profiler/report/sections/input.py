"""Where the input's time goes: what loader workers do and whether they keep up, and what the training thread does."""

from __future__ import annotations

from typing import Final

from profiler.analyse.model import RECEIVE, WAITING_FOR_INDEX, WAITING_FOR_WORKERS, InputPart
from profiler.report.blocks import NOTHING, Block, Callout, Cell, Section, Text
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide
from profiler.report.table import Field, make_table, percent, seconds_cell, share_cell, short_site, site_cell
from profiler.report.text import input_part

TITLE = "Where the input's time goes"
SUBSTANTIAL: Final = 0.05
"""Share of a step below which the input does not matter: without it the program would be less than 6% faster."""
BUSY: Final = 0.8
"""Share of their time from which workers count as busy: the rest is lost where one waits for its turn."""
_FIELDS = (
    Field[InputPart]("Part", lambda part: Cell(input_part(part))),
    Field[InputPart]("In", lambda part: Cell("workers" if part.where == "worker" else part.where)),
    Field[InputPart]("At", lambda part: site_cell(part.site) if part.site else Cell(NOTHING)),
    Field[InputPart]("Time per step", lambda part: seconds_cell(part.seconds_per_step), number=True),
    Field[InputPart]("Share", lambda part: share_cell(part.share), number=True, bar=True),
)
_NOTE = (
    "Workers: seconds summed over them for each step of the training process, share of the time in which they were "
    "there. Main process: share of the step."
)


def build(report_input: ReportInput) -> Section | None:
    """A conclusion and a table for each side whose input was seen; None where none was."""
    sides = [side for side in report_input.sides if side.detailed.input]
    if not sides:
        return None
    blocks: list[Block] = []
    brief: list[Block] = []
    for side in sides:
        text = conclusion(side)
        table = make_table(f"{side.label}: parts of the input", _FIELDS, side.detailed.input, _NOTE)
        blocks += (Callout(text, label=side.label), table)
        if text:
            brief.append(Text(text if len(sides) == 1 else f"{side.label}: {text}"))
    return Section("input", TITLE, tuple(blocks), brief=tuple(brief))


def conclusion(side: ReportSide) -> str:
    """Whether the input limits this side, and what takes its time."""
    parts = side.detailed.input
    workers = [part for part in parts if part.where == "worker"]
    loader = [part for part in parts if part.where == "main process" and part.context == "loader"]
    sentences = [_with_workers(side, workers, loader) if workers else _without_workers(loader)]
    inline = [part for part in parts if part.context == "inline"]
    share = sum(part.share for part in inline)
    if share >= SUBSTANTIAL:
        largest = max(inline, key=lambda part: part.share).name
        name = largest if len(inline) == 1 else f"mostly {largest}"
        sentences.append(
            f"Outside of any loader the training thread spends {percent(share)} of each step on input: {name}."
        )
    return " ".join(filter(None, sentences))


def _with_workers(side: ReportSide, workers: list[InputPart], loader: list[InputPart]) -> str:
    idle = sum(part.share for part in workers if part.name == WAITING_FOR_INDEX)
    waits = sum(part.share for part in loader if part.name == WAITING_FOR_WORKERS)
    receives = sum(part.share for part in loader if part.name == RECEIVE)
    count = _worker_count(side)
    subject = "The worker" if count == 1 else f"{count} workers" if count else "Workers"
    wait = f"{subject} {'waits' if count == 1 else 'wait'} {percent(idle)} of the time for work"
    if waits + receives < SUBSTANTIAL:
        return f"{wait}: the input keeps up."
    if receives > waits or (receives >= SUBSTANTIAL and idle > 1 - BUSY):
        return (
            f"Receiving batches from workers takes {percent(receives)} of each step, waiting for them "
            f"{percent(waits)}: fewer and larger tensors in a batch are received faster."
        )
    if idle > 1 - BUSY:
        return (
            f"The training thread waits {percent(waits)} of each step although {wait[:1].lower()}{wait[1:]}: batches "
            "come late, not slowly, as after a start, with few prefetched, or when one takes much longer than the "
            "others."
        )
    largest = max((part for part in workers if part.name != WAITING_FOR_INDEX), key=lambda part: part.share)
    return (
        f"{subject} {'is' if count == 1 else 'are'} busy {percent(1 - idle)} of the time and the training thread waits "
        f"{percent(waits)} of each step: the input is what limits. Most of their time goes to "
        f"{_name_and_site(largest)}.{_cores_sentence(side, count)}"
    )


def _without_workers(loader: list[InputPart]) -> str:
    share = sum(part.share for part in loader)
    if not loader:
        return ""
    if share < SUBSTANTIAL:
        return f"The training thread spends {percent(share)} of each step in its loader: there is little to gain."
    return (
        f"The training thread makes its batches itself, which takes {percent(share)} of each step, most of it "
        f"{_name_and_site(max(loader, key=lambda part: part.share))}: workers (num_workers) could make them meanwhile."
    )


def _name_and_site(part: InputPart) -> str:
    return part.name + (f" ({short_site(part.site)})" if part.site else "")


def _worker_count(side: ReportSide) -> int:
    """0: not known."""
    measure = side.detailed.measures.get("loader_workers")
    return round(measure.value) if measure is not None and measure.value is not None else 0


def _cores_sentence(side: ReportSide, workers: int) -> str:
    """Whether the machine has cores for more workers."""
    cores = side.info.host.get("cores")
    if not workers or not isinstance(cores, int):
        return ""
    if workers < cores - 1:
        return f" The machine has {cores} cores: more workers can help."
    return f" The machine has {cores} cores: more workers would compete for them."


PLUGIN = SectionPlugin("input", TITLE, 35, build)
