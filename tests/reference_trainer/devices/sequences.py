"""Sequences of calls to any device, with their results."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from reference_trainer.devices.protocol import Counts, Device
from reference_trainer.kernels.matmul import ACCUMULATE, TRANSPOSE_A, TRANSPOSE_B


def round_trips(device: Device) -> None:
    """Upload and download arrays of each dtype, shape and way."""
    random = np.random.default_rng(0)
    for shape in ((1,), (3, 5), (2, 3, 4), (16384,), (16385,), (300, 700)):  # 16,384 fp32 are 64 KiB: the last staged
        for dtype in ("float32", "int32"):
            array = random.integers(-99, 99, shape).astype(dtype)
            buffer = device.upload(array)
            array_then = array.copy()
            array[...] = 0  # the caller may do what it likes with it now
            result = device.download(buffer)
            assert result.dtype == dtype
            assert buffer.nbytes == array.nbytes
            assert np.array_equal(result, array_then), f"{shape} {dtype}"
    assert not device.download(device.zeros((4, 4))).any()


def rows_and_heads(device: Device) -> None:
    """A row of a matrix goes up; the head of a buffer is written and read."""
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert device.download(device.upload(matrix[1])).tolist() == [4, 5, 6, 7]
    buffer = device.zeros((5,))
    device.upload_into(buffer, matrix[2])
    assert device.download(buffer).tolist() == [8, 9, 10, 11, 0]
    head = np.full(2, -1, np.float32)
    device.download_into(head, buffer)
    assert head.tolist() == [8, 9]


def views(device: Device) -> None:
    """Parts of a buffer in another shape, and parts of these, are the same memory; what is outside is refused."""
    flat = device.upload(np.arange(14, dtype=np.float32))
    matrix = flat.view(2, (3, 4))
    assert device.download(matrix).tolist() == [[2, 3, 4, 5], [6, 7, 8, 9], [10, 11, 12, 13]]
    assert device.download(matrix.rows(1, 3)).tolist() == [[6, 7, 8, 9], [10, 11, 12, 13]]
    device.upload_into(matrix.rows(2, 3), np.zeros((1, 4), np.float32))
    assert device.download(flat).tolist() == [*range(10), 0, 0, 0, 0]
    assert device.download(matrix.rows(1, 2).view(1, (3,))).tolist() == [7, 8, 9]
    for begin, shape in ((3, (3, 4)), (-1, (2,)), (15, ())):
        with pytest.raises(ValueError, match="of 14"):
            flat.view(begin, shape)
    with pytest.raises(ValueError, match="rows 1 to 4 of 3"):
        matrix.rows(1, 4)


def pinned_copies(device: Device) -> None:
    """Pinned memory goes up and down, views of it too; what is computed from it is pageable."""
    pinned = device.pinned((6,), "int32")
    pinned[:] = range(6)
    buffer = device.zeros((6,), "int32")
    device.upload_into(buffer, pinned[:4])
    back = device.pinned((6,), "int32")
    device.download_into(back, buffer)
    assert back.tolist() == [0, 1, 2, 3, 0, 0]
    assert device.download(device.upload(pinned * 2)).tolist() == [0, 2, 4, 6, 8, 10]


def copies_at_a_row(device: Device) -> None:
    """Rows in the middle of a buffer are written."""
    buffer = device.zeros((4, 3))
    device.upload_into(buffer, np.ones((2, 3), np.float32), 1)
    pinned = device.pinned((3,))
    pinned[:] = 2
    device.upload_into(buffer, pinned, 3)
    assert device.download(buffer).tolist() == [[0] * 3, [1] * 3, [1] * 3, [2] * 3]


def views_keep_their_memory(device: Device) -> None:
    """A view of a view of a buffer that nobody else has: its memory is given to no other."""
    inner = device.upload(np.arange(24, dtype=np.float32).reshape(6, 4)).rows(1, 5).rows(1, 3)
    gc.collect()
    another = device.upload(np.full((6, 4), -1, np.float32))
    device.matmul(inner, inner.view(0, (2, 4)), device.upload(np.eye(4, dtype=np.float32) * 2), 2, ACCUMULATE)
    assert device.download(inner).tolist() == [[24, 27, 30, 33], [36, 39, 42, 45]]
    assert (device.download(another) == -1).all()


def products_of_all_kinds(device: Device) -> None:
    """Transposed factors, sums into what is there, fewer rows than the buffers have."""
    random, rows, longest, inner, columns = np.random.default_rng(0), 5, 7, 3, 4
    shapes = {
        0: ((longest, inner), (inner, columns), (longest, columns)),
        TRANSPOSE_B: ((longest, inner), (columns, inner), (longest, columns)),
        TRANSPOSE_A: ((longest, inner), (longest, columns), (inner, columns)),
    }
    for kind, (remaining, right, out) in shapes.items():
        for flags in (kind, kind | ACCUMULATE):
            a, b, c = (random.integers(-4, 5, shape).astype(np.float32) for shape in (remaining, right, out))
            target = device.upload(c)
            device.matmul(target, device.upload(a), device.upload(b), rows, flags)
            product = a[:rows].T @ b[:rows] if kind == TRANSPOSE_A else a[:rows] @ (b.T if kind == TRANSPOSE_B else b)
            expected, length = c.copy(), len(product)
            expected[:length] = product + (c[:length] if flags & ACCUMULATE else 0)
            assert np.array_equal(device.download(target), expected), f"flags {flags}"


def prefetched_marked_and_fetched(device: Device) -> None:
    """Compute with prefetched memory, two rounds in flight, and wait for a mark."""
    numbers, results = ([device.pinned((2, 2)) for _ in range(2)] for _ in range(2))
    inputs, tickets = [device.empty((2, 2)) for _ in range(2)], list[Any]()
    total, two = device.zeros((2, 2)), device.upload(np.eye(2, dtype=np.float32) * 2)
    for step in range(6):
        slot = step % 2
        if step >= 2:
            device.wait(tickets[step - 2])
            assert results[slot][0, 0] == 2 * sum(range(step - 1)), f"of step {step - 2}"
        numbers[slot][:] = step
        device.prefetch_into(inputs[slot], numbers[slot])
        device.matmul(total, inputs[slot], two, 2, ACCUMULATE)
        tickets.append(device.fetch_into(results[slot], total))
    device.wait(device.mark())
    assert results[1].tolist() == [[2 * 15.0] * 2] * 2


def many_lengths(device: Device) -> None:
    """Two thousand chunks of different lengths take the memory of a few: a pool keeps four sizes in each doubling."""
    lengths = 1001 + np.random.default_rng(0).permutation(2000)
    before = device.reserved_bytes
    for length in lengths.tolist():
        readouts, ids = device.empty((length, 64)), device.upload(np.arange(length, dtype=np.int32))
        assert (readouts.shape, ids.shape) == ((length, 64), (length,))
    assert device.download(ids)[-1] == lengths[-1] - 1
    assert device.reserved_bytes - before <= 10 * 4 * 64 * int(lengths.max())


EVERYTHING = [
    *(round_trips, rows_and_heads, views, views_keep_their_memory, pinned_copies, copies_at_a_row),
    *(products_of_all_kinds, prefetched_marked_and_fetched, many_lengths),
]
"""All sequences except `counted`."""


def counted(device: Device) -> tuple[Counts, Counts]:
    """Make one of each call; return (found, expected), with busy_ns as found."""
    small, large, pinned = np.zeros(100, np.float32), np.zeros(100_000, np.float32), device.pinned((10,))
    pinned[:] = 1
    before = device.counts()
    buffer = device.upload(small)  # allocation, H2D
    device.upload_into(buffer, small)  # H2D
    device.upload_into(buffer, pinned)  # H2D
    device.upload(large)  # allocation, H2D and a hidden sync
    device.empty((7, 3), "int32")  # allocation
    a, b, out = device.zeros((4, 4)), device.zeros((4, 4)), device.zeros((4, 4))  # 3 allocations, 3 H2D
    device.matmul(out, a, b, 2)  # launch
    device.download(out)  # D2H and a sync
    device.download_into(pinned, buffer)  # D2H and a sync
    device.synchronize()  # sync
    device.prefetch_into(buffer, pinned)  # H2D
    ticket = device.fetch_into(pinned, buffer)  # D2H
    device.mark()  # nothing
    device.wait(ticket)  # sync
    after = device.counts()
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in Counts.__dataclass_fields__}
    result = Counts(**{name: None if end is None else end - begin for name, (begin, end) in pairs.items()})
    copies = {"h2d_bytes": 400 + 400 + 40 + 400_000 + 3 * 64 + 40, "d2h_bytes": 64 + 40 + 40}
    calls = {"syncs": 5, "h2d": 8, "d2h": 3, "launches": 1, "allocations": 6, "crossings": 14}
    return result, Counts(**calls, **copies, busy_ns=result.busy_ns)


RECORDED = """
import numpy as np
from profiler import marks
from reference_trainer.devices.{module} import {name}

device = {name}({options})
small, large, pinned = np.zeros(100, np.float32), np.zeros(100_000, np.float32), device.pinned((100,))
a, b, out = device.zeros((64, 64)), device.zeros((64, 64)), device.zeros((64, 64))
device.synchronize()  # what was asked for before the first step is done before it
marks.open_step()
device.counts()
for step in range({steps}):
    buffer = device.upload(small)
    device.upload_into(buffer, pinned)
    if step % 50 == 0:
        device.upload(large)
    for _ in range(3):
        device.matmul(out, a, b, 64)
    device.download(out)
    device.synchronize()
    marks.step(tokens=1)
device.close()
"""
"""A program that asks for all kinds of calls; the counters of its steps are what its records must agree with."""
