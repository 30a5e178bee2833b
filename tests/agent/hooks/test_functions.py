"""Functions of torch: explicit waits, orders between streams, collectives; and where torch.jit finds them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from profiler.agent.hooks import tensors
from profiler.agent.recorder import Recorder
from profiler.run.tables import CallKind
from tests.fakes import hooks

torch = pytest.importorskip("torch")


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A torch whose CUDA answers: its waits return at once."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    for owner, name in ((torch.cuda.Stream, "synchronize"), (torch.cuda.Event, "synchronize")):
        monkeypatch.setattr(owner, name, lambda self: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda.Stream, "wait_event", lambda self, event: None)
    with hooks.installed(Recorder(tmp_path, "standard"), tensors.FUNCTIONS, module=torch) as made:
        yield made


def test_explicit_waits_block_and_orders_between_streams_do_not(recorder: Recorder) -> None:
    stand_in: Any = object()
    torch.cuda.synchronize()
    torch.cuda.Stream.synchronize(stand_in)
    torch.cuda.Event.synchronize(stand_in)
    torch.cuda.Stream.wait_event(stand_in, stand_in)
    assert recorder.counters == {"syncs": 3}
    assert [(name, kind) for name, kind, _ in hooks.calls(recorder)] == [
        ("synchronize", CallKind.SYNC),
        ("stream synchronize", CallKind.SYNC),
        ("event synchronize", CallKind.SYNC),
        ("wait event", CallKind.EVENT),
    ]
    assert [bool(blocked) for blocked in hooks.call_rows(recorder)["blocked"]] == [True, True, True, False]


def test_empty_cache_waits_once_cuda_is_initialized(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.cuda.empty_cache()
    assert recorder.counters == {}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    torch.cuda.empty_cache()
    assert recorder.counters == {"syncs": 1}
    assert [name for name, _, _ in hooks.calls(recorder)] == ["empty_cache"]


def test_a_wait_that_fails_is_no_wait(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("here it does not fail")
    with hooks.installed(Recorder(tmp_path, "standard"), tensors.FUNCTIONS, module=torch) as recorder:
        with pytest.raises((AssertionError, RuntimeError)):
            torch.cuda.synchronize()
        assert recorder.counters == {}


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_collectives_are_calls_without_a_wait(recorder: Recorder, tmp_path: Path) -> None:
    x = torch.ones(3)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        torch.distributed.all_reduce(x)
        torch.distributed.barrier()
        torch.distributed.all_reduce(x, async_op=True).wait()
        torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(3))(torch.ones(2, 3))
    finally:
        torch.distributed.destroy_process_group()
    assert x.sum() == 3
    found = [(name, kind) for name, kind, _ in hooks.calls(recorder)]
    names = ("all_reduce", "barrier", "all_reduce", "wait for a collective", "broadcast of buffers")
    assert found == [(name, CallKind.OTHER) for name in names]
    assert not hooks.call_rows(recorder)["blocked"].any()
    assert "syncs" not in recorder.counters


def test_functions_take_their_arguments_by_name(recorder: Recorder) -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True).detach()
    nonzero, unique = torch.nonzero(input=x), torch.unique(x, return_counts=True)[1]
    repeated = torch.repeat_interleave(x.long() + 1)
    torch.where(condition=x > 0, input=x, other=x)
    recorder.write_tallies(recorder.clocks()[0])
    assert recorder.counters == {"might_sync": 3}
    assert (nonzero.tolist(), unique.tolist(), repeated.tolist()) == ([[1]], [1, 1], [0, 1, 1])


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_subclasses_of_work_in_python_may_call_their_base_class(recorder: Recorder) -> None:
    """C++ sends a call of the base class's method to the subclass unless it comes from a frame of that name."""
    limit, calls = timedelta(milliseconds=1), 0

    class Overriding(torch.distributed._Work):  # type: ignore[misc]
        def wait(self, timeout: timedelta = limit) -> Any:
            nonlocal calls
            calls += 1
            assert calls == 1, "it recurses"
            return super().wait(timeout)

    for work in (Overriding(), type("Inheriting", (torch.distributed._Work,), {})()):
        with pytest.raises(RuntimeError, match="timed out"):
            work.wait(limit)
