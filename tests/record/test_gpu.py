"""The GPU collector on a fake NVML: units, what a GPU does not tell, a GPU that is lost, and no driver."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from profiler.core.metrics import SAMPLE_NAMES
from profiler.record.collectors import Context
from profiler.record.collectors.gpu import HIDDEN, GpuCollector, GpuReader, throttle_reasons
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import CollectorStatus, RunSpec
from tests.fakes.nvml import FakeNvml, NVMLError
from tests.recorded.directories import write_manifest


def collect(folder: Path, nvml: FakeNvml, readings: int) -> CollectorStatus:
    """Run the collector until it has asked for the utilization so many times, or has given up."""
    collector = GpuCollector()
    assert collector.available() is None
    store.create(folder)
    write_manifest(folder, devices=collector.describe()["devices"])
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


def test_a_lost_gpu_ends_the_collector_with_a_status(tmp_path: Path, nvml: FakeNvml) -> None:
    nvml.lost_after = 6
    status = collect(tmp_path / "run", nvml, 7)
    assert (status.state, status.reason) == ("failed", "NVMLError: GPU is lost")
    assert len(load(tmp_path / "run").samples) == status.records > 0


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("driver", "no NVIDIA driver found"),
        ("gpus", "the NVIDIA driver shows no GPU"),
        ("pynvml", "cannot be imported"),
    ],
)
def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, missing: str, reason: str) -> None:
    module = None if missing == "pynvml" else FakeNvml(driver=missing != "driver", gpus=0)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert reason in (GpuCollector().available() or "")
    reader = GpuReader()
    uses, note = reader.read([1], uses_cuda=True)
    assert uses == reader.all() == ()
    assert note.startswith("no GPU here: ")
    assert reason in note
    reader.close()


# ---------------------------------------------------------------- one reading at a time


@pytest.fixture
def busy(nvml: FakeNvml) -> FakeNvml:
    """Process 100 computes on the first GPU, 101 on the second."""
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda gpu: [SimpleNamespace(pid=100 + gpu)]
    return nvml


def test_the_gpus_of_a_program_and_their_figures(busy: FakeNvml) -> None:
    (gpu,), note = GpuReader().read([7, 101], uses_cuda=True)
    assert note == ""
    assert (gpu.index, gpu.name, gpu.utilization, gpu.power, gpu.power_limit) == (1, "Fake GPU", 0.37, 123.4, 700.0)
    assert (gpu.memory_used, gpu.memory_total, gpu.throttle) == (2 << 30, float(141 << 30), ("power cap",))
    assert all(value is not None for value in gpu.figures().values())
    busy.nvmlDeviceGetTemperature = None  # it is not asked for what it does not show
    hidden, note = GpuReader().read([7], uses_cuda=True)
    assert ([gpu.index for gpu in hidden], note) == ([0, 1], HIDDEN), "a container hides processes"
    assert GpuReader().read([7], uses_cuda=False) == ((), "the program uses no GPU (2 GPUs are here)")


def test_unsupported_figures_of_a_gpu_are_none(busy: FakeNvml) -> None:
    def refuse(gpu: int) -> None:
        raise NVMLError(3, "Not Supported")

    busy.nvmlDeviceGetUtilizationRates = refuse
    busy.nvmlDeviceGetComputeRunningProcesses = refuse
    found, _ = GpuReader().read([100], uses_cuda=True)
    assert found[0].utilization is None
    assert found[0].memory_used == 1 << 30


@pytest.mark.parametrize(
    ("bits", "words"), [(0, ()), (0x1, ()), (0x44, ("power cap", "hardware thermal")), (0x80, ("power brake",))]
)
def test_reasons_of_throttling(bits: int, words: tuple[str, ...]) -> None:
    assert throttle_reasons(bits) == words
