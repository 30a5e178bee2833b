"""Checkpoints: a region for each that is written or read, and the same content."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.agent.hooks import checkpoints, loader_workers
from profiler.agent.patching import Hook
from tests.fakes.watched import regions, watched

torch = pytest.importorskip("torch")


def test_both_names_of_torch(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    with watched(tmp_path, (checkpoints.PLUGIN, torch)) as loaded:
        torch.save({"weight": torch.arange(3)}, file)
        assert torch.serialization.load(file)["weight"].tolist() == [0, 1, 2]
        assert regions(loaded()) == ["checkpoint"] * 2


def test_safetensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    with watched(tmp_path, (checkpoints.PLUGIN, safetensors)) as loaded:
        safetensors.save_file({"weight": torch.arange(3)}, tmp_path / "model.safetensors")
        assert safetensors.load_file(tmp_path / "model.safetensors")["weight"].tolist() == [0, 1, 2]
        assert regions(loaded()) == ["checkpoint"] * 2


@pytest.mark.parametrize("hook", [checkpoints.PLUGIN, loader_workers.PLUGIN], ids=lambda hook: hook.name)
def test_at_light_nothing_is_installed(hook: Hook) -> None:
    assert "light" not in hook.levels
