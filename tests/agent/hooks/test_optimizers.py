"""Optimizer steps as boundaries: which optimizer, once a step, skipped ones too, and regions without the closure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler import load
from profiler.agent import patching
from profiler.agent.clocks import Region
from profiler.agent.hooks import optimizers, stages
from profiler.agent.patching import STATE
from profiler.run.model import Run
from profiler.run.tables import BoundaryKind
from tests.fakes.watched import counted, watched

HERE = Path(__file__).name


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Callable[[], Run]]]:
    """Call it with a level to begin; call what it gives for the run."""
    hooks: list[Any] = [
        (optimizers.PLUGIN, sys.modules[f"torch.{name}"]) for name in ("optim.optimizer", "amp.grad_scaler")
    ]
    with ExitStack() as stack:

        def begin(level: str = "standard") -> Callable[[], Run]:
            backward = [(stages.BACKWARD, torch.autograd)] if level != "light" else []
            return stack.enter_context(watched(tmp_path, *hooks, *backward, level=level))

        yield begin


def parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(2))


def sgd(*values: torch.nn.Parameter) -> torch.optim.SGD:
    return torch.optim.SGD(values or [parameter()], lr=0.1)


def boundaries(run: Run) -> list[tuple[str, int]]:
    rows = run.boundaries[run.boundaries["kind"] == BoundaryKind.OPTIMIZER]
    return [(run.names[row["name"]].partition(" ")[0], int(row["flag"])) for row in rows]


def regions(run: Run) -> list[tuple[str, int]]:
    return [(run.names[row["name"]], int(row["depth"])) for row in run.regions]


def stepped(*optimizers: torch.optim.Optimizer) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for value in group["params"]:
                value.grad = torch.ones_like(value)
        optimizer.step()


def test_each_optimizer_has_a_name_of_its_own(watch: Callable[..., Any]) -> None:
    """A GAN, and one optimizer for each layer; one that exists already is named after the line that steps it."""
    earlier = sgd()
    loaded = watch("light")
    optimizers = [torch.optim.Adam([parameter()]), sgd(), *[sgd() for _ in range(3)], earlier]
    for _ in range(2):
        stepped(*optimizers)
    run = loaded()
    assert boundaries(run) == [("Adam", 0), *[("SGD", 0)] * 5] * 2
    names = [run.names[number] for number in run.boundaries["name"]]
    assert names[:6] == names[6:]
    assert len(set(names)) == 6
    assert all(HERE in name for name in names), names
    assert names[4].endswith(" #4")
    assert len(run.regions) == 0, "light"


def test_one_that_is_made_anew_keeps_the_name(watch: Callable[..., Any]) -> None:
    loaded = watch("light")
    for _ in range(3):
        stepped(sgd())
    assert len(set(loaded().boundaries["name"].tolist())) == 1


def test_a_recording_knows_no_name_of_the_one_before(watch: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    module = sys.modules["torch.optim.optimizer"]
    with watched(tmp_path / "before", (optimizers.PLUGIN, module), level="light"):
        earlier = sgd()
    loaded = watch("light")
    stepped(sgd(), earlier)
    names = [loaded().names[number] for number in loaded().boundaries["name"]]
    assert "#" not in "".join(names)
    assert len(set(names)) == 2, "the earlier one is named after the line that steps it"


def within_a_region(step: Callable[[], object]) -> None:
    with Region(patching.STATE.recorder, "outer"):
        step()


@pytest.mark.parametrize("level", ["light", "standard"])
def test_a_step_that_failed_in_another_thread_ends_with_its_recording(
    watch: Callable[..., Any], tmp_path: Path, level: str
) -> None:
    (tmp_path / "before").mkdir()
    outer = Around(sgd())
    with ThreadPoolExecutor(1) as thread:
        with watched(tmp_path / "before", (optimizers.PLUGIN, sys.modules["torch.optim.optimizer"])):
            outer.fails = True
            with pytest.raises(MemoryError):
                thread.submit(within_a_region, outer.step).result()
        loaded, outer.fails = watch(level), False
        thread.submit(stepped, outer).result()
    run = loaded()
    assert boundaries(run) == [("Around", 0)]
    assert regions(run) == ([] if level == "light" else [("optimizer", 0)])


def test_a_reload_keeps_the_names(watch: Callable[..., Any]) -> None:
    loaded, optimizer, module = watch("light"), sgd(), sys.modules["torch.optim.optimizer"]
    stepped(optimizer)
    optimizers.PLUGIN.install(module)
    stepped(optimizer)
    assert len(set(loaded().boundaries["name"].tolist())) == 1


def test_accumulation_is_one_step(watch: Callable[..., Any]) -> None:
    loaded, value = watch(), parameter()
    optimizer = sgd(value)
    for _ in range(2):
        for _ in range(3):
            value.sum().backward()
        optimizer.step()
    run = loaded()
    steps = run.boundaries[run.boundaries["kind"] == BoundaryKind.OPTIMIZER]
    assert len(steps) == 2
    assert regions(run) == [*[("backward", 0)] * 3, ("optimizer", 0)] * 2
    assert (steps["time"] >= run.regions["end"][[3, 7]]).all()


class Foreign:
    """An optimizer of another library, whose steps torch does not announce."""

    def __init__(self, value: torch.nn.Parameter) -> None:
        self.param_groups = [{"params": [value]}]

    def step(self) -> None:
        pass


@pytest.mark.parametrize(("kind", "name"), [(sgd, "SGD"), (Foreign, "Foreign")])
def test_a_skipped_update_is_flagged(watch: Callable[..., Any], kind: Any, name: str) -> None:
    loaded, value = watch("light"), parameter()
    optimizer, scaler = kind(value), torch.amp.GradScaler("cpu", init_scale=2.0)
    for bad in (False, True, False):
        value.grad = None
        scaler.scale(value.sum() * (float("inf") if bad else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert boundaries(loaded()) == [(name, 0), (name, 1), (name, 0)]


def test_a_scaled_step_within_a_step_is_none(watch: Callable[..., Any]) -> None:
    loaded, value, scaler = watch("light"), parameter(), torch.amp.GradScaler("cpu", init_scale=2.0)

    class Scaled(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            scaler.scale(value.sum()).backward()
            scaler.step(inner)
            scaler.update()

    inner, outer = sgd(value), Scaled([value], lr=0.1)
    outer.step()
    assert boundaries(loaded()) == [("Scaled", 0)]


def test_a_closure_is_no_work_of_the_optimizer(watch: Callable[..., Any]) -> None:
    """LBFGS calls it several times in a step, Lightning once in each."""
    loaded, value = watch(), parameter()

    def closure() -> torch.Tensor:
        value.grad = None
        loss = (value**2).sum()
        loss.backward()
        return loss

    for optimizer in (torch.optim.LBFGS([value], max_iter=3), sgd(value)):
        assert optimizer.step(closure) is not None
        assert optimizer.step(closure=closure) is not None
    run = loaded()
    assert boundaries(run) == [("LBFGS", 0)] * 2 + [("SGD", 0)] * 2
    assert {depth for _, depth in regions(run)} == {0}, "none lies within another"
    assert (run.regions["begin"][1:] >= run.regions["end"][:-1]).all()
    assert regions(run)[-3:] == [("optimizer", 0), ("backward", 0), ("optimizer", 0)]


class Around(torch.optim.Optimizer):
    """An optimizer that steps another one, and sometimes fails."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.fails = False
        super().__init__(inner.param_groups, {})

    def step(self, closure: Any = None) -> None:
        if self.fails:
            raise MemoryError
        self.inner.step()
        self.inner.step()


@pytest.mark.parametrize("level", ["light", "standard"])
def test_a_step_within_a_step_is_none(watch: Callable[..., Any], level: str) -> None:
    loaded, outer = watch(level), Around(sgd())
    for _ in range(3):
        stepped(outer)
    run = loaded()
    assert boundaries(run) == [("Around", 0)] * 3
    assert regions(run) == ([] if level == "light" else [("optimizer", 0)] * 3)


@pytest.mark.parametrize("level", ["light", "standard"])
def test_a_step_that_fails_is_none_and_hides_no_other(watch: Callable[..., Any], level: str) -> None:
    loaded, outer, other = watch(level), Around(sgd()), torch.optim.Adam([parameter()])
    outer.fails = True
    with pytest.raises(MemoryError):
        outer.step()
    stepped(other)
    outer.fails = False
    stepped(outer, other)
    run = loaded()
    assert boundaries(run) == [("Adam", 0), ("Around", 0), ("Adam", 0)]
    assert {depth for _, depth in regions(run)} <= {0}


def test_the_hooks_go_with_the_patches(watch: Callable[..., Any]) -> None:
    loaded, optimizer = watch(), sgd()
    patching.unpatch()
    stepped(optimizer)
    assert len(loaded().boundaries) == 0


def test_gradients_of_a_penalty_are_backward_too(watch: Callable[..., Any]) -> None:
    loaded, value = watch(), parameter()
    (gradient,) = torch.autograd.grad((value**2).sum(), value, create_graph=True)
    gradient.sum().backward()
    assert regions(loaded()) == [("backward", 0)] * 2
    assert value.grad is not None
    assert value.grad.tolist() == [2.0, 2.0]


def test_only_calls_that_fill_gradients_with_zeros_are_counted(tmp_path: Path) -> None:
    optimizer_module, module = (sys.modules[f"torch.{name}"] for name in ("optim.optimizer", "nn.modules.module"))
    with watched(tmp_path, (optimizers.PLUGIN, optimizer_module), (optimizers.PLUGIN, module)):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        optimizer.zero_grad(set_to_none=True)
        assert counted(STATE.recorder, "zero_fills") == 0
        model(torch.ones(2)).backward()
        optimizer.zero_grad(set_to_none=False)
        model.zero_grad(False)
        assert counted(STATE.recorder, "zero_fills") == 2
        assert counted(STATE.recorder, "zero_fill_ns") > 0
        assert model.weight.grad is not None


RPC = """
import os, torch, torch.distributed.rpc as rpc, torch.distributed.autograd as autograd
from torch.distributed.optim import DistributedOptimizer

os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
rpc.init_rpc("only", rank=0, world_size=1, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method="file://INIT"))
layer = torch.nn.Linear(2, 2)
optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(each) for each in layer.parameters()], lr=0.1)
for _ in range(5):
    with autograd.context() as context:
        autograd.backward(context, [layer(torch.ones(1, 2)).sum()])
        optimizer.step(context)
rpc.shutdown()
"""


@pytest.mark.slow
def test_a_distributed_optimizer_steps(tmp_path: Path) -> None:
    program, out = tmp_path / "train.py", tmp_path / "run"
    program.write_text(RPC.replace("INIT", str(tmp_path / "store")))
    command = [sys.executable, "-m", "profiler", "run", "--level", "light", "--out", str(out), "--", sys.executable]
    subprocess.run([*command, str(program)], check=True, capture_output=True)
    run = load(out)
    assert boundaries(run) == [("DistributedOptimizer", 0)] * 5
