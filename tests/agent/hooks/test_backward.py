"""Backward passes: a region each, and boundaries only where no optimizer steps."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from profiler.agent.hooks import stages
from profiler.agent.patching import STATE
from profiler.run.tables import BoundaryKind
from tests.fakes.watched import regions, watched

torch = pytest.importorskip("torch")
HERE = Path(__file__).name
HOOK = stages.BACKWARD, torch.autograd


def test_each_backward_pass_is_a_boundary_with_the_line_of_the_user(tmp_path: Path) -> None:
    value = torch.ones(2, requires_grad=True)
    with watched(tmp_path, HOOK, level="light") as loaded:
        for _ in range(3):
            value.sum().backward()
        torch.autograd.grad(value.sum(), value)
        run = loaded()
    assert run.boundaries["kind"].tolist() == [BoundaryKind.BACKWARD] * 4
    names = [run.names[number].partition(":")[0] for number in run.boundaries["name"]]
    assert names == [f"backward ({HERE}"] * 3 + [f"gradients ({HERE}"]


def test_after_an_optimizer_step_only_many_backward_passes_are_boundaries(tmp_path: Path) -> None:
    value = torch.ones(2, requires_grad=True)
    with watched(tmp_path, HOOK, level="light") as loaded:
        recorder = STATE.recorder
        assert recorder is not None
        recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
        for _ in range(67):
            value.sum().backward()
        assert loaded().boundaries["kind"].tolist() == [BoundaryKind.OPTIMIZER] + [BoundaryKind.BACKWARD] * 3


def test_a_backward_pass_within_another_is_a_part_of_it(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    value = torch.ones(2, requires_grad=True)
    with watched(tmp_path, HOOK) as loaded:
        checkpoint(torch.sin, value, use_reentrant=True).sum().backward()
        assert (len(loaded().boundaries), regions(loaded())) == (1, ["backward"])


def test_a_thread_of_the_program_has_backward_passes_of_its_own(tmp_path: Path) -> None:
    value = torch.ones(2, requires_grad=True)

    class Waits(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            other = torch.ones(2, requires_grad=True)
            thread = threading.Thread(target=lambda: other.sum().backward())
            thread.start()
            thread.join()
            return gradient

    with watched(tmp_path, HOOK, level="light") as loaded:
        Waits.apply(value).sum().backward()
        assert len(loaded().boundaries) == 2


def test_a_backward_pass_that_fails_is_no_boundary(tmp_path: Path) -> None:
    with watched(tmp_path, HOOK, level="light") as loaded:
        with pytest.raises(RuntimeError):
            torch.ones(2).sum().backward()
        torch.ones(2, requires_grad=True).sum().backward()
        assert len(loaded().boundaries) == 1


def test_scripts_call_autograd_as_before(tmp_path: Path) -> None:
    def scripted(x: torch.Tensor) -> torch.Tensor:
        torch.autograd.backward([(x * x).sum()])
        return (x * x).sum()

    value = torch.ones(2, requires_grad=True)
    with watched(tmp_path, HOOK, level="light"):
        torch.jit.script(scripted)(value)
    assert value.grad.tolist() == [2.0, 2.0]
