"""Methods of torch.Tensor that wait or copy, seen once each, with the user's line, and not changed."""

from __future__ import annotations

import _thread
import pickle
import sys
import threading
from collections import deque
from collections.abc import Iterator
from itertools import chain
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from profiler.agent import installation, patching
from profiler.agent.hooks import syncs, tensors
from profiler.agent.recorder import Recorder
from profiler.run.tables import CallKind
from tests.fakes import hooks

torch = pytest.importorskip("torch")


HERE = "cpu"
"""A program that says `device=HERE` would have these tensors on a GPU, if there were one."""


def read_counts(recorder: Recorder) -> dict[str, float]:
    """What was counted since the last time."""
    recorder.write_tallies(recorder.clocks()[0])
    counted, recorder.counters = recorder.counters, {}
    return counted


@pytest.fixture(params=["standard", "light"])
def recorder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Recorder]:
    with hooks.installed(Recorder(tmp_path, request.param), tensors.TENSORS, tensors.FUNCTIONS, module=torch) as made:
        yield made


OPERATIONS = {
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "numpy": np.asarray,
    "bool": lambda x: bool(x[1]),
    "int": lambda x: int(x[1]),
    "float": lambda x: float(x[1]),
    "print": lambda x: f"{x} {x!r:}",
    "nonzero": lambda x: (x.nonzero(), torch.nonzero(x), torch.where(x > 0), torch.argwhere(x)),
    "unique": lambda x: (torch.unique(x), x.unique()),
    "masked_select": lambda x: x.masked_select(x > 1),
    "repeat_interleave": lambda x: x.repeat_interleave(torch.tensor([1, 2, 3])),
    "equal": lambda x: torch.equal(x, x),
}
TIMES = {"print": 2, "nonzero": 4, "unique": 2}


@pytest.mark.parametrize("name", OPERATIONS)
def test_counts_each_operation_once(recorder: Recorder, name: str) -> None:
    OPERATIONS[name](torch.arange(3.0, device=HERE))
    expected = TIMES.get(name, 1)
    assert read_counts(recorder) == {"might_sync": expected}
    if recorder.detailed:
        assert {each for each, _, _ in hooks.calls(recorder)} == {name}
        assert sum(hooks.call_rows(recorder)["bytes"]) == expected
        assert {(kind, Path(site.file).name) for _, kind, site in hooks.calls(recorder)} == {
            (CallKind.MIGHT_SYNC, Path(__file__).name)
        }


def test_operations_that_need_no_values_are_not_counted(recorder: Recorder) -> None:
    x = torch.arange(6.0, device=HERE).reshape(2, 3)
    x[x > 1], x[0], x[0, 1], x[:, 1:], x[None], x[...], x[torch.tensor([1, 0])]
    x[0] = 1.0
    x[x > 3] = 0.0
    x.to(HERE), x.to(torch.float64), x.repeat_interleave(2), torch.repeat_interleave(x, 2), torch.where(x > 1, x, x)
    x.repeat_interleave(torch.tensor([1, 2]), dim=0, output_size=3)
    x.copy_(torch.zeros(2, 3))
    assert read_counts(recorder) == {}


@pytest.mark.usefixtures("recorder")
def test_a_program_may_restore_the_loaded_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    for operation in OPERATIONS.values():  # what torch imports late would import torch anew
        operation(torch.arange(3.0))
    monkeypatch.delitem(sys.modules, "torch")
    x = torch.ones(2)
    assert x.repeat_interleave(2).shape == torch.repeat_interleave(x, 2).shape == (4,)
    for operation in OPERATIONS.values():
        operation(torch.arange(3.0))


def test_a_read_of_a_library_counts_for_the_line_that_calls_it(recorder: Recorder) -> None:
    library: dict[str, Any] = {}
    exec(compile("def value(x):\n    return x.item()\n", "/python/site-packages/meters/one.py", "exec"), library)
    for _ in range(2):  # the second time from the tallies
        library["value"](torch.ones(()))
        library["value"](torch.zeros(()))
    assert read_counts(recorder) == {"might_sync": 4}
    if recorder.detailed:
        lines = [(Path(site.file).name, site.line) for _, _, site in hooks.calls(recorder)]
        assert lines == [(Path(__file__).name, number) for number in (lines[0][1], lines[0][1] + 1)]


def test_in_a_program_that_uses_a_gpu_reads_on_the_cpu_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    initialized: list[Any] = []
    monkeypatch.setattr(torch.cuda, "_lazy_call", initialized.append)
    with hooks.installed(Recorder(tmp_path, "light"), tensors.TENSORS, tensors.FUNCTIONS, module=torch) as recorder:
        for expected in ({"might_sync": 2}, {}):
            torch.ones(()).item(), eval("x.tolist()", {"x": torch.ones(2)})
            assert read_counts(recorder) == expected
            for call in initialized:
                call()


def test_reads_by_code_without_source_count(recorder: Recorder) -> None:
    eval(compile("x.item()", "nowhere.py", "eval"), {"x": torch.ones(())})
    assert read_counts(recorder) == {"might_sync": 1}


def test_a_hook_that_makes_a_tensor_a_sequence_does_not_come_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = iter((False, True))
    monkeypatch.setattr(tensors, "_is_sequence", lambda module: next(seen))
    before, recorder = patching.patch_count(), Recorder(tmp_path, "light")
    monkeypatch.setattr(patching.STATE, "recorder", recorder)
    installation.install(tensors.TENSORS, torch)
    assert patching.patch_count() == before
    assert "sequence" in recorder.hook_errors["tensors"]


def test_errors_are_the_programs_own(recorder: Recorder) -> None:
    x = torch.arange(3.0, device=HERE)
    for wrong, message in (
        (x.item, "a Tensor with 3 elements cannot be converted to Scalar"),
        (lambda: bool(x), "Boolean value of Tensor with more than one value is ambiguous"),
        (lambda: x[torch.ones(4, dtype=torch.bool)], "The shape of the mask"),
        (lambda: torch.nonzero("no"), "nonzero"),
        (lambda: torch.ones(1, requires_grad=True).numpy(), "requires grad"),
    ):
        with pytest.raises((RuntimeError, TypeError, IndexError), match=message):
            wrong()
    assert read_counts(recorder) == {}
    assert x.sum().item() == 3  # the guard against nesting is open again
    assert read_counts(recorder) == {"might_sync": 1}


def test_a_subclass_gets_the_function_that_the_program_knows(recorder: Recorder) -> None:
    asked = []

    class Mine(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x, plain = torch.arange(3.0, device=HERE).as_subclass(Mine), torch.ones(3, dtype=torch.bool)
    for function, ask in (
        (torch.Tensor.tolist, x.tolist),
        (torch.Tensor.__getitem__, lambda: x[0]),
        (torch.Tensor.to, lambda: x.to(torch.float64)),
        (torch.nonzero, lambda: torch.nonzero(x)),
        (torch.masked_select, lambda: torch.masked_select(torch.ones(3), plain.as_subclass(Mine))),
        (torch.Tensor.masked_select, lambda: torch.ones(3).masked_select(plain.as_subclass(Mine))),
        (torch.Tensor.repeat_interleave, lambda: x.repeat_interleave(2)),
    ):
        asked.clear()
        ask()
        assert asked[0] is function, (asked, function)
    assert type(x[0]) is Mine
    assert read_counts(recorder) == {"might_sync": 4}, "tolist, nonzero and masked_select, each once, called by torch"


def test_fake_and_meta_tensors_have_no_values(recorder: Recorder) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    repr(torch.ones(2, device="meta"))
    with FakeTensorMode():
        repr(torch.ones(2, device=HERE)), torch.ones(2, device=HERE).cpu()
    assert read_counts(recorder) == {}


def test_transforms_and_scripts_go_on(recorder: Recorder) -> None:
    x = torch.arange(3.0, requires_grad=True)
    assert torch.func.vmap(lambda row: row[0] * 2)(torch.ones(2, 2)).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="vmap"):
        torch.func.vmap(lambda row: row.sum().item())(torch.ones(2, 2))
    x[x > 0].sum().backward()
    assert x.grad.tolist() == [0, 1, 1]
    with torch.inference_mode():
        assert torch.ones(()).item() == 1

    def scripted(t: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(t).sum() + torch.repeat_interleave(t, 2).sum() + torch.unique(t).sum()

    assert torch.jit.script(scripted)(torch.arange(3.0)).item() == 12


def test_replaced_functions_keep_their_names(recorder: Recorder) -> None:
    for function in (torch.nonzero, torch.unique, torch.Tensor.item, torch.Tensor.to):
        assert pickle.loads(pickle.dumps(function)) is function
    assert b"profiler" not in pickle.dumps(torch.Tensor.item)


def test_without_a_recorder_nothing_changes(recorder: Recorder) -> None:
    patching.STATE.recorder = None
    assert torch.ones((), device=HERE).item() == 1
    assert read_counts(recorder) == {}


def test_all_functions_are_restored(tmp_path: Path) -> None:
    before = {name: getattr(torch.Tensor, name) for name in (*tensors.WAITS, *tensors.COPIES)}
    with hooks.installed(Recorder(tmp_path, "light"), tensors.TENSORS, tensors.FUNCTIONS, module=torch):
        assert torch.Tensor.item is not before["item"]
    assert {name: getattr(torch.Tensor, name) for name in before} == before


class OnDevice:
    """A tensor as the rules see it: on a GPU or not, pinned or not."""

    def __init__(self, cuda: bool, *, pinned: bool = False) -> None:
        self.is_cuda, self.is_cpu, self._pinned, self.nbytes = cuda, not cuda, pinned, 64

    def is_pinned(self) -> bool:
        return self._pinned


GPU, CPU = True, False


@pytest.mark.parametrize(
    ("from_gpu", "pinned", "non_blocking", "blocks"),
    [
        (CPU, False, False, True),
        (CPU, True, False, True),
        (CPU, False, True, True),  # pageable: the driver copies it first, and the host waits
        (CPU, True, True, False),
        (GPU, False, True, True),
        (GPU, True, True, False),
        (GPU, False, False, True),
    ],
)
def test_copies_count_and_say_whether_the_host_waited(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, from_gpu: bool, pinned: bool, non_blocking: bool, blocks: bool
) -> None:
    monkeypatch.setattr(syncs, "_plain", {OnDevice: True})
    host, device = OnDevice(CPU, pinned=pinned), OnDevice(GPU)
    source, result = (device, host) if from_gpu else (host, device)
    fake: Any = SimpleNamespace(_C=torch._C, overrides=torch.overrides, device=torch.device, dtype=torch.dtype)
    to = tensors._copying(fake, "to")(lambda self, *args, **kwargs: result)
    assert to(source, "there", **({"non_blocking": True} if non_blocking else {})) is result
    way = "d2h" if from_gpu else "h2d"
    assert recorder.counters == {way: 1, f"{way}_bytes": 64} | ({"syncs": 1} if blocks else {})
    if recorder.detailed:
        row = hooks.call_rows(recorder)[0]
        assert (row["kind"], row["bytes"]) == (CallKind[way.upper()], 64)
        assert (row["blocked"] > 0) == blocks
        assert row["blocked"] <= row["end"] - row["begin"]


def test_a_layout_without_one_memory_has_no_size() -> None:
    assert syncs.tensor_bytes(torch.eye(2).to_sparse()) >= 0
    assert syncs.tensor_bytes(torch.eye(2)) == 16
    assert syncs.pinned(torch.eye(2).to_sparse()) is False


def test_a_wait_on_a_device_is_blocked_to_its_end(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncs, "on_device", lambda tensor: True)
    torch.nn.Parameter(torch.ones(())).item()
    str(torch.ones(2))
    assert recorder.counters == {"syncs": 2}
    if recorder.detailed:
        rows = hooks.call_rows(recorder)
        assert (rows["kind"] == CallKind.SYNC).all()
        assert (rows["blocked"] > 0).all()
        assert (rows["blocked"] <= rows["end"] - rows["begin"]).all()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.Adamax])
def test_the_count_of_steps_that_an_optimizer_reads_is_no_wait(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, kind: type[torch.optim.Optimizer]
) -> None:
    monkeypatch.setattr(syncs, "not_a_read", None)
    tensors.TENSORS.install(sys.modules["torch.optim.optimizer"])
    weight = torch.ones(3, requires_grad=True)
    optimizer = kind([weight])
    weight.sum().backward()
    optimizer.step()
    assert read_counts(recorder) == {}
    weight.sum().item()
    assert read_counts(recorder) == {"might_sync": 1}


def test_calls_without_a_python_caller_go_on(recorder: Recorder) -> None:
    """In atexit, or at the begin of a thread, no Python frame is around the wrapper."""
    for call, tensor in (
        (torch.Tensor.item, torch.ones(())),
        (torch.Tensor.nonzero, torch.ones(2)),
        (torch.nonzero, torch.ones(2)),
        (torch.Tensor.cpu, torch.ones(2)),
    ):
        done = threading.Lock()
        done.acquire()
        work = chain(map(call, [tensor]), map(methodcaller("release"), [done]))
        _thread.start_new_thread(deque, (work, 0))  # all of it in C
        assert done.acquire(timeout=60), call
    assert read_counts(recorder) == {"might_sync": 4}
    assert recorder.folder.failed == ""
    if recorder.detailed:
        assert (hooks.call_rows(recorder)["site"] == -1).all()


def test_no_tensor_is_kept(recorder: Recorder) -> None:
    import weakref

    x = torch.arange(3.0)
    alive = weakref.ref(x)
    x.cpu(), x.tolist(), x[x > 0], repr(x), torch.unique(x)
    del x
    assert alive() is None
