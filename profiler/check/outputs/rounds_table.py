"""The rounds of a gate as a table: who ran in which order, what a step took, and what else the machine did."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.check.model import BASE, CANDIDATE, Round, Throughput
from profiler.check.outputs import words
from profiler.check.outputs.rounds import OF_COLUMNS, said_by_rounds, typical
from profiler.core import units
from profiler.report.blocks import NOTHING, Cell, Column, Table
from profiler.report.table import missing_cell, seconds_cell, share_cell

_UNKNOWN = "this machine does not say"


def rounds_table(gate: Throughput) -> Iterator[Table]:
    """Nothing without rounds."""
    if not gate.rounds:
        return
    columns = (
        Column("Round"),
        Column("Slots, in order"),
        Column("Base step", number=True),
        Column("Candidate step", number=True),
        Column("Slow-down", number=True),
        Column("Load", number=True),
        Column("Steal", number=True),
        Column("Held down by"),
    )
    note = (
        f"{OF_COLUMNS} Load: runnable threads of all programs, on so many cores. Steal: of the cores' "
        "time, what other machines took. Held down by: what kept clocks low."
    )
    yield Table("Every round", columns, tuple(_row(one, slower) for one, (slower, _) in said_by_rounds(gate)), note)


def _row(one: Round, slower: float | None) -> tuple[Cell, ...]:
    conditions = one.conditions
    value = words.in_percent(slower)
    return (
        Cell(f"{one.number}", note=words.ROUNDS.get(one.kind, one.kind), sort=one.number),
        Cell(", ".join(words.SIDES.get(slot, slot) for slot in one.slots)),
        *(_step(typical(one, side)) for side in (BASE, CANDIDATE)),
        missing_cell("too few turns")
        if value is None
        else Cell(words.percent(slower).removesuffix("%"), "%", sort=value),
        missing_cell(_UNKNOWN)
        if conditions.load is None
        else Cell(units.significant(conditions.load, 2), _of(conditions.cores), sort=conditions.load),
        missing_cell(_UNKNOWN) if conditions.steal is None else share_cell(conditions.steal),
        Cell(", ".join(conditions.throttled) or NOTHING),
    )


def _of(cores: int | None) -> str:
    return "" if cores is None else f"on {cores:,}"


def _step(value: float | None) -> Cell:
    return missing_cell("it took no step") if value is None else seconds_cell(value)
