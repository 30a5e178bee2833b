"""The surroundings of the sides of a comparison: rows that differ, and rows that are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profiler.base.device_names import stated_device
from profiler.base.units import size
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
    rows |= _flat(info.facts, skip=("device", "device_label"))
    rows |= _flat(info.host)
    rows |= {f"GPU {number}": str(device.get("name", "unnamed")) for number, device in enumerate(info.devices)}
    rows["git commit"] = info.git_commit or "not in a git checkout"
    return rows | {f"{name} version": version for name, version in info.versions.items()}


def _flat(values: Mapping[str, Any], prefix: str = "", skip: Sequence[str] = ()) -> dict[str, str]:
    rows: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}".replace("_", " ")
        if key in skip or value is None:
            continue
        if isinstance(value, Mapping):
            rows |= _flat(value, f"{key} ")
        elif isinstance(value, (list, tuple)):
            rows[name] = ", ".join(map(str, value)) or "none"
        elif key.endswith("_bytes") and isinstance(value, (int, float)):
            rows[name.removesuffix(" bytes")] = size(value)
        else:
            rows[name] = str(value)
    return rows
