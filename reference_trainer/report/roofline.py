"""The model of the language model on a GPU beside what was measured there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from profiler.report.blocks import Cell, Column, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide
from profiler.report.table import missing_cell, percent, phrase

TITLE: Final = "Model of this GPU and measurement"
_EXPLANATION: Final = (
    "The modeled values follow from the shape of the model, the peaks of the data sheet and assumed costs of calls "
    "on the host (python -m reference_trainer.lm --roofline). The range in brackets is for half and twice these costs."
)
_SIDES: Final = {"as-found": ("as_found_s", "as_found_busy"), "fixed": ("fixed_s", "fixed_busy")}
"""Variant of a side -> its modeled time per token and share of the time that the device is busy."""


def build(report_input: ReportInput) -> Section | None:
    """A row for each figure of each side that the model covers; nothing on a device that it does not know."""
    rows = [row for side in report_input.sides for row in _rows(side)]
    if not rows:
        return None
    card = next(model["card"] for side in report_input.sides if (model := _model(side)))
    columns = Column("What"), Column("Modeled"), Column("Measured here")
    return Section(
        "roofline", TITLE, (Text(_EXPLANATION), Table(f"Modeled for {card}, and measured", columns, tuple(rows)))
    )


def _model(side: ReportSide) -> dict[str, Any] | None:
    """The estimate that the trainer stated; None: another device or another program."""
    stated = side.info.facts.get("roofline")
    return stated if isinstance(stated, dict) and "card" in stated else None


def _rows(side: ReportSide) -> Iterator[tuple[Cell, ...]]:
    model, names = _model(side), _SIDES.get(str(side.info.facts.get("variant")))
    if model is None or names is None:
        return
    seconds, busy = (model[name] for name in names)
    figures: list[tuple[str, list[str], str, Callable[[float], str]]] = [
        ("time per token", [phrase(s, "s") for s in seconds], "tokens_per_s", lambda speed: phrase(1 / speed, "s")),
        ("device busy", [percent(share) for share in busy], "device_utilization", percent),
    ]
    if "flops_per_token" in model:  # runs of older versions do not state it
        least = model["flops_per_token"] / model["peak_flops"]
        figures.append(("share of the card's peak", [percent(least / s) for s in seconds], "peak_share", percent))
    for what, modeled, name, shown in figures:
        measure = side.measure(name)
        measured = Cell(shown(measure.value)) if measure.value else missing_cell(measure.reason)
        yield Cell(what, note=side.label), Cell(_range(modeled)), measured


def _range(texts: Sequence[str]) -> str:
    """The value at the assumed costs, and those at half and twice these."""
    middle, low, high = texts
    return middle if low == high else f"{middle} ({low}, {high})"


PLUGIN = SectionPlugin("roofline", TITLE, 27, build, group="device")
