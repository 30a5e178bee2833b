"""What a device is called: the program's word first, and the host device never a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.core.device_names import stated_device

GPUS = ({"name": "NVIDIA H200"}, {"name": "NVIDIA H200"})


@pytest.mark.parametrize(
    ("facts", "devices", "expected"),
    [
        ({"device": "host", "device_label": "one core"}, GPUS, "host device (CPU)"),
        ({"device": "cpu"}, (), "CPU"),
        ({"device": "cuda", "device_label": "NVIDIA L4"}, GPUS, "NVIDIA L4"),
        ({"device": "cuda"}, GPUS, "NVIDIA H200"),
        ({"device": "cuda"}, (), "cuda"),
        ({}, ({},), "device not named"),
    ],
)
def test_name(facts: dict[str, Any], devices: tuple[dict[str, Any], ...], expected: str) -> None:
    assert stated_device(facts, devices) == expected
