"""Where the input's time goes: what workers do and whether they keep up, and what the training thread does itself."""

from __future__ import annotations

from typing import Final

from profiler.analyse.model import RECEIVE, WAITING_FOR_INDEX, WAITING_FOR_WORKERS, InputPart
from profiler.report.blocks import NOTHING, Block, Callout, Cell, Column, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.quantities import percent, seconds_cell, share_cell, short_site, site_cell
from profiler.report.subject import Subject, View, views
from profiler.report.text import input_part

TITLE = "Where the input's time goes"
SUBSTANTIAL: Final = 0.05
"""Share of a step below which the input is left alone: without it the program would be less than 6% faster."""
BUSY: Final = 0.8
"""Share of their time from which workers count as busy: the rest is lost where one waits for its turn."""
_COLUMNS = (
    Column("Part"),
    Column("In"),
    Column("At"),
    Column("Time a step", number=True),
    Column("Share", number=True),
)
_NOTE = (
    "Workers: seconds summed over them for each step of the training process, share of the time in which they were "
    "there. Main process: share of the step."
)


def build(subject: Subject) -> Section | None:
    """A conclusion and a table for each side whose input was seen; None where none was."""
    sides = [view for view in views(subject) if view.any_detail.input]
    if not sides:
        return None
    blocks: list[Block] = []
    for view in sides:
        blocks.extend((Callout(conclusion(view), label=view.label), _table(view)))
    return Section("input", TITLE, tuple(blocks), brief=_brief(sides))


def _brief(sides: list[View]) -> tuple[Block, ...]:
    """The conclusions; of several sides each behind its name."""
    said = [(view.label, text) for view in sides if (text := conclusion(view))]
    return tuple(Text(text if len(sides) == 1 else f"{label}: {text}") for label, text in said)


def conclusion(view: View) -> str:
    """Whether the input limits this side, and where that comes from, in plain words."""
    parts = view.any_detail.input
    workers = [part for part in parts if part.where == "worker"]
    said = [_of_workers(view, workers) if workers else _of_one_process(parts)]
    inline = [part for part in parts if part.context == "inline"]
    taken = sum(part.share for part in inline)
    if taken >= SUBSTANTIAL:
        most = max(inline, key=lambda part: part.share).name
        name = most if len(inline) == 1 else f"mostly {most}"
        said.append(f"Outside of any loader the training thread spends {percent(taken)} of each step on input: {name}.")
    return " ".join(filter(None, said))


def _of_workers(view: View, workers: list[InputPart]) -> str:
    idle = sum(part.share for part in workers if part.name == WAITING_FOR_INDEX)
    main = [part for part in view.any_detail.input if part.where == "main process" and part.context == "loader"]
    waits = sum(part.share for part in main if part.name == WAITING_FOR_WORKERS)
    receives = sum(part.share for part in main if part.name == RECEIVE)
    if waits + receives < SUBSTANTIAL:
        return f"{_crew(view, 'wait', 'waits')} {percent(idle)} of the time for work: the input keeps up."
    if receives > waits or (receives >= SUBSTANTIAL and idle > 1 - BUSY):
        return (
            f"Receiving batches from workers takes {percent(receives)} of each step, waiting for them "
            f"{percent(waits)}: fewer and larger tensors in a batch are received faster."
        )
    if idle > 1 - BUSY:
        return (
            f"The training thread waits {percent(waits)} of each step although "
            f"{_lower(_crew(view, 'wait', 'waits'))} {percent(idle)} of the time for work: batches come late, not "
            "slowly, as after a start, with few prefetched, or when one takes much longer than the others."
        )
    most = max((part for part in workers if part.name != WAITING_FOR_INDEX), key=lambda part: part.share)
    where = f" ({short_site(most.site)})" if most.site else ""
    return (
        f"{_crew(view, 'are', 'is')} busy {percent(1 - idle)} of the time and the training thread waits "
        f"{percent(waits)} of each step: the input is what limits. Most of their time goes to {most.name}{where}."
        f"{_room(view)}"
    )


def _of_one_process(parts: tuple[InputPart, ...]) -> str:
    own = [part for part in parts if part.where == "main process" and part.context == "loader"]
    taken = sum(part.share for part in own)
    if not own:
        return ""
    if taken < SUBSTANTIAL:
        return f"The training thread spends {percent(taken)} of each step in its loader: there is little to gain."
    most = max(own, key=lambda part: part.share)
    where = f" ({short_site(most.site)})" if most.site else ""
    return (
        f"The training thread makes its batches itself, which takes {percent(taken)} of each step, most of it "
        f"{most.name}{where}: workers (num_workers) could make them meanwhile."
    )


def _workers(view: View) -> int:
    """How many workers there are; 0: not known."""
    measure = view.any_detail.measures.get("loader_workers")
    return round(measure.value) if measure is not None and measure.value is not None else 0


def _crew(view: View, several: str, one: str) -> str:
    """The workers and a verb."""
    number = _workers(view)
    if number == 1:
        return f"The worker {one}"
    return f"{number} workers {several}" if number else f"Workers {several}"


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _room(view: View) -> str:
    """Whether the machine has cores for more workers."""
    number, cores = _workers(view), view.info.host.get("cores")
    if not number or not isinstance(cores, int):
        return ""
    if number < cores - 1:
        return f" The machine has {cores} cores: more workers can help."
    return f" The machine has {cores} cores: with more workers they would take them from each other."


def _table(view: View) -> Table:
    return Table(f"{view.label}: parts of the input", _COLUMNS, tuple(map(_row, view.any_detail.input)), _NOTE)


def _row(part: InputPart) -> tuple[Cell, ...]:
    return (
        Cell(input_part(part)),
        Cell("workers" if part.where == "worker" else part.where),
        site_cell(part.site) if part.site else Cell(NOTHING),
        seconds_cell(part.seconds_per_step),
        share_cell(part.share),
    )


PLUGIN = SectionPlugin("input", TITLE, 35, build)
