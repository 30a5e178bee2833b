"""The GPU collector on a fake NVML: units, what a GPU does not tell, a GPU that is lost, and no driver."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from profiler.core.samples import SAMPLE_NAMES
from profiler.record.collector import Context
from profiler.record.collectors.gpu import GpuCollector
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import CollectorStatus, RunInfo, RunSpec
from tests.fakes.nvml import FakeNvml


def collect(folder: Path, nvml: FakeNvml, readings: int) -> CollectorStatus:
    """Run the collector until it has asked for the utilisation so many times, or has given up."""
    collector = GpuCollector()
    assert collector.available() is None
    store.create(folder)
    store.write_manifest(folder, RunInfo(1, "r", "", ("x",), devices=collector.describe()["devices"], state="complete"))
    writer = store.RunWriter(folder)
    collector.start(Context(RunSpec(("x",), folder, sample_period=0.001), 1, writer))
    while nvml.readings < readings:
        pass
    status = collector.stop()
    writer.close()
    return status


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_values_in_our_units(tmp_path: Path, nvml: FakeNvml) -> None:
    status = collect(tmp_path / "run", nvml, 4)
    run = load(tmp_path / "run")
    assert (status.state, status.records) == ("ok", len(run.samples))
    first: dict[tuple[str, int], float] = {}
    for row in run.samples:
        first.setdefault((run.names[row["name"]], int(row["tid"])), float(row["value"]))
    expected = {
        "gpu.util": 0.37,
        "gpu.memory_used": 1 << 30,
        "gpu.power": 123.4,
        "gpu.clock_sm": 1.5e9,
        "gpu.clock_memory": 3e9,
        "gpu.throttle": 4,
        "gpu.temperature": 41,
        "gpu.pcie_tx": 2000 * 1024,
        "gpu.pcie_rx": 2001 * 1024,
    }
    assert {name: value for (name, index), value in first.items() if index == 0} == expected
    assert first["gpu.memory_used", 1] == 2 << 30
    assert ("gpu.pcie_rx", 1) not in first, "the second GPU does not tell: no sample, not 0"
    assert set(run.names) <= set(SAMPLE_NAMES)
    assert run.info.devices[0]["name"] == "Fake GPU"
    assert run.info.devices[1]["memory_bytes"] == 141 << 30
    assert nvml.shut == 1


def test_a_lost_gpu_ends_the_collector_and_is_said(tmp_path: Path, nvml: FakeNvml) -> None:
    nvml.lost_after = 6
    status = collect(tmp_path / "run", nvml, 7)
    assert (status.state, status.reason) == ("failed", "NVMLError: GPU is lost")
    assert len(load(tmp_path / "run").samples) == status.records > 0


def test_without_a_driver(nvml: FakeNvml) -> None:
    nvml.driver = False
    assert GpuCollector().available() == "no NVIDIA driver found (NVML Shared Library Not Found)"


def test_without_a_gpu(nvml: FakeNvml) -> None:
    nvml.gpus = 0
    assert GpuCollector().available() == "the NVIDIA driver shows no GPU"


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "cannot be imported" in (GpuCollector().available() or "")
