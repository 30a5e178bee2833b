"""Devices get work by their free memory and what a first worker takes; unknown values are not guessed."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from reference_trainer.devices import cuda_probe
from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm import placement
from reference_trainer.ssm.placement import Device, MemoryUse, Placement, cores, find_free_devices, kind_of, shared
from tests.reference_trainer.processes import refusal

GB = 1 << 30


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """Pretend that the machine has these GPUs."""
    there: list[Device] = []
    monkeypatch.setattr(cuda_probe, "unavailable", lambda: "")
    monkeypatch.setattr(placement, "_gpus", lambda name: [item.name for item in there if name in (item.name, "cuda")])
    monkeypatch.setattr(placement, "look", lambda name: next(item for item in there if item.name == name))
    return there


def names(found: Placement) -> list[str]:
    return [device.name for device in found.devices]


def test_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_probe, "unavailable", lambda: f"{cuda_probe.NO_DRIVER} (x)")
    assert kind_of("cpu") == kind_of("auto") == "cpu"
    with pytest.raises(TrainerError, match="device cuda:1: no NVIDIA driver"):
        kind_of("cuda:1")
    monkeypatch.setattr(cuda_probe, "unavailable", lambda: "no compiler")
    assert kind_of("auto") == "cpu"
    monkeypatch.setattr(cuda_probe, "unavailable", lambda: "")
    assert kind_of("auto") == kind_of("cuda") == kind_of("cuda:0") == "cuda"


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "auto:0"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(TrainerError, match=r"unknown device .*: choose one of auto, cpu, cuda, cuda:0"):
        kind_of(name)


def test_a_cpu_is_looked_at() -> None:
    [device] = find_free_devices("cpu", PerformanceConfig()).devices
    assert device.name == "cpu"
    assert 0 < (device.free or 0) <= (device.total or 0)
    assert device.load is not None
    assert device.load >= 0


@pytest.mark.usefixtures("eight_cores")
def test_a_cpu_has_a_worker_a_core_and_fewer_where_memory_is_short() -> None:
    cpu = Device("cpu", 100 * GB, 60 * GB, 0.1)

    def workers(used: int | None, **limits: float) -> int:
        here = Placement((cpu,), **limits)
        return len(here.first()) + len(here.rest([MemoryUse(used, 100 * GB, 59 * GB)]))

    assert workers(GB) == 8
    assert workers(10 * GB) == 6
    assert workers(10 * GB, max_memory=0.9) == 5, "90 GB may be in use, and 40 are"
    assert workers(1000 * GB) == 1, "it is there already"
    assert workers(None) == 8, "what is not known is no limit"
    assert workers(1000 * GB, workers=3) == 3, "who asks for them gets them"


@pytest.mark.usefixtures("eight_cores")
def test_gpus_have_workers_in_turn_as_memory_holds_them() -> None:
    devices = (Device("cuda:0", 80 * GB, 80 * GB, 0.0), Device("cuda:1", 80 * GB, 40 * GB, 0.0))
    here = Placement(devices, max_memory=1.0)
    memory_use = [MemoryUse(GB, 80 * GB, free * GB) for free in (60, 20)]  # 20 GB each: what CUDA holds counts
    assert [slot.name for slot in here.first()] == ["cuda:0", "cuda:1"]
    assert [slot.name for slot in here.rest(memory_use)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:0"]
    small = [MemoryUse(GB, 80 * GB, free * GB) for free in (79, 39)]
    assert len(here.rest(small)) + 2 == cores() == 8, "a worker launches from a core"
    fixed = Placement(devices, workers=3)
    slots = shared([*fixed.first(), *fixed.rest(memory_use)])
    assert slots == [("cuda:0", "cuda:0", 2), ("cuda:1", "cuda:1", 1), ("cuda:0", "cuda:0", 2)]
    assert len(Placement(devices, workers=1).first()) == 1
    assert here.rest([MemoryUse(None, None), MemoryUse(None, None)]) == [], "one each where nothing is known of it"


@pytest.mark.usefixtures("eight_cores")
def test_no_more_workers_than_have_work() -> None:
    cpu = Device("cpu", 100 * GB, 60 * GB, 0.1)
    memory_use = [MemoryUse(GB, 100 * GB, 59 * GB)]
    assert len(Placement((cpu,), limit=3).rest(memory_use)) == 2
    assert len(Placement((cpu,), workers=8, limit=3).rest(memory_use)) == 2
    assert len(Placement((cpu,), workers=2, limit=3).rest(memory_use)) == 1
    assert Placement((cpu,), limit=1).rest(memory_use) == []
    gpus = tuple(Device(f"cuda:{number}", 80 * GB, 80 * GB, 0.0) for number in range(4))
    here = Placement(gpus, limit=2)
    assert [slot.name for slot in here.first()] == ["cuda:0", "cuda:1"]
    assert here.rest([MemoryUse(GB, 80 * GB, 79 * GB)] * 2) == []


class Clock:
    """A clock that only `sleep` moves; the load of the first GPU falls by 0.2 in each second."""

    def __init__(self, gpus: list[Device]) -> None:
        self.now, self._gpus = 100.0, gpus

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._gpus[0] = replace(self._gpus[0], load=(self._gpus[0].load or 0.0) - 0.2 * seconds)


def test_a_busy_device_is_waited_for(
    gpus: list[Device], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(gpus)
    monkeypatch.setattr(placement, "time", clock)
    busy = Device("cuda:0", 80 * GB, 80 * GB, 0.9)
    gpus.append(busy)
    assert names(find_free_devices("cuda", PerformanceConfig(max_load=0.5, max_load_wait=60))) == ["cuda:0"]
    assert clock.now == 102.0
    assert caplog.messages == ["waiting at most 60 s: cuda:0 is busy at 90%, max_load is 50%"]
    gpus[0] = busy
    line = refusal(find_free_devices, "cuda", PerformanceConfig(max_load=0.1, max_load_wait=1.5))
    assert line == "no device has room for a sweep after 1.5 s: cuda:0 is busy at 60%, max_load is 10%"
    gpus[0] = replace(busy, free=GB)
    line = refusal(find_free_devices, "cuda", PerformanceConfig(max_load=0.95, max_load_wait=60))
    assert line.startswith("no device has room for a sweep: cuda:0 has 99% of its memory in use")
    assert clock.now == 103.5, "only the load is waited for"


def test_a_share_of_a_gpu() -> None:
    here = Placement((Device("cuda:0", None, None, None),), max_memory=0.5)
    assert here.share(MemoryUse(10 * GB, 80 * GB)) == 0.25
    assert here.share(MemoryUse(100 * GB, 80 * GB)) == here.share(MemoryUse(None, None)) == 1.0


def test_busy_devices_are_left_out_and_the_freest_come_first(gpus: list[Device]) -> None:
    there = ((80, 0.5), (79, 0.1), (80, 0.97), (4, 0.0), (80, None))
    gpus += [Device(f"cuda:{number}", 80 * GB, free * GB, load) for number, (free, load) in enumerate(there)]
    found = find_free_devices("cuda", PerformanceConfig(max_load=0.8))
    assert names(found) == ["cuda:4", "cuda:1", "cuda:0"]
    assert found.left_out == (
        "cuda:2 is busy at 97%, max_load is 80%",
        "cuda:3 has 95% of its memory in use, max_memory is 90%",
    )
    assert names(find_free_devices("cuda", PerformanceConfig(max_load=0.8, num_devices=2))) == ["cuda:4", "cuda:1"]
    assert "cuda:2" in names(find_free_devices("cuda", PerformanceConfig())), "without a limit any load will do"
    with pytest.raises(TrainerError, match=r"no device has room for a sweep: cuda:3 has 95% of its memory in use, .*"):
        find_free_devices("cuda:3", PerformanceConfig())
