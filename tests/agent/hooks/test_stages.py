"""Modules that change their mode, and time without gradients."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from profiler.agent.hooks import stages
from profiler.agent.patching import STATE
from profiler.run.model import Run
from profiler.run.tables import StageKind
from tests.fakes.watched import watched

torch = pytest.importorskip("torch")
HOOKS: Any = (stages.STAGES, torch.nn.modules.module), (stages.STAGES, torch.autograd.grad_mode)


def recorded(run: Run) -> list[tuple[str, StageKind]]:
    return [(run.names[row["name"]], StageKind(row["kind"])) for row in run.stages]


def test_only_changes_of_the_outermost_module_are_recorded(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Dropout()))
    with watched(tmp_path, *HOOKS, level="light") as loaded:
        for _ in range(2):
            assert model.train() is model
            assert not model.eval()[1][0].training
            model.eval()
        model[1][0].train()  # a layer that programs switch within training
        run = loaded()
    assert recorded(run) == [
        ("Sequential", StageKind.EVAL_MODE), ("Sequential", StageKind.TRAIN_MODE), ("Sequential", StageKind.EVAL_MODE),
    ]  # fmt: skip
    assert set(run.stages["object"].tolist()) == {id(model)}


def test_an_error_at_a_change_of_mode_does_not_reach_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise OSError(28, "No space left on device")

    class Model(torch.nn.Module):  # type: ignore[misc]
        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            raise ValueError("of the program")

    with watched(tmp_path, *HOOKS, level="light"):
        recorder = STATE.recorder
        assert recorder is not None
        recorder.on_mode.append(fails)
        assert not torch.nn.Linear(2, 2).eval().training
        with pytest.raises(ValueError, match="of the program"):
            Model().eval()
        assert recorder.folder.failed
    assert "recording stopped" in capsys.readouterr().err


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_time_without_gradients_is_that_of_the_outermost_block(tmp_path: Path, context: Any) -> None:
    @context()  # type: ignore[untyped-decorator]
    def evaluate() -> None:
        with torch.no_grad():
            time.sleep(0.001)

    with watched(tmp_path, *HOOKS, level="light") as loaded:
        recorder = STATE.recorder
        assert recorder is not None
        recorder.backwards = 7
        evaluate()
        with suppress(ValueError), context():
            time.sleep(0.001)
            raise ValueError
        run = loaded()
    assert recorded(run) == [("no_grad", StageKind.NO_GRAD)] * 2
    assert run.stages["object"].tolist() == [7, 7]
    assert (run.stages["end"] - run.stages["begin"] >= 1_000_000).all()


def test_a_short_block_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_MIN_NS", 10**12)
    with watched(tmp_path, *HOOKS) as loaded:
        with torch.no_grad():
            torch.ones(1).add_(1)
        assert recorded(loaded()) == []


def test_scripted_code_without_gradients_compiles(tmp_path: Path) -> None:
    with watched(tmp_path, *HOOKS):

        class Doubles(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                with torch.no_grad():
                    return x * 2

        assert torch.jit.script(Doubles())(torch.ones(1)).tolist() == [2.0]
