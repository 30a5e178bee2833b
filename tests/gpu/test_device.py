"""The CUDA device on a real GPU: copies, counters, and that nothing blocks or allocates that should not."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.errors import TrainerError
from reference_trainer.kernels import scan, time_blocks
from reference_trainer.kernels.matmul import ACCUMULATE
from reference_trainer.lm.model import ModelConfig
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import Plan, plan, variant_fixes
from tests.reference_trainer.devices import recordings, sequences
from tests.reference_trainer.lm import equivalence

pytestmark = pytest.mark.gpu

CURED = plan(name for name in variant_fixes("fixed", "cuda") if name != "quiet-logging")

GRAPHED = plan(
    (*(name for name in variant_fixes("fixed", "cuda") if name not in {"quiet-logging", "cuda-graph"}), "cuda-graph")
)

SMALL = equivalence.Case(ModelConfig(width=256, layers=2, vocabulary=4096), (200, 200))
MANY_CHUNKS = equivalence.Case(ModelConfig(width=64, layers=2, vocabulary=256), (60, 60, 60, 60, 17, 60, 60))
WIDE = equivalence.Case(ModelConfig(width=4096, layers=2, vocabulary=4096), (40, 9))


@contextmanager
def no_sync() -> Iterator[None]:
    """torch raises at every operation of its own that would block the host on the device."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def keep_busy(device: CudaDevice) -> None:
    """Put work into the stream that takes far longer than a call: some 8 TFLOP."""
    size = 8192
    a, out = device.empty((size, size)), device.empty((size, size))
    for _ in range(8):
        device.matmul(out, a, a, size)


def is_busy() -> bool:
    return not torch.cuda.current_stream().query()


@pytest.mark.parametrize("ask", sequences.EVERYTHING)
def test_sequences(device: CudaDevice, ask: Callable[[CudaDevice], None]) -> None:
    ask(device)


def test_counters_are_exact(device: CudaDevice) -> None:
    found, expected = sequences.counted(device)
    assert found == expected
    assert found.busy_ns is None


def test_staging_ring_wraps_while_the_device_lags(device: CudaDevice) -> None:
    """Four times what the ring holds, behind work that takes longer than all of these uploads."""
    size = 10_007
    buffers = [device.empty((size,)) for _ in range(4 * (1 << 20) // (4 * size))]
    array = np.empty(size, np.float32)
    keep_busy(device)
    for number, buffer in enumerate(buffers):
        array[:] = number
        device.upload_into(buffer, array)
    for number, buffer in enumerate(buffers):
        found = device.download(buffer)
        assert (found == number).all(), f"upload {number}: {np.unique(found)}"


def test_small_and_pinned_uploads_do_not_wait(device: CudaDevice) -> None:
    pinned, buffer = device.pinned((1 << 20,)), device.empty((1 << 20,))
    device.synchronize()
    keep_busy(device)
    with no_sync():
        device.upload(np.ones(1000, np.float32))
        device.upload_into(buffer, pinned)
    assert is_busy(), "an upload waited for the device"
    device.synchronize()


def test_downloads_and_large_pageable_uploads_wait(device: CudaDevice) -> None:
    large, one = np.ones(1 << 20, np.float32), device.zeros((1,))
    for call in (lambda: device.upload(large), lambda: device.download(one), device.synchronize):
        keep_busy(device)
        call()
        assert not is_busy(), f"{call} did not wait for the device"


@pytest.mark.parametrize("blocking", [False, True])
def test_waiting_takes_a_core_or_sleeps(blocking: bool) -> None:
    """CPU time of the waiting thread over the time waited: CUDA's default spins, an event with blocking sync sleeps."""
    device = CudaDevice(blocking_wait=blocking)
    one, shares = device.zeros((1,)), []
    for _ in range(5):
        keep_busy(device)
        began, cpu = time.perf_counter(), time.thread_time()
        device.download(one)
        shares.append((time.thread_time() - cpu) / (time.perf_counter() - began))
    device.close()
    shares.sort()
    assert (shares[2] < 0.5) == blocking, f"the waiting thread was on a core {shares[2]:.0%} of the time"


def test_empty_kernels_compute_nothing() -> None:
    device = CudaDevice(empty_kernels=True)
    x = device.upload(np.ones((2, 2), np.float32))
    device.matmul(x, x, x, 2)
    for _ in range(2):
        device.launch(scan.SCAN, x, x, x, x, x, 2, 2, 0, 1)
    assert device.download(x).tolist() == [[1, 1], [1, 1]]
    assert device.counts().launches == 3
    device.close()


def test_records(tmp_path: Path) -> None:
    script = sequences.RECORDED.format(module="cuda", name="CudaDevice", options="", steps=60)
    recording = recordings.record(script, tmp_path)
    recordings.check_calls(recording)


def test_a_copy_passes_what_is_in_the_queue(device: CudaDevice) -> None:
    """Prefetched memory is there while the queue is busy with what was put in before, and seen by what comes after."""
    numbers, buffer = device.pinned((1 << 20,)), device.zeros((1 << 20,))
    device.prefetch_into(buffer, numbers)
    device.synchronize()
    numbers[:] = 1
    keep_busy(device)
    device.prefetch_into(buffer, numbers)
    device._copies.synchronize()
    assert is_busy(), "the copy waited for the queue"
    assert (device.download(buffer) == 1).all()


def test_a_graph_is_one_call(device: CudaDevice) -> None:
    """100 products captured and replayed: one launch counted, and the same numbers."""
    total, one = device.zeros((4, 4)), device.upload(np.eye(4, dtype=np.float32))

    def add() -> None:
        for _ in range(100):
            device.matmul(total, one, one, 4, ACCUMULATE)

    add()
    graph = device.capture(add)
    before = device.counts()
    with no_sync():
        device.replay(graph)
    after = device.counts()
    assert (after.launches - before.launches, after.crossings - before.crossings) == (1, 1)
    assert graph.launches == 100
    assert np.array_equal(device.download(total), 200 * np.eye(4))
    with pytest.raises(TrainerError, match="the host waits while a graph is captured"):
        device.capture(device.synchronize)
    device.replay(graph)
    assert device.download(total)[0, 0] == 300, "the device was not left as it was after a capture that failed"


# ---------------------------------------------------------------- the model on it


@pytest.mark.parametrize("chosen", [Plan(), CURED, GRAPHED], ids=["as-found", "fixed", "graph"])
@pytest.mark.parametrize("case", [SMALL, WIDE, MANY_CHUNKS], ids=["small", "wide", "many chunks"])
def test_the_same_as_plain_pytorch(device: CudaDevice, case: equivalence.Case, chosen: Plan) -> None:
    """At widths that take cuBLAS for a token too."""
    equivalence.run(device, case, chosen)


def test_on_another_stream() -> None:
    """Numba's kernels and torch's run on the stream that was current when the device was opened."""
    with torch.cuda.stream(torch.cuda.Stream()):
        device = CudaDevice()
        assert device._stream.cuda_stream != 0
        for chosen in (Plan(), CURED):
            equivalence.run(device, equivalence.CASES["odd lengths"], chosen)
        device.close()


def test_a_whole_chunk_is_submitted_without_a_sync(device: CudaDevice) -> None:
    case = equivalence.Case(WIDE.config, (3000,))
    forward = Pipeline(device, case.config, case.weights(), 3000, CURED)
    ids = np.random.default_rng(0).integers(0, case.config.vocabulary, 3001).astype(np.int32)
    for _ in range(2):  # the first compiles, fills the pools and makes cuBLAS's handle
        forward.submit(ids)
        forward.collect()
    before = device.counts()
    with no_sync():
        forward.submit(ids)
    assert is_busy(), "submit() came back only when the device had finished"
    forward.collect()
    after = device.counts()
    assert after.syncs - before.syncs == 1
    assert (after.h2d - before.h2d, after.d2h - before.d2h) == (1, 1)
    scans = 2 if time_blocks.time_blocks(3000, case.config.width)[0] > 1 else 1
    assert after.launches - before.launches == 1 + (1 + scans) * case.config.layers + 4


@pytest.mark.parametrize("chosen", [Plan(), CURED], ids=["as-found", "fixed"])
def test_steady_state_takes_no_memory(device: CudaDevice, chosen: Plan) -> None:
    """torch's allocator is not asked at all: buffers are reused, as-found's too."""
    tokens = 50
    ids = SMALL.chunks()[0][: tokens + 1]
    tested = Pipeline(device, SMALL.config, SMALL.weights(), tokens, chosen)
    for _ in range(2):
        tested.submit(ids)
        tested.collect()
    gc.collect()
    before, counts = torch.cuda.memory_stats(), device.counts()
    for _ in range(3):
        tested.submit(ids)
        tested.collect()
    after = torch.cuda.memory_stats()
    for name in ("allocation.all.allocated", "segment.all.allocated", "reserved_bytes.all.current"):
        assert after[name] == before[name], f"{name} went from {before[name]} to {after[name]}"
    asked = device.counts().allocations - counts.allocations
    assert asked == (0 if chosen.pooled else 5 * 3 * tokens), "buffers that the trainer asked for"


def test_as_found_counts(device: CudaDevice) -> None:
    """Per token: two syncs, three uploads, two downloads, five buffers."""
    tokens = 20
    ids = SMALL.chunks()[0][: tokens + 1]
    tested = Pipeline(device, SMALL.config, SMALL.weights(), tokens, Plan())
    before = device.counts()
    tested.submit(ids)
    after = device.counts()
    per_token = {name: (getattr(after, name) - getattr(before, name)) / tokens for name in ("syncs", "h2d", "d2h")}
    assert per_token == {"syncs": 2, "h2d": 3, "d2h": 2}
    assert after.allocations - before.allocations == 5 * tokens
