"""Steps of torch's optimizers run without the mode that counts reads, and count the same."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from profiler.agent.hooks import exact
from profiler.exact import counting, private_api
from profiler.exact.counting import ReadMode
from profiler.run.tables import ENV_COUNT
from tests.fakes.watched import watched

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the program's device is the CPU")

MAKERS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, amsgrad=True),
    "adamw": torch.optim.AdamW,
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, centered=True, momentum=0.9),
}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Reads that count, in a program whose optimizers are made after the counting begins."""
    counted: Counter[str] = Counter()
    mode = ReadMode(lambda event, _: counted.update([event.name]))
    for owner in counting.OPTIMIZERS:
        step: Any = owner.step
        step = step.__wrapped__ if hasattr(step, "hooked") else step
        monkeypatch.setattr(owner, "step", functools.partialmethod(_step, mode, step))
    if "step" in vars(torch.optim.AdamW):  # torch's hooks around the method of Adam
        monkeypatch.delattr(torch.optim.AdamW, "step")
    with mode:
        yield counted


def _step(self: Any, mode: ReadMode, original: Callable[..., Any], *args: Any) -> Any:
    return counting.step_optimizer(mode, original, self, *args)


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of function modes that are active in each step of Adam."""
    seen: list[int] = []
    name = "_accelerator_graph_capture_health_check"  # which a step calls first
    monkeypatch.setattr(torch.optim.Adam, name, lambda _: seen.append(len(private_api.active_modes())))
    return seen


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_state_of_an_optimizer_counts(make: Callable[[list[Tensor]], Optimizer], counts: Counter[str]) -> None:
    layer = nn.Linear(2, 1)
    optimizer = make(list(layer.parameters()))
    for _ in range(2):
        layer(torch.ones(3, 2)).mean().backward()
        optimizer.step()
    assert not counts
    state = [
        value
        for values in optimizer.state.values()
        for name, value in values.items()
        if isinstance(value, Tensor) and name != "step"
    ]
    for value in state:
        value.sum().item()
    assert counts == {"item": len(state)}
    assert state


def test_the_number_of_steps_lies_on_the_cpu(counts: Counter[str]) -> None:
    parameter = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.Adam([parameter])
    (parameter * 2).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert optimizer.state[parameter]["step"].item() == 1
    assert not counts


def test_a_step_runs_without_the_mode(counts: Counter[str], modes: list[int]) -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])
    parameter.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert modes == [0]
    assert not counts


def test_a_closure_and_hooks_count(counts: Counter[str], modes: list[int]) -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])
    optimizer.register_step_post_hook(lambda *_: parameter.sum().tolist())  # type: ignore[arg-type]

    def closure() -> float:
        loss = parameter.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    optimizer.step(closure)
    optimizer.step()
    assert counts == {"item": 1, "tolist": 2}
    assert modes == [1, 0]


@pytest.mark.parametrize(
    "options", [{"lr": torch.tensor(0.1)}, {"capturable": True}, {"differentiable": True}, {"fused": True}]
)
def test_another_way_keeps_the_mode(options: dict[str, object], counts: Counter[str], modes: list[int]) -> None:
    optimizer = torch.optim.Adam([nn.Parameter(torch.ones(2))], **options)  # type: ignore[arg-type]
    optimizer.step()
    assert modes == [1]
    assert not counts


def test_the_number_of_steps_of_a_fused_optimizer_lies_on_the_device(counts: Counter[str]) -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter], fused=True)
    parameter.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert optimizer.state[parameter]["step"].item() == 1
    assert counts == {"item": 1}


def test_what_a_program_keeps_in_the_state_stays(counts: Counter[str], modes: list[int]) -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])
    state: dict[Any, Any] = optimizer.state
    state["schedule"] = 3
    parameter.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert modes == [0]
    assert state["schedule"] == 3


def test_an_optimizer_of_a_class_of_the_program_keeps_the_mode(counts: Counter[str], modes: list[int]) -> None:
    class Reading(torch.optim.Adam):
        def _init_group(self, group: dict[str, Any], *args: Any) -> Any:
            group["params"][0].sum().item()
            return super()._init_group(group, *args)  # type: ignore[no-untyped-call]

    Reading([nn.Parameter(torch.ones(2))]).step()
    assert modes == [1]
    assert counts == {"item": 1}


def test_a_parameter_of_a_class_of_the_program_keeps_the_mode(counts: Counter[str], modes: list[int]) -> None:
    class Reading(nn.Parameter):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    torch.optim.Adam([Reading(torch.ones(2))]).step()
    assert modes == [1]
    assert not counts


def test_another_innermost_mode_keeps_both(counts: Counter[str], modes: list[int]) -> None:
    optimizer = torch.optim.Adam([nn.Parameter(torch.ones(2))])
    with torch.device("cpu"):
        optimizer.step()
    assert modes == [2]
    assert not counts


def test_steps_of_a_counted_program_run_without_the_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modes: list[int]
) -> None:
    monkeypatch.setenv(ENV_COUNT, "1")
    with watched(tmp_path, (exact.COUNTS, torch)):
        torch.optim.Adam([nn.Parameter(torch.ones(2))]).step()
    torch.optim.Adam([nn.Parameter(torch.ones(2))]).step()
    assert modes == [0, 0]
