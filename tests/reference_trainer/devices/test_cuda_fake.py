"""The CUDA device's own logic without a GPU: its tensors on the CPU, streams and events faked."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock, Mock, call

import numpy as np
import pytest
import torch

from profiler.run import tables
from reference_trainer.devices import records
from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.devices.cuda_memory import STAGED_MOST, CudaBuffer, Staging
from reference_trainer.devices.host import HostDevice
from reference_trainer.devices.protocol import size_class
from reference_trainer.errors import TrainerError
from reference_trainer.kernels.matmul import ACCUMULATE
from tests.reference_trainer.devices import recordings, sequences


@pytest.fixture(params=[{}, {"blocking_wait": True}], ids=["spin", "block"])
def device(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    opened = CudaDevice(_torch_device="cpu", **request.param)
    yield opened
    opened.close()


@pytest.mark.parametrize("ask", sequences.EVERYTHING)
def test_sequences(device: CudaDevice, ask) -> None:
    ask(device)


def test_counters_are_those_of_the_host_device(device: CudaDevice) -> None:
    result, expected = sequences.counted(device)
    assert result == expected
    host = HostDevice()
    of_host, _ = sequences.counted(host)
    host.close()
    assert result == replace(of_host, busy_ns=None)


def test_pool_does_not_grow(device: CudaDevice) -> None:
    """Fresh buffers of a loop are the same memory with the same views: a view for Numba costs more than a copy."""

    def work() -> tuple[int, int]:
        x = device.upload(np.ones((50, 50), np.float32))
        y = device.empty((50, 50))
        device.matmul(y, x, x, 50)
        return id(x.storage), id(y.storage)

    first = work()
    gc.collect()
    reserved = device.reserved_bytes
    for _ in range(20):
        assert set(work()) == set(first)
    assert device.reserved_bytes == reserved == 2 * size_class(50 * 50 * 4)


def test_arrays_that_are_not_contiguous(device: CudaDevice) -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert device.download(device.upload(matrix.T)).tolist() == matrix.T.tolist()
    assert device.download(device.upload(matrix[:, 1])).tolist() == [1, 5, 9]
    pinned = device.pinned((3, 4))
    pinned[:] = matrix
    assert device.download(device.upload(pinned[:, 1])).tolist() == [1, 5, 9]
    with pytest.raises(RuntimeError, match="buffer"):
        device.download_into(np.zeros((4, 3), np.float32).T, device.upload(matrix))


def test_too_long_an_upload_is_an_error(device: CudaDevice) -> None:
    with pytest.raises(RuntimeError):
        device.upload_into(device.zeros((3,)), np.zeros(4, np.float32))


def test_a_buffer_that_the_kernels_cannot_count_is_refused(device: CudaDevice) -> None:
    with pytest.raises(TrainerError, match=r"^a buffer of 2,147,483,649 elements: the kernels count to 2,147,483,648$"):
        device.empty((1, (1 << 31) + 1))


def test_vector_by_a_block_of_a_matrix(device: CudaDevice) -> None:
    random = np.random.default_rng(0)
    matrix, vector = random.standard_normal((6, 5), np.float32), random.standard_normal(3, np.float32)
    out, vector_on_device, matrix_on_device = device.zeros((5,)), device.upload(vector), device.upload(matrix)
    for block in (0, 1, 0):
        device.vector_matrix(out.tensor, vector_on_device.tensor, matrix_on_device, block)
        expected = vector @ matrix[3 * block : 3 * block + 3]
        assert np.allclose(device.download(out), expected, atol=1e-6)


# ---------------------------------------------------------------- the staging ring


def test_staging_is_reused_only_when_an_event_says_so() -> None:
    events: list[Mock] = []

    def record_event(event: Mock | None) -> Mock:
        events.append(event or Mock())
        events[-1].query.return_value = False
        return events[-1]

    staging = Staging(torch.zeros(16 * STAGED_MOST, dtype=torch.uint8), Mock(record_event=record_event))
    complete = np.ones(STAGED_MOST, np.uint8)
    for _ in range(16):
        staging.stage(complete)
    assert len(events) == 15, "an event for each segment that was left"
    assert not any(event.synchronize.called for event in events), "there is nothing to wait for in the first round"
    staging.stage(complete)
    assert events[0].synchronize.call_count == 1, "the first segment is used again without a look at its event"
    events[1].query.return_value = True
    staging.stage(complete)
    assert not events[1].synchronize.called, "waits for a segment that is free"


def test_staged_bytes_do_not_overlap() -> None:
    """Regions of odd sizes, in flight at once: within a round of the ring none covers another."""
    ring = torch.zeros(16 * STAGED_MOST, dtype=torch.uint8)
    staging = Staging(ring, Mock())
    sizes = np.random.default_rng(0).integers(1, STAGED_MOST // 3, 60)
    regions = []
    for number, size in enumerate(sizes):
        source = staging.stage(np.full(size, number, np.uint8))
        assert source.data_ptr() % 64 == ring.data_ptr() % 64
        regions.append((source, number))
        if sum(sizes[: number + 1]) > 10 * STAGED_MOST:
            break
    assert len(regions) > 20
    for source, number in regions:
        assert (source == number).all(), f"region {number} was written over"


# ---------------------------------------------------------------- waiting


def test_a_blocking_wait_sleeps_on_an_event() -> None:
    device = CudaDevice(_torch_device="cpu", blocking_wait=True)
    device._event = event = Mock()
    buffer = device.upload(np.zeros(4, np.float32))
    waits = (
        device.synchronize,
        lambda: device.download(buffer),
        lambda: device.download_into(device.pinned((4,)), buffer),
    )
    for wait in waits:
        event.reset_mock()
        wait()
        assert event.mock_calls == [call.record(device._stream), call.synchronize()]


# ---------------------------------------------------------------- the copy stream


def test_the_queue_waits_for_what_is_prefetched_and_the_copy_for_nothing() -> None:
    """The first copy into a buffer waits: its memory may come from a pool and still be in use in the queue."""
    device, order = CudaDevice(_torch_device="cpu"), MagicMock()
    buffer, pinned = device.empty((3,)), device.pinned((3,))
    device._stream, device._new_stream, device._on_stream = order.queue, lambda: order.copies, order.on

    def waits() -> list[str]:
        names = [name for name, *_ in order.mock_calls]
        order.reset_mock()
        return names

    copy = ["on", "on().__enter__", "on().__exit__", "queue.wait_stream"]
    device.prefetch_into(buffer, pinned)
    order.copies.wait_stream.assert_called_once_with(order.queue)
    order.queue.wait_stream.assert_called_once_with(order.copies)
    assert waits() == ["copies.wait_stream", *copy]
    device.prefetch_into(buffer, pinned)
    assert waits() == copy
    device.prefetch_into(device.empty((3,)), pinned)
    assert waits() == ["copies.wait_stream", *copy]


# ---------------------------------------------------------------- graphs


def one_adder(device: CudaDevice, total: CudaBuffer) -> Callable[[], None]:
    """A function that adds the unit matrix to total (2, 2) by two launches, through a buffer of its own."""
    middle, item = device.empty((2, 2)), device.upload(np.eye(2, dtype=np.float32))

    def add_one() -> None:
        device.matmul(middle, item, item, 2)
        device.matmul(total, middle, item, 2, ACCUMULATE)

    return add_one


def test_a_graph_runs_when_it_is_replayed(device: CudaDevice) -> None:
    """It does not run when it is captured; a replay is one launch, and the graph keeps its buffers."""
    total = device.zeros((2, 2))
    add_one = one_adder(device, total)
    add_one()
    before = device.counts()
    graph = device.capture(add_one)
    after = device.counts()
    assert replace(before, syncs=before.syncs + 1, crossings=before.crossings + 1) == after, "a capture is one sync"
    assert graph.launches == 2
    assert device.download(total).tolist() == [[1, 0], [0, 1]]
    del add_one
    gc.collect()
    others = [device.zeros((2, 2)) for _ in range(3)]  # would get the memory of what was dropped
    before = device.counts()
    for _ in range(3):
        device.replay(graph)
    after = device.counts()
    assert replace(before, launches=before.launches + 3, crossings=before.crossings + 3) == after
    assert device.download(total).tolist() == [[4, 0], [0, 4]]
    assert not any(device.download(another).any() for another in others)


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda device, buffer, pinned: device.empty((5,)), "memory is requested"),
        (lambda device, buffer, pinned: device.scratch(5), "memory is requested"),
        (lambda device, buffer, pinned: device.zeros((5,)), "memory is requested"),
        (lambda device, buffer, pinned: device.upload_into(buffer, pinned), "an upload is requested"),
        (lambda device, buffer, pinned: device.prefetch_into(buffer, pinned), "an upload is requested"),
        (lambda device, buffer, pinned: device.download(buffer), "a download is requested"),
        (lambda device, buffer, pinned: device.fetch_into(pinned, buffer), "a download is requested"),
        (lambda device, buffer, pinned: device.mark(), "a mark is requested"),
        (lambda device, buffer, pinned: device.wait(None), "the host waits"),
        (lambda device, buffer, pinned: device.synchronize(), "the host waits"),
        (lambda device, buffer, pinned: device.replay(None), "a graph is replayed"),
        (lambda device, buffer, pinned: device.capture(lambda: None), "the host waits"),
    ],
)
def test_a_graph_holds_launches_alone(device: CudaDevice, ask: Callable, what: str) -> None:
    """Waiting and taking memory are refused in one line, and the device continues."""
    buffer, pinned = device.zeros((3, 3)), device.pinned((3, 3))
    before = device.counts()
    with pytest.raises(TrainerError, match=f"^{what} while a graph is captured: do it before"):
        device.capture(lambda: (device.matmul(buffer, buffer, buffer, 3), ask(device, buffer, pinned)))
    assert device.counts() == replace(before, syncs=before.syncs + 1, crossings=before.crossings + 1)
    device.matmul(buffer, buffer, buffer, 3)
    assert device.download(buffer).shape == (3, 3)


def test_scratch_memory_is_taken_once(device: CudaDevice) -> None:
    """It grows to the largest requested size; memory that a graph may use is kept."""
    small = device.scratch(5)
    before = device.counts().allocations
    assert device.scratch(3) is device.scratch(8) is small
    large = device.scratch(9)
    assert device.scratch(16) is large is device.scratch(1)
    assert device.counts().allocations - before == 1
    assert device.scratch(1, "int32").dtype == np.int32
    second = [device.empty((8,)) for _ in range(2)]
    assert small.storage not in [buffer.storage for buffer in second]


# ---------------------------------------------------------------- records


def test_layouts_and_kinds_are_those_of_the_tables() -> None:
    assert tables.packer("calls").format == records.CALL.format
    for name in ("LAUNCH", "H2D", "D2H", "ALLOC", "SYNC"):
        assert getattr(records, f"{name}_CALL") == tables.CallKind[name]


@pytest.mark.slow
@pytest.mark.parametrize("options", ["_torch_device='cpu'", "_torch_device='cpu', blocking_wait=True"])
def test_records(tmp_path: Path, options: str) -> None:
    script = sequences.RECORDED.format(module="cuda", name="CudaDevice", options=options, steps=60)
    recording = recordings.record(script, tmp_path)
    recordings.check_calls(recording)
    assert not recording.calls["correlation"].any(), "nothing to join: activities come from CUPTI"
    assert "device_busy_ns" not in recording.counters, "what the device cannot tell is not 0"
    assert {recording.names[name] for name in set(recording.calls["name"].tolist())} == {
        "allocate", "matmul", "memcpy D2H", "memcpy H2D", "synchronize",
    }  # fmt: skip


@pytest.mark.slow
def test_light_records_counters_only(tmp_path: Path) -> None:
    options = "_torch_device='cpu'"
    script = sequences.RECORDED.format(module="cuda", name="CudaDevice", options=options, steps=3)
    recording = recordings.record(script, tmp_path, level="light")
    assert len(recording.calls) == 0
    assert recording.counters["launches"] == 9


GRAPH = """
import numpy as np
from profiler import marks
from reference_trainer.devices.cuda import CudaDevice

device = CudaDevice(_torch_device='cpu')
x = device.zeros((4, 4))
marks.open_step()
graph = device.capture(lambda: [device.matmul(x, x, x, 4) for _ in range(5)])
for _ in range(3):
    device.replay(graph)
    device.synchronize()
    marks.step(tokens=1)
device.close()
"""


@pytest.mark.slow
def test_a_replayed_graph_is_recorded_as_one_launch(tmp_path: Path) -> None:
    recording = recordings.record(GRAPH, tmp_path)
    recordings.check_calls(recording)
    launches = recordings.of_kind(recording, tables.CallKind.LAUNCH)
    assert [recording.names[name] for name in launches["name"].tolist()] == ["graph launch"] * 3
    assert recording.counters["launches"] == 3
    assert recording.counters["syncs"] == 4
