"""The environment of each side: what differs first, then what they share."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.analyse.model import Comparison
from profiler.core.facts import fact_rows, stated_device
from profiler.report.blocks import Block, Cell, Column, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput
from profiler.run.model import RunInfo

TITLE = "Environment"
_DEVICE_FACTS = frozenset({"device", "device_label", "device_name"})
"""Facts that the row of the device shows."""


def build(report_input: ReportInput) -> Section:
    """Differences, common rows, commands."""
    if report_input.analysis is not None:
        table = _name_value_table("This run", environment_rows(report_input.analysis.info))
        return Section("environment", TITLE, (table,))
    assert report_input.comparison is not None
    return Section("environment", TITLE, _comparison_blocks(report_input, report_input.comparison))


def _comparison_blocks(report_input: ReportInput, comparison: Comparison) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if comparison.differences:
        columns = (Column("Differs"), *(Column(side.label, tone=side.tone) for side in report_input.sides))
        rows = tuple((Cell(name), *map(Cell, values)) for name, values in comparison.differences if any(values))
        blocks.append(Table("What differs between the sides", columns, rows))
    else:
        blocks.append(Text("No difference between the environments of the sides was seen."))
    commands = [(side.label, side.command) for side in comparison.sides if side.command]
    if commands:
        rows = tuple((Cell(name), Cell(command, code=True)) for name, command in commands)
        blocks.append(Table("Commands", (Column("Side"), Column("Command")), rows))
    if comparison.environment:
        blocks.append(_name_value_table("The same on all sides", comparison.environment))
    elif comparison.sides and comparison.sides[0].runs:
        rows_of_baseline = environment_rows(comparison.sides[0].runs[0].info)
        blocks.append(_name_value_table(f"Environment of {comparison.sides[0].label}", rows_of_baseline))
    return tuple(blocks)


def _name_value_table(caption: str, rows: Iterable[tuple[str, str]]) -> Table:
    cells = tuple((Cell(name), Cell(value)) for name, value in rows if value.strip())
    return Table(caption, (Column("What"), Column("Value")), cells)


def environment_rows(info: RunInfo) -> tuple[tuple[str, str], ...]:
    """What a manifest states about the machine and the program, name and value."""
    facts = {name: value for name, value in info.facts.items() if name not in _DEVICE_FACTS}
    return (
        ("device", stated_device(info.facts, info.devices)),
        ("command", " ".join(info.argv)),
        ("state", info.state),
        ("level", info.level),
        ("started", info.started_at),
        ("git commit", info.git_commit or "not in a git checkout"),
        *fact_rows(info.host).items(),
        *((f"GPU {index}", str(device.get("name", "unnamed"))) for index, device in enumerate(info.devices)),
        *fact_rows(facts).items(),
        *((f"{name} version", version) for name, version in info.versions.items()),
    )


PLUGIN = SectionPlugin("environment", TITLE, 100, build)
