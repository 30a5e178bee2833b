"""Facts about a program and its machine, from a manifest, as text for people; names of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from profiler.core.units import size

INTERNAL_FACTS: Final = frozenset({"hooks", "main", "package", "processes", "torch_folder", "trace", "versions_of"})
"""Facts that reports do not list: which hooks came in, whose code is where, a trace's clock, whose versions."""
HOST_DEVICE: Final = "host device (CPU)"
_DEVICE_NAMES: Final = {"host": HOST_DEVICE, "cpu": "CPU"}
_KINDS: Final = {"cuda": "GPU"}
"""Names of devices that have no label."""


def fact_rows(facts: Mapping[str, Any], prefix: str = "", skip: Sequence[str] = ()) -> dict[str, str]:
    """A mapping and those within it as name -> text, without unknown and internal facts."""
    rows: dict[str, str] = {}
    for key, value in facts.items():
        name = f"{prefix}{key}".replace("_", " ")
        if key in skip or key in INTERNAL_FACTS or value is None or value == {}:
            continue
        if isinstance(value, Mapping):
            rows |= fact_rows(value, f"{key} ")
        elif isinstance(value, (list, tuple)):
            rows[name] = ", ".join(map(str, value)) or "none"
        elif key.endswith("_bytes") and isinstance(value, (int, float)):
            rows[name.removesuffix(" bytes")] = size(value)
        else:
            rows[name] = str(value)
    return rows


def stated_device(facts: Mapping[str, Any], devices: Iterable[Mapping[str, Any]]) -> str:
    """Name of a run's device: by the program's facts `device` and `device_label`, else by its GPUs."""
    kind = str(facts.get("device", ""))
    if kind in _DEVICE_NAMES:  # the host device is never called a GPU
        return _DEVICE_NAMES[kind]
    label = str(facts.get("device_label", ""))
    labels = [label] if label else [str(device.get("name", "")) for device in devices]
    return ", ".join(dict.fromkeys(filter(None, labels))) or _KINDS.get(kind, kind) or "device not named"
