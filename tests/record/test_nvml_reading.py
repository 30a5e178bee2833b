"""Which GPUs a program uses, and what they say, on a fake NVML."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from profiler.record.collectors._nvml import HIDDEN, Gpus, throttled_by
from tests.fakes.nvml import FakeNvml, NVMLError


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    fake.nvmlDeviceGetComputeRunningProcesses = lambda gpu: [SimpleNamespace(pid=100 + gpu)]
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_the_gpus_of_a_program_and_their_figures(nvml: FakeNvml) -> None:
    found, note = Gpus().read([7, 101], uses_cuda=True)
    assert (len(found), note) == (1, "")
    gpu = found[0]
    assert (gpu.index, gpu.name, gpu.utilization, gpu.power, gpu.power_limit) == (1, "Fake GPU", 0.37, 123.4, 700.0)
    assert (gpu.memory_used, gpu.memory_total, gpu.throttle) == (2 << 30, float(141 << 30), ("power cap",))
    assert all(value is not None for value in gpu.figures().values())


def test_a_container_hides_processes(nvml: FakeNvml) -> None:
    found, note = Gpus().read([7], uses_cuda=True)
    assert ([gpu.index for gpu in found], note) == ([0, 1], HIDDEN)


def test_a_program_that_uses_none(nvml: FakeNvml) -> None:
    assert Gpus().read([7], uses_cuda=False) == ((), "the program uses no GPU (2 GPUs are here)")


def test_what_a_gpu_does_not_tell_is_none(nvml: FakeNvml) -> None:
    def refuse(gpu: int) -> None:
        raise NVMLError(3, "Not Supported")

    nvml.nvmlDeviceGetUtilizationRates = refuse
    nvml.nvmlDeviceGetComputeRunningProcesses = refuse
    found, _ = Gpus().read([100], uses_cuda=True)
    assert found[0].utilization is None
    assert found[0].memory_used == 1 << 30


def test_no_driver(nvml: FakeNvml) -> None:
    nvml.driver = False
    gpus = Gpus()
    assert gpus.read([1], uses_cuda=True) == (
        (),
        "no GPU here: no NVIDIA driver found (NVML Shared Library Not Found)",
    )
    gpus.close()


@pytest.mark.parametrize(
    ("bits", "words"), [(0, ()), (0x1, ()), (0x44, ("power cap", "hardware thermal")), (0x80, ("power brake",))]
)
def test_throttling_in_words(bits: int, words: tuple[str, ...]) -> None:
    assert throttled_by(bits) == words
