"""The environment of each side: what differs first, then what they share."""

from __future__ import annotations

from collections.abc import Iterable

from profiler.analyse.model import Comparison
from profiler.core.facts import fact_rows
from profiler.report.blocks import Block, Cell, Column, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.subject import Subject, device_name, views
from profiler.run.model import RunInfo

TITLE = "Environment"
_NAMED = frozenset({"device", "device_label", "device_name"})
"""Facts that the row of the device tells."""


def build(subject: Subject) -> Section:
    """Differences, common rows, commands."""
    if isinstance(subject, Comparison):
        return Section("environment", TITLE, _of_comparison(subject))
    return Section("environment", TITLE, (_pairs("This run", rows_of(subject.info)),))


def _of_comparison(subject: Comparison) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if subject.differences:
        columns = (Column("Differs"), *(Column(v.label, tone=v.tone) for v in views(subject)))
        rows = tuple(
            (Cell(name), *(Cell(value) for value in values)) for name, values in subject.differences if any(values)
        )
        blocks.append(Table("What differs between the sides", columns, rows))
    else:
        blocks.append(Text("No difference between the environments of the sides was seen."))
    commands = [(side.label, side.command) for side in subject.sides if side.command]
    if commands:
        rows = tuple((Cell(name), Cell(command, code=True)) for name, command in commands)
        blocks.append(Table("Commands", (Column("Side"), Column("Command")), rows))
    if subject.environment:
        blocks.append(_pairs("The same on all sides", subject.environment))
    elif subject.sides and subject.sides[0].runs:
        blocks.append(_pairs(f"Environment of {subject.sides[0].label}", rows_of(subject.sides[0].runs[0].info)))
    return tuple(blocks)


def _pairs(caption: str, rows: Iterable[tuple[str, str]]) -> Table:
    cells = tuple((Cell(name), Cell(value)) for name, value in rows if value.strip())
    return Table(caption, (Column("What"), Column("Value")), cells)


def rows_of(info: RunInfo) -> tuple[tuple[str, str], ...]:
    """What a manifest says of the machine and the program, name and value."""
    rows = [
        ("device", device_name(info)),
        ("command", " ".join(info.argv)),
        ("state", info.state),
        ("level", info.level),
    ]
    rows += [("started", info.started_at), ("git commit", info.git_commit or "not in a git checkout")]
    rows += fact_rows(info.host).items()
    rows += [(f"GPU {i}", str(device.get("name", "unnamed"))) for i, device in enumerate(info.devices)]
    rows += fact_rows({name: value for name, value in info.facts.items() if name not in _NAMED}).items()
    rows += [(f"{name} version", version) for name, version in info.versions.items()]
    return tuple(rows)


PLUGIN = SectionPlugin("environment", TITLE, 100, build)
