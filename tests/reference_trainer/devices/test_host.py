"""The host device: copies, order, counters, pools, waiting; and that a busy host does not slow its worker."""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from profiler.run import tables
from reference_trainer.devices import host_queue as queue
from reference_trainer.devices import host_worker
from reference_trainer.devices.host import HostDevice
from reference_trainer.devices.host_records import Recorder
from reference_trainer.devices.host_worker import Worker
from reference_trainer.errors import TrainerError
from reference_trainer.kernels import rewards, scan
from tests.benchmarks.bench_worker import ratios
from tests.reference_trainer.devices import recordings, sequences

LARGEST_RATIO = 1.3
"""The project's bar: the worker's busy time while the host spins in Python, over that of the same kernels alone."""

HANGS_S = 120.0
"""Seconds after which a program that takes a few hangs."""


@pytest.fixture(params=[{}, {"blocking_wait": True}], ids=["spin", "block"])
def device(request: pytest.FixtureRequest) -> Iterator[HostDevice]:
    opened = HostDevice(**request.param)
    yield opened
    opened.close()


@pytest.mark.parametrize("ask", sequences.EVERYTHING)
def test_sequences(device: HostDevice, ask) -> None:
    ask(device)


def test_counters_are_exact(device: HostDevice) -> None:
    result, expected = sequences.counted(device)
    assert result == expected
    if device.label == "host device without a queue":
        assert result.busy_ns is None, "there is no worker whose time could be divided"
    else:
        assert result.busy_ns is not None
        assert result.busy_ns > 0


def test_commands_run_in_order(device: HostDevice) -> None:
    """Each kernel doubles what the one before left: any other order gives another number."""
    two = device.upload(2 * np.eye(3, dtype=np.float32))
    values = [device.upload(np.ones((1, 3), np.float32)) for _ in range(2)]
    for step in range(20):
        device.matmul(values[(step + 1) % 2], values[step % 2], two, 1)
    assert device.download(values[0]).tolist() == [[2.0**20] * 3]


def test_more_commands_than_the_ring_holds(device: HostDevice) -> None:
    total, item = device.zeros((1,)), device.upload(np.ones(1, np.float32))
    rounds = 3 * queue.SLOTS + 5
    for _ in range(rounds):
        device.launch(rewards.REWARD, total, item)
    assert device.download(total)[0] == rounds


def test_a_product_in_a_full_queue_does_not_wait_for_the_gil() -> None:
    """The interpreter never asks for the GIL here, and Numba takes it at the first product of a process."""
    program = """
import sys
from reference_trainer.devices import host_queue
from reference_trainer.devices.host import HostDevice
from reference_trainer.kernels import empty
device = HostDevice(blocking_wait=True)
matrix = device.zeros((8, 8))
device.launch(empty.KERNEL, matrix)  # loads compiled code, and files release the GIL
device.synchronize()
sys.setswitchinterval(1000)
device.matmul(device.empty((8, 8)), matrix, matrix, 8)
for _ in range(2 * host_queue.SLOTS):
    device.launch(empty.KERNEL, matrix)
device.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANGS_S)


def test_staging_ring_wraps(device: HostDevice) -> None:
    """Pageable uploads in flight, three times what the staging ring holds, of sizes that do not divide it."""
    size = 10_007
    count = 3 * queue.STAGING_BYTES // (4 * size)
    buffers = [device.empty((size,)) for _ in range(count)]
    array = np.empty(size, np.float32)
    slow = [device.zeros((300, 300)) for _ in range(3)]
    for number, buffer in enumerate(buffers):
        if number % 20 == 0:
            device.matmul(*slow, 300)  # so that the worker lags behind
        array[:] = number
        device.upload_into(buffer, array)
    for number, buffer in enumerate(buffers):
        result = device.download(buffer)
        assert (result == number).all(), f"upload {number}: {np.unique(result)}"


def test_large_pageable_uploads_block(device: HostDevice) -> None:
    """A hidden sync, as with CUDA: the array may change as soon as the call is back."""
    before = device.counts().syncs
    device.upload(np.zeros(queue.STAGED_MOST // 4, np.float32))
    assert device.counts().syncs == before
    device.upload(np.zeros(queue.STAGED_MOST // 4 + 1, np.float32))
    assert device.counts().syncs == before + 1


def test_pool_does_not_grow(device: HostDevice) -> None:
    """Buffers come back when their last reference goes: a loop takes nothing from the system after its first round."""

    def work() -> None:
        x = device.upload(np.ones((50, 50), np.float32))
        y = device.empty((50, 50))
        device.matmul(y, x, x, 50)
        device.download(y)

    work()
    gc.collect()
    reserved, allocations = device.reserved_bytes, device.counts().allocations
    for _ in range(50):
        work()
    assert device.reserved_bytes == reserved
    assert device.counts().allocations == allocations + 100


def test_empty_kernels_compute_nothing() -> None:
    device = HostDevice(empty_kernels=True)
    x = device.upload(np.ones((2, 2), np.float32))
    device.matmul(x, x, x, 2)
    for _ in range(2):
        device.launch(scan.SCAN, x, x, x, x, x, 2, 2, 0, 1)
    assert device.download(x).tolist() == [[1, 1], [1, 1]]
    assert device.counts().launches == 3
    device.close()


def test_closing_twice_is_closing_once() -> None:
    device = HostDevice()
    total, item = device.zeros((1,)), device.upload(np.ones(1, np.float32))
    for _ in range(100):
        device.launch(rewards.REWARD, total, item)
    device.close()
    device.close()
    assert device._worker is not None
    assert not device._worker._thread.is_alive()
    assert device.counts() == device.counts()
    assert device.counts().launches == 100


def test_layouts_and_kinds_are_those_of_the_tables() -> None:
    activity = tables.ActivityKind
    for name in ("LAUNCH", "H2D", "D2H", "ALLOC", "SYNC"):
        assert getattr(queue, f"{name}_CALL") == tables.CallKind[name]
    assert (queue.KERNEL, queue.H2D_COPY, queue.D2H_COPY) == (activity.KERNEL, activity.H2D, activity.D2H)
    assert tables.packer("calls").size == queue.CALL_BYTES
    assert tables.packer("activities").size == queue.ACTIVITY_BYTES


@pytest.mark.slow
def test_a_busy_host_does_not_slow_the_worker() -> None:
    """The worker never takes the GIL. Pairs are interleaved and the median taken: other load hits both sides alike."""
    result = ratios(rounds=9, kernels=1000)
    assert statistics.median(result) <= LARGEST_RATIO, f"ratios {[round(ratio, 2) for ratio in result]}"


@pytest.mark.parametrize("options", ["", pytest.param("blocking_wait=True", marks=pytest.mark.slow)])
def test_records(tmp_path: Path, options: str) -> None:
    """Records of 200 steps: they agree with the counters, and calls and activities join."""
    script = sequences.RECORDED.format(module="host", name="HostDevice", options=options, steps=200)
    recording = recordings.record(script, tmp_path)
    recordings.check_calls(recording)
    calls, activities = recording.calls, recording.activities
    caused = calls[calls["correlation"] > 0]
    queued = caused[caused["kind"] != tables.CallKind.SYNC]
    assert len(queued) == recording.counters["launches"] + recording.counters["h2d"] + recording.counters["d2h"]
    assert queued["correlation"].tolist() == activities["correlation"].tolist(), "in order, and each exactly once"
    kinds = {tables.CallKind.LAUNCH: tables.ActivityKind.KERNEL, tables.CallKind.H2D: tables.ActivityKind.H2D}
    expected = [kinds.get(kind, tables.ActivityKind.D2H) for kind in queued["kind"].tolist()]
    assert activities["kind"].tolist() == expected
    assert np.array_equal(queued["bytes"], activities["bytes"])
    assert np.all(activities["begin"][1:] >= activities["end"][:-1]), "the device has one queue"
    assert np.all(activities["begin"] >= queued["begin"]), "ran before it was asked for"
    downloads = queued["kind"] == tables.CallKind.D2H
    assert np.all(activities["end"][downloads] <= queued["end"][downloads]), "a download is back before it ran"
    busy = int(np.sum(activities["end"] - activities["begin"]))
    assert 0 < recording.counters["device_busy_ns"] <= busy, "without the time in which the worker had no core"
    copies = activities["kind"] != tables.ActivityKind.KERNEL
    copied = int(np.sum((activities["end"] - activities["begin"])[copies]))
    assert copied == recording.counters["device_copy_busy_ns"]


def divided(monkeypatch: pytest.MonkeyPatch) -> tuple[Worker, dict[int, int], SimpleNamespace]:
    """A worker without a thread, the words of its queue by offset, and the clocks that it reads."""
    words = np.zeros(queue.RING // 8, np.int64)
    clocks = SimpleNamespace(time=0, cpu=0)
    worker = Worker.__new__(Worker)
    worker._view, worker._start = words.data, 0
    worker._busy = worker.lacked_ns = 0
    worker._thread = SimpleNamespace(is_alive=lambda: True)  # type: ignore[assignment]
    monkeypatch.setattr(host_worker, "now", lambda: clocks.time)
    monkeypatch.setattr(worker, "cpu_ns", lambda: clocks.cpu)

    class Words(dict[int, int]):
        def __setitem__(self, offset: int, value: int) -> None:
            words[offset // 8] = value

    return worker, Words(), clocks


def test_time_without_a_core_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 ms the thread had a core for 4: 3 ms it slept, 1 ms it lacked one between commands, 2 ms within them."""
    worker, words, clocks = divided(monkeypatch)
    clocks.time, clocks.cpu = 10_000_000, 4_000_000
    words[queue.BUSY_NS], words[queue.LACKED_NS], words[queue.SLEPT_NS] = 5_000_000, 1_000_000, 3_000_000
    assert worker.busy_ns() == 3_000_000
    assert worker.lacked_ns == 3_000_000


def test_time_that_still_passes_is_not_taken_from_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread last polled 3 ms ago: it sleeps, or it has no core. Either way its commands were not interrupted."""
    worker, words, clocks = divided(monkeypatch)
    clocks.time, clocks.cpu = 10_000_000, 7_000_000
    words[queue.BUSY_NS], words[queue.SEEN_NS] = 5_000_000, 7_000_000
    assert worker.busy_ns() == 5_000_000


def test_busy_time_never_decreases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is interrupted while the clocks are read: its lost time is known before its time is."""
    worker, words, clocks = divided(monkeypatch)
    clocks.time, clocks.cpu = 5_000_000, 5_000_000
    words[queue.BUSY_NS] = 4_000_000
    assert worker.busy_ns() == 4_000_000
    clocks.time = 9_000_000
    assert worker.busy_ns() == 4_000_000
    clocks.time, clocks.cpu = 10_000_000, 6_000_000
    words[queue.BUSY_NS] = 9_000_000
    assert worker.busy_ns() == 5_000_000


@pytest.mark.parametrize(("read", "written"), [(5, 5), (2, 7), (-3, 0), (-3, 4)])
def test_all_records_are_handed_over_where_the_log_wraps(read: int, written: int) -> None:
    """Counted from a whole turn of the log; also where it ends with its last record."""
    iteration = queue.LOG_RECORDS
    log = np.zeros((iteration, queue.ACTIVITY_BYTES), np.uint8)
    log[:, :4] = np.arange(iteration, dtype=np.int32)[:, None].view(np.uint8)
    handed: list[bytes] = []
    recorder = Recorder.__new__(Recorder)
    recorder._active = SimpleNamespace(append_records=lambda table, records: handed.append(bytes(records)))
    recorder._hand_over("activities", log, iteration + read, iteration + written)
    rows = np.frombuffer(b"".join(handed), np.uint8).reshape(-1, queue.ACTIVITY_BYTES)
    result = np.ascontiguousarray(rows[:, :4]).view(np.int32).reshape(-1).tolist()
    assert result == [number % iteration for number in range(iteration + read, iteration + written)]


WITHOUT_TORCH = """
import sys
from reference_trainer.devices import open_device
from reference_trainer.lm import loop
open_device("host").close()
assert not {"torch", "numba.cuda"} & sys.modules.keys()
"""
"""torch would take a second or more, and the host device does not need it."""


def test_light_records_no_calls_and_torch_is_not_imported(tmp_path: Path) -> None:
    script = sequences.RECORDED.format(module="host", name="HostDevice", options="", steps=3)
    recording = recordings.record(script + WITHOUT_TORCH, tmp_path, level="light")
    assert len(recording.calls) == len(recording.activities) == 0
    assert recording.counters["launches"] == 9
    assert recording.counters["device_busy_ns"] > 0


def test_graphs_need_cuda(device: HostDevice) -> None:
    with pytest.raises(TrainerError, match="a graph of launches needs device cuda: leave the fix cuda-graph out"):
        device.capture(lambda: None)
