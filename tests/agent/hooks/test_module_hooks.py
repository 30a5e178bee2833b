"""Functions of the user that are hooks of modules are noted, and the modules work as before."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from profiler.agent.hooks import settings
from profiler.agent.patching import STATE
from tests.fakes.watched import watched

torch = pytest.importorskip("torch")


class Observer:
    def __init__(self) -> None:
        self.means: list[float] = []

    def __call__(self, module: Any, inputs: Any, output: Any) -> None:
        self.means.append(output.mean().item())

    def keep(self, module: Any, inputs: Any, output: Any) -> None:
        self.kept = output


class AnyName:
    """An object that answers to any name, and fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self, module: Any, inputs: Any, output: Any) -> None:
        output.detach()


def squares(scale: float, module: Any, inputs: Any, output: Any) -> Any:
    return sum(scale * part.detach().square() for part in output)


@torch.no_grad()  # type: ignore[untyped-decorator]
def spread(module: Any, inputs: Any, output: Any) -> None:
    output.std()


def test_what_is_registered(tmp_path: Path) -> None:
    with watched(tmp_path, (settings.MODULE_HOOKS, sys.modules["torch.nn.modules.module"])):
        observer, layer = Observer(), torch.nn.Linear(2, 2)
        handles = [layer.register_forward_hook(hook) for hook in (observer, observer.keep, observer.keep)]
        layer.register_forward_hook(partial(squares, 2.0))
        layer.register_forward_hook(AnyName())
        layer.register_forward_hook(spread)
        layer.register_forward_hook(lambda module, inputs, output: observer.means.append(float(output.detach().sum())))
        layer.register_forward_pre_hook(print)
        with torch.no_grad():
            layer.weight.fill_(1.0)
            layer.bias.zero_()
        assert layer(torch.ones(1, 2)).tolist() == [8.0, 8.0]
        assert observer.means == [2.0, 16.0]
        for handle in handles:
            handle.remove()
        layer(torch.ones(1, 2))
        assert observer.means == [2.0, 16.0, 16.0]
        assert STATE.recorder is not None
        noted = STATE.recorder.hook_facts["module_hooks"]
    assert {each["file"] for each in noted} == {__file__}
    functions = {each["function"]: each["is_outside"] for each in noted}
    kept = {"Observer.__call__": True, "Observer.keep": False, "AnyName.__call__": True, "spread": True}
    assert functions == {
        **kept, "squares": False, "test_what_is_registered.<locals>.<lambda>": True,
    }, "the result of squares is the output"  # fmt: skip


def test_how_often_and_where_a_hook_is_registered(tmp_path: Path) -> None:
    with watched(tmp_path, (settings.MODULE_HOOKS, sys.modules["torch.nn.modules.module"])):
        layer = torch.nn.Linear(2, 2)
        for _ in range(5):
            layer.register_forward_hook(spread)
        assert STATE.recorder is not None
        assert STATE.recorder.hook_facts["module_hooks"][0]["registered"]["file"] == __file__
        for _ in range(3):
            layer.register_forward_pre_hook(spread).remove()
        (noted,) = STATE.recorder.hook_facts["module_hooks"]
    assert noted["registrations"] == 8
    assert "registered" not in noted, "there are two such lines"
    counts = [(each["registrations"], each["held"]) for each in noted["times"]]
    assert counts == [(1, 1), (2, 2), (4, 4), (8, 6)], "of the last three, each was removed before the next one"
    assert [each["time"] for each in noted["times"]] == sorted(each["time"] for each in noted["times"])


def library(folder: Path) -> Any:
    """A library that registers hooks."""
    (folder / "site-packages").mkdir()
    file = folder / "site-packages" / "watchkit.py"
    file.write_text(
        "def watch(layer, optimizer):\n"
        "    layer.register_forward_hook(lambda module, inputs, output: None)\n"
        "    layer.weight.register_hook(lambda gradient: None)\n"
        "    layer.weight.register_post_accumulate_grad_hook(lambda weight: None)\n"
        "    optimizer.register_step_post_hook(lambda optimizer, args, kwargs: None)\n"
    )
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names["watch"]


def test_the_line_that_registers_the_hooks_of_a_library(tmp_path: Path) -> None:
    watch, modules = library(tmp_path), ("torch", "torch.nn.modules.module", "torch.optim.optimizer")
    with watched(tmp_path, *((settings.MODULE_HOOKS, sys.modules[name]) for name in modules)):
        layer = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        watch(layer, optimizer)
        seen: list[Any] = []
        layer.bias.register_hook(seen.append)
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        assert STATE.recorder is not None
        noted = STATE.recorder.hook_facts["module_hooks"]
    assert [value.tolist() for value in seen] == [[1.0]]
    assert [each["line"] for each in noted] == [2, 3, 4, 5], "a built-in function has no line"
    lines = Path(__file__).read_text().splitlines()
    assert {lines[each["registered"]["line"] - 1].strip() for each in noted} == {"watch(layer, optimizer)"}
    assert not any("is_outside" in each for each in noted), "they are none of the program's"


def test_what_cannot_be_called_is_registered_as_without_recording(tmp_path: Path) -> None:
    layer = torch.nn.Linear(2, 2)
    with watched(tmp_path, (settings.MODULE_HOOKS, sys.modules["torch.nn.modules.module"])):
        layer.register_forward_hook(None)
        assert STATE.recorder is not None
        assert "module_hooks" not in STATE.recorder.hook_facts
    assert list(layer._forward_hooks.values()) == [None]


def test_compiled_code_registers_hooks(tmp_path: Path) -> None:
    def doubled(values: Any) -> Any:
        result = values * 3
        result.register_hook(lambda gradient: gradient * 2)
        return result.sum()

    with watched(tmp_path, (settings.MODULE_HOOKS, torch)):
        values = torch.ones(2, requires_grad=True)
        torch.compile(doubled, backend="eager", fullgraph=True)(values).backward()
    assert values.grad.tolist() == [6.0, 6.0]
