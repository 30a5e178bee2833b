"""Synchronizations of gradients between two steps of an optimizer are counted beyond the first one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from profiler.agent.hooks import optimizers, stages
from profiler.agent.patching import Hook
from profiler.run.model import Run
from profiler.run.tables import REPEATED_GRADIENT_SYNCS, BoundaryKind
from tests.fakes.watched import watched

torch = pytest.importorskip("torch")
distributed = pytest.importorskip("torch.distributed")
if not distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)


@pytest.fixture
def only_rank(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def hooks(module: ModuleType) -> tuple[tuple[Hook, Any], ...]:
    return (
        (stages.GRADIENT_SYNCS, module),
        (stages.BACKWARD, torch.autograd),
        (optimizers.PLUGIN, sys.modules["torch.optim.optimizer"]),
        (optimizers.PLUGIN, sys.modules["torch.amp.grad_scaler"]),
    )


def total(run: Run) -> float:
    rows = (row for row in run.values if run.names[row["name"]] == REPEATED_GRADIENT_SYNCS)
    return float(sum(row["value"] for row in rows))


@pytest.mark.parametrize(("passes", "is_quiet", "repeated"), [(1, False, 0), (4, True, 0), (4, False, 3)])
@pytest.mark.usefixtures("only_rank")
def test_repeated_synchronizations_are_counted(tmp_path: Path, passes: int, is_quiet: bool, repeated: int) -> None:
    from torch.nn.parallel import distributed as module

    model = module.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watched(tmp_path, *hooks(module), level="light") as loaded:
        for _ in range(3):
            for part in range(passes):
                with model.no_sync() if is_quiet and part < passes - 1 else nullcontext():
                    model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        assert total(loaded()) == 2 * repeated, "those before the first step of an optimizer are not counted"


@pytest.mark.usefixtures("only_rank")
def test_passes_without_gradients_or_without_a_backward_pass_synchronize_nothing(tmp_path: Path) -> None:
    from torch.nn.parallel import distributed as module

    model = module.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watched(tmp_path, *hooks(module), level="light") as loaded:
        optimizer.step()
        with torch.no_grad():
            model(torch.ones(2, 4))
        (model(torch.ones(2, 4)) + model(torch.ones(2, 4))).sum().backward()
        optimizer.step()
        assert total(loaded()) == 0
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        assert total(loaded()) == 1


@pytest.mark.parametrize("way", ["another class", "another thread", "skipped"])
@pytest.mark.usefixtures("only_rank")
def test_a_step_after_each_backward_pass_repeats_nothing(tmp_path: Path, way: str) -> None:
    """The optimizer is no torch.optim.Optimizer, steps in a thread as autograd's thread of a GPU does, or its steps are
    skipped by GradScaler."""
    from torch.nn.parallel import distributed as module

    model = module.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scale = float("inf") if way == "skipped" else 1.0
    with watched(tmp_path, *hooks(module), level="light") as loaded:
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).sum() * scale
            if way == "skipped":
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                continue
            loss.backward()
            if way == "another thread":
                thread = threading.Thread(target=optimizer.step)
                thread.start()
                thread.join()
            else:
                with torch.no_grad():
                    torch._foreach_add_([*model.parameters()], [each.grad for each in model.parameters()], alpha=-0.1)
        run = loaded()
        if way != "another class":
            assert len([row for row in run.boundaries if row["kind"] == BoundaryKind.OPTIMIZER]) == 4
        assert total(run) == 0
