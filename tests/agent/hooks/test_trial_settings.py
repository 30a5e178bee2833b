"""Settings of a program under trial: what changes, that other recordings stay as they are, and that all is restored."""

from __future__ import annotations

import gc
import json
import sys
from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from profiler.agent.hooks import trial_settings
from profiler.agent.patching import STATE, patch_count, unpatch
from profiler.agent.recorder import Recorder
from profiler.run import store
from profiler.run.tables import CHANGED_LOADER

Change = Callable[..., None]


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Iterator[Change]:
    """Call it with settings to change them, as at the start of a trial."""
    before, threads = patch_count(), torch.get_num_threads()

    def begin(**settings: Any) -> None:
        monkeypatch.setenv(trial_settings.VARIABLE, json.dumps(settings))
        for name in trial_settings.PLUGIN.installers:
            trial_settings.PLUGIN.install(sys.modules[name])

    yield begin
    unpatch(before)
    torch.set_num_threads(threads)
    gc.enable()


def test_without_settings_nothing_is_replaced(change: Change) -> None:
    before = patch_count()
    change()
    assert patch_count() == before


def test_a_program_cannot_use_more_threads(change: Change) -> None:
    change(threads=2)
    torch.set_num_threads(16)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert torch.get_num_threads() == 1


def test_no_garbage_is_collected(change: Change) -> None:
    change(collect=False)
    gc.enable()
    assert not gc.isenabled()
    assert gc.collect() == gc.collect(1) == gc.collect(generation=1) == 0


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_anomaly_detection_stays_off(change: Change) -> None:
    change(anomaly=False)
    with torch.autograd.detect_anomaly():
        assert not torch.is_anomaly_enabled()
    torch.autograd.set_detect_anomaly(True)
    assert not torch.is_anomaly_enabled()


def test_options_of_optimizers_that_have_them(change: Change) -> None:
    change(optimizer={"fused": True, "foreach": False, "unknown": 1}, set_to_none=True)
    weight = torch.nn.Parameter(torch.ones(2))
    for optimizer in (torch.optim.Adam([weight], foreach=True), torch.optim.Adadelta([weight])):
        (group,) = optimizer.param_groups
        assert group["foreach"] is False
        assert group.get("fused", True) is True
        assert "unknown" not in group
    weight.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert weight.grad is None
    layer = torch.nn.Linear(1, 1)
    layer(torch.ones(1)).backward()
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad is None


def test_arguments_of_loaders(change: Change) -> None:
    change(loader={"num_workers": 2, "persistent_workers": True})
    for loader in (DataLoader([1, 2]), DataLoader([1, 2], 1, False, None, None, 0)):
        assert (loader.num_workers, loader.persistent_workers) == (2, True)


def test_only_the_loader_of_a_line_is_changed(change: Change) -> None:
    line = sys._getframe().f_lineno + 3
    change(loader={"num_workers": 2}, replay=True, loader_at=[__file__, line])
    other = DataLoader([1, 2, 3])
    blamed = DataLoader([1, 2, 3])
    assert (blamed.num_workers, other.num_workers) == (2, 0)
    change(replay=True, loader_at=[__file__, line + 4])
    other = DataLoader([1, 2, 3])
    blamed = DataLoader([1, 2, 3])
    assert [int(batch) for batch in other] == [1, 2, 3]
    assert [int(batch) for batch in blamed] == [1, 2, 1]


def test_a_changed_loader_is_a_fact(change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(tmp_path / "run")
    recorder = Recorder(tmp_path / "run", "light")
    monkeypatch.setattr(STATE, "recorder", recorder)
    try:
        change(loader={"num_workers": 2}, loader_at=[__file__, sys._getframe().f_lineno + 3])
        DataLoader([1, 2, 3])
        assert CHANGED_LOADER not in recorder.hook_facts
        DataLoader([1, 2, 3])
        assert recorder.hook_facts.pop(CHANGED_LOADER) is True
        change(replay=True)
        DataLoader([1, 2, 3])
        assert recorder.hook_facts[CHANGED_LOADER] is True
    finally:
        recorder.close()


def test_what_needs_workers_is_left_out_without_them(change: Change) -> None:
    change(loader={"num_workers": 0})
    loader = DataLoader([1, 2], num_workers=3, prefetch_factor=4, persistent_workers=True)
    assert (loader.num_workers, loader.persistent_workers) == (0, False)
    change(loader={"persistent_workers": True})
    assert not DataLoader([1, 2]).persistent_workers


def test_loaders_replay_their_first_batches(change: Change) -> None:
    made = []

    class Items:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> int:
            made.append(index)
            return index

    change(replay=True)
    loader: Any = DataLoader(Items(), batch_size=2)  # type: ignore[arg-type]
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [0, 1]]
    assert made == [0, 1, 2, 3]


def test_what_a_program_takes_out_of_a_batch_is_in_the_next_one(change: Change) -> None:
    change(replay=True)
    loader: Any = DataLoader([{"inputs": number, "labels": number} for number in range(4)])  # type: ignore[arg-type]
    assert [int(batch.pop("labels")) for batch in loader] == [0, 1, 0, 1]


def test_replayed_batches_share_no_container_at_any_level() -> None:
    Pair = namedtuple("Pair", ("size", "parts"))  # noqa: PYI024
    tensor = torch.zeros(2)
    batch = (tensor, Pair(tensor.shape, {"x": [tensor], "y": UserDict(labels=tensor)}))
    own = trial_settings._with_own_containers(batch)
    assert own[1].parts.pop("x") == [tensor]
    assert own[1].parts["y"].pop("labels") is tensor
    assert batch[1].parts["x"] == [tensor]
    assert batch[1].parts["y"]["labels"] is tensor
    assert (type(own), type(own[1]), own[1].size) == (tuple, Pair, torch.Size((2,)))
    assert trial_settings._with_own_containers((tensor, 1)) == (tensor, 1)


def test_a_stream_without_a_length_is_replayed_without_end(change: Change) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    change(replay=True)
    batches = iter(DataLoader(Stream()))
    assert [int(next(batches)) for _ in range(7)] == [0, 1, 0, 1, 0, 1, 0]
