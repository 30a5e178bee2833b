"""Optimizer steps as boundaries: which optimizer, once a step, skipped ones too, and regions without the closure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from profiler.agent import patching
from profiler.agent.hooks.backward import Backward
from profiler.agent.hooks.optimizers import Optimizers
from profiler.agent.recorder import Recorder
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import Run
from tests.run.test_store import info

HERE = Path(__file__).name


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Callable[[], Run]]]:
    """Call it with a level to begin; call what it gives for the run."""
    store.create(tmp_path / "run")
    store.write_manifest(tmp_path / "run", info(state="complete"))

    def begin(level: str = "standard") -> Callable[[], Run]:
        recorder = Recorder(tmp_path / "run", level)
        monkeypatch.setattr(patching.STATE, "recorder", recorder)
        optimizers = Optimizers()
        optimizers.install(sys.modules["torch.optim.optimizer"])  # torch.optim hides it
        optimizers.install(sys.modules["torch.amp.grad_scaler"])
        if level != "light":
            Backward().install(torch.autograd)

        def loaded() -> Run:
            recorder.flush()
            return load(tmp_path / "run")

        return loaded

    yield begin
    patching.unpatch()


def parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(2))


def boundaries(run: Run) -> list[tuple[str, int]]:
    return [(run.names[row["name"]].partition(" ")[0], int(row["flag"])) for row in run.boundaries]


def regions(run: Run) -> list[tuple[str, int]]:
    return [(run.names[row["name"]], int(row["depth"])) for row in run.regions]


def stepped(*optimizers: torch.optim.Optimizer) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for value in group["params"]:
                value.grad = torch.ones_like(value)
        optimizer.step()


def test_each_optimizer_has_a_name_of_its_own(watch: Callable[..., Any]) -> None:
    """A GAN, and one optimizer for each layer."""
    loaded = watch("light")
    first, second = torch.optim.Adam([parameter()]), torch.optim.SGD([parameter()], lr=0.1)
    many = [torch.optim.SGD([parameter()], lr=0.1) for _ in range(3)]
    for _ in range(2):
        stepped(first, second, *many)
    run = loaded()
    assert boundaries(run) == [("Adam", 0), ("SGD", 0), ("SGD", 0), ("SGD", 0), ("SGD", 0)] * 2
    names = [run.names[number] for number in run.boundaries["name"]]
    assert names[:5] == names[5:]
    assert len(set(names)) == 5
    assert all(HERE in name for name in names), names
    assert names[4].endswith(" #3")
    assert len(run.regions) == 0, "light"


def test_one_that_is_made_anew_keeps_the_name(watch: Callable[..., Any]) -> None:
    loaded = watch("light")
    for _ in range(3):
        optimizer = torch.optim.SGD([parameter()], lr=0.1)
        stepped(optimizer)
        del optimizer
    run = loaded()
    assert len(set(run.boundaries["name"].tolist())) == 1


def test_one_that_was_there_before_is_named_by_its_step(watch: Callable[..., Any]) -> None:
    optimizer = torch.optim.SGD([parameter()], lr=0.1)
    loaded = watch("light")
    for _ in range(2):
        stepped(optimizer)
    run = loaded()
    assert len(run.boundaries) == 2
    assert HERE in run.names[run.boundaries["name"][0]]


def test_accumulation_is_one_step(watch: Callable[..., Any]) -> None:
    loaded = watch()
    value = parameter()
    optimizer = torch.optim.SGD([value], lr=0.1)
    for _ in range(2):
        for _ in range(3):
            value.sum().backward()
        optimizer.step()
    run = loaded()
    assert len(run.boundaries) == 2
    assert regions(run) == [("backward", 0)] * 3 + [("optimizer", 0)] + [("backward", 0)] * 3 + [("optimizer", 0)]
    assert (run.boundaries["time"] >= run.regions["end"][[3, 7]]).all()


def test_a_skipped_update_is_flagged(watch: Callable[..., Any]) -> None:
    loaded = watch("light")
    value = parameter()
    optimizer = torch.optim.SGD([value], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for bad in (False, True, False):
        optimizer.zero_grad()
        scaler.scale(value.sum() * (float("inf") if bad else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert boundaries(loaded()) == [("SGD", 0), ("SGD", 1), ("SGD", 0)]


class Foreign:
    """An optimizer of another library, whose steps torch does not announce."""

    def __init__(self, value: torch.nn.Parameter) -> None:
        self.param_groups = [{"params": [value]}]

    def step(self) -> None:
        pass


def test_a_step_that_torch_does_not_announce_is_not_called_skipped(watch: Callable[..., Any]) -> None:
    loaded = watch("light")
    value = parameter()
    optimizer: Any = Foreign(value)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for bad in (False, True, False):
        value.grad = None
        scaler.scale(value.sum() * (float("inf") if bad else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert boundaries(loaded()) == [("Foreign", 0), ("Foreign", 1), ("Foreign", 0)]


def test_a_scaled_step_within_a_step_is_none(watch: Callable[..., Any]) -> None:
    loaded = watch("light")
    value = parameter()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)

    class Scaled(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            scaler.scale(value.sum()).backward()
            scaler.step(inner)
            scaler.update()

    inner, outer = torch.optim.SGD([value], lr=0.1), Scaled([value], lr=0.1)
    outer.step()
    assert boundaries(loaded()) == [("Scaled", 0)]


def test_a_closure_is_no_work_of_the_optimizer(watch: Callable[..., Any]) -> None:
    """LBFGS calls it several times in a step, Lightning once in each."""
    loaded = watch()
    value = parameter()
    for optimizer in (torch.optim.LBFGS([value], max_iter=3), torch.optim.SGD([value], lr=0.1)):

        def closure() -> torch.Tensor:
            value.grad = None
            loss = (value**2).sum()
            loss.backward()
            return loss

        assert optimizer.step(closure) is not None
        assert optimizer.step(closure=closure) is not None
    run = loaded()
    assert boundaries(run) == [("LBFGS", 0)] * 2 + [("SGD", 0)] * 2
    assert {depth for _, depth in regions(run)} == {0}, "none lies within another"
    begins, ends = run.regions["begin"], run.regions["end"]
    assert (begins[1:] >= ends[:-1]).all()
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
    loaded = watch(level)
    outer = Around(torch.optim.SGD([parameter()], lr=0.1))
    for _ in range(3):
        stepped(outer)
    run = loaded()
    assert boundaries(run) == [("Around", 0)] * 3
    assert regions(run) == ([] if level == "light" else [("optimizer", 0)] * 3)


@pytest.mark.parametrize("level", ["light", "standard"])
def test_a_step_that_fails_is_none_and_hides_no_other(watch: Callable[..., Any], level: str) -> None:
    loaded = watch(level)
    outer, other = Around(torch.optim.SGD([parameter()], lr=0.1)), torch.optim.Adam([parameter()])
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
    loaded = watch()
    optimizer = torch.optim.SGD([parameter()], lr=0.1)
    patching.unpatch()
    stepped(optimizer)
    assert len(loaded().boundaries) == 0


def test_gradients_of_a_penalty_are_backward_too(watch: Callable[..., Any]) -> None:
    loaded = watch()
    value = parameter()
    (gradient,) = torch.autograd.grad((value**2).sum(), value, create_graph=True)
    gradient.sum().backward()
    assert regions(loaded()) == [("backward", 0)] * 2
    assert value.grad is not None
    assert value.grad.tolist() == [2.0, 2.0]
