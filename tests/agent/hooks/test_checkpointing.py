"""The lines that checkpoint activations are facts of a run; results and gradients stay the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.agent.hooks import stages
from profiler.agent.patching import STATE
from tests.fakes.watched import watched

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_the_line_of_a_checkpoint_is_recorded_once(tmp_path: Path, use_reentrant: bool) -> None:
    module = torch.utils.checkpoint
    x = torch.ones(3, requires_grad=True)
    with watched(tmp_path, (stages.CHECKPOINTING, module)):
        assert STATE.recorder is not None
        assert "activation_checkpoints" not in STATE.recorder.hook_facts
        for _ in range(2):
            module.checkpoint(torch.exp, x, use_reentrant=use_reentrant).sum().backward()
        (place,) = STATE.recorder.hook_facts["activation_checkpoints"]
    assert place["file"] == __file__
    assert "module.checkpoint(torch.exp" in Path(__file__).read_text().splitlines()[place["line"] - 1]
    assert place["function"] == "test_the_line_of_a_checkpoint_is_recorded_once"
    assert torch.allclose(x.grad, 2 * torch.ones(3).exp())
