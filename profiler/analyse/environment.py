"""The surroundings of the sides of a comparison: rows that differ, and rows that are the same."""

from __future__ import annotations

from collections.abc import Sequence

from profiler.core.facts import fact_rows, stated_device
from profiler.run.model import RunInfo

Row = tuple[str, tuple[str, ...]]
ABSENT = "-"


def environment(infos: Sequence[RunInfo]) -> tuple[tuple[Row, ...], tuple[tuple[str, str], ...]]:
    """(name, value per side) of what differs, and (name, value) of what is the same on all sides."""
    tables = [_rows(info) for info in infos]
    different, same = [], []
    for name in dict.fromkeys(name for table in tables for name in table):
        values = tuple(table.get(name, ABSENT) for table in tables)
        if len(set(values)) > 1:
            different.append((name, values))
        else:
            same.append((name, values[0]))
    return tuple(different), tuple(same)


def _rows(info: RunInfo) -> dict[str, str]:
    rows = {"device": stated_device(info.facts, info.devices)}
    rows |= fact_rows(info.facts, skip=("device", "device_label"))
    rows |= fact_rows(info.host)
    rows |= {f"GPU {number}": str(device.get("name", "unnamed")) for number, device in enumerate(info.devices)}
    rows["git commit"] = info.git_commit or "not in a git checkout"
    return rows | {f"{name} version": version for name, version in info.versions.items()}
