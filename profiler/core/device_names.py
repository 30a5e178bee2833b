"""What a device is called in front of people: one place, so that the host device is never called a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

HOST_DEVICE: Final = "host device (CPU)"
_NAMES: Final = {"host": HOST_DEVICE, "cpu": "CPU"}


def device_name(kind: str, labels: Iterable[str] = ()) -> str:
    """Name of the device that a program called `kind` (host, cuda, cpu); `labels` are the names of its GPUs."""
    if kind in _NAMES:
        return _NAMES[kind]
    return ", ".join(dict.fromkeys(label for label in labels if label)) or kind or "device not named"


def stated_device(facts: Mapping[str, Any], devices: Iterable[Mapping[str, Any]]) -> str:
    """Name of the device of a run: what the program said of it (`device`, `device_label`), else the GPUs' names."""
    label = str(facts.get("device_label", ""))
    labels = [label] if label else [str(device.get("name", "")) for device in devices]
    return device_name(str(facts.get("device", "")), labels)
