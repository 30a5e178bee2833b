"""The key measures of one run: what is known of it, and no row for what is not; the list at the end has the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from profiler.core.metrics import RATES, is_share, label
from profiler.report.blocks import Cell, Column, Table
from profiler.report.quantities import measure_cell, phrase, share_cell
from profiler.report.subject import View

_MEASURES: Final = (
    "device_utilization",
    "syncs_per_step",
    "h2d_per_step",
    "d2h_per_step",
    "allocations_per_step",
    "would_sync_per_step",
    "host_cpu",
    "children_cpu",
    "peak_memory",
    "loss",
    "accuracy",
)


def key_table(view: View) -> Table:
    """Time of a step and its spread, rate, share of waiting for data, then whatever else was measured."""
    rows = tuple((Cell(title), cell) for title, cell in _rows(view))
    return Table("Key measures", (Column("Measure"), Column(view.label, number=True, tone=view.tone)), rows)


def key_numbers(view: View) -> tuple[tuple[str, Cell], ...]:
    """Those to be read from across the room: the rate, the time of a step, how busy the device was or data's share."""
    third = _known(view, "device_utilization") or waiting(view)
    return tuple(pair for pair in (_rate(view), _step(view), third) if pair is not None)


def _rows(view: View) -> Iterator[tuple[str, Cell]]:
    found = (_rate(view), _step(view), waiting(view), *(_known(view, name) for name in _MEASURES))
    yield from (pair for pair in found if pair is not None)


def _rate(view: View) -> tuple[str, Cell]:
    name = next((name for name in RATES if view.measure(name).value is not None), "")
    return (label(name), measure_cell(view.measure(name))) if name else (label(RATES[0]), _missing(view))


def _missing(view: View) -> Cell:
    return measure_cell(replace(view.measure(RATES[0]), value=None))


def _step(view: View) -> tuple[str, Cell] | None:
    """The mean of a step, which the rate beside it is of, and how much steps differ: a slow one hides in it."""
    mean, middle, late = (view.measure(name) for name in ("step_time", "step_time_p50", "step_time_p95"))
    if mean.value is None or middle.value is None or late.value is None or mean.n == 1:
        return _known(view, "step_time")
    note = f"median {phrase(middle.value, 's')}; 95% below {phrase(late.value, 's')}"
    return f"{label('step_time')}, mean", replace(measure_cell(mean), note=note)


def waiting(view: View) -> tuple[str, Cell] | None:
    """Share of a step in which the training thread waits for data or makes it."""
    share = next((phase.share for phase in view.any_detail.phases if phase.name == "data"), None)
    return None if share is None else ("Waiting for data", share_cell(share))


def _known(view: View, name: str) -> tuple[str, Cell] | None:
    measure = view.measure(name)
    return None if measure.value is None else (label(name), measure_cell(measure, share=is_share(name)))
