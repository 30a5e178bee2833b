"""Synchronizations of gradients between two steps of an optimizer are counted beyond the first one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from profiler.agent.hooks import backward, gradient_syncs, optimizers
from profiler.run.model import Run
from profiler.run.tables import REPEATED_GRADIENT_SYNCS
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


def total(run: Run) -> float:
    rows = (row for row in run.values if run.names[row["name"]] == REPEATED_GRADIENT_SYNCS)
    return float(sum(row["value"] for row in rows))


@pytest.mark.parametrize(("passes", "is_quiet", "repeated"), [(1, False, 0), (4, True, 0), (4, False, 3)])
@pytest.mark.usefixtures("only_rank")
def test_repeated_synchronizations_are_counted(tmp_path: Path, passes: int, is_quiet: bool, repeated: int) -> None:
    from torch.nn.parallel import distributed as module

    hooks = (
        (gradient_syncs.PLUGIN, module),
        (backward.PLUGIN, torch.autograd),
        (optimizers.PLUGIN, sys.modules["torch.optim.optimizer"]),
    )
    model = module.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watched(tmp_path, *hooks, level="light") as loaded:
        for _ in range(3):
            for part in range(passes):
                with model.no_sync() if is_quiet and part < passes - 1 else nullcontext():
                    model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        assert total(loaded()) == 3 * repeated


@pytest.mark.usefixtures("only_rank")
def test_passes_without_gradients_or_without_a_backward_pass_synchronize_nothing(tmp_path: Path) -> None:
    from torch.nn.parallel import distributed as module

    model = module.DistributedDataParallel(torch.nn.Linear(4, 1))
    hooks = (gradient_syncs.PLUGIN, module), (backward.PLUGIN, torch.autograd)
    with watched(tmp_path, *hooks, level="light") as loaded:
        with torch.no_grad():
            model(torch.ones(2, 4))
        (model(torch.ones(2, 4)) + model(torch.ones(2, 4))).sum().backward()
        assert total(loaded()) == 0
        model(torch.ones(2, 4)).sum().backward()
        assert total(loaded()) == 1
