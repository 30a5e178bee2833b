"""What operators, floating-point operations and memory are counted, and at which line."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

import pytest
import torch
from torch import Tensor, nn

from profiler.exact import private_api
from profiler.exact.marks import MemoryModel
from profiler.exact.operators import OperatorCounter, OperatorKind, OperatorMode, uncounted


class Counted:
    """The counts of a block of this file, by line."""

    def __init__(self) -> None:
        self.counter = OperatorCounter(_line, lambda file: file == __file__, lambda: None)
        self.operators: Counter[tuple[int, str]] = Counter()
        self.flops: Counter[int] = Counter()
        self.kinds: dict[str, OperatorKind] = {}

    def take(self) -> None:
        for operator, site, calls, amount in self.counter.take():
            self.operators[site, operator.name.removeprefix("aten::")] += calls
            self.flops[site] += amount
            self.kinds[operator.name.removeprefix("aten::")] = operator.kind

    def at(self, line: int) -> set[str]:
        return {name for site, name in self.operators if site == line}


def _line(frame: FrameType) -> int:
    return frame.f_lineno


def here() -> int:
    """The line that calls this."""
    return sys._getframe(1).f_lineno


@contextmanager
def counting() -> Iterator[Counted]:
    counted = Counted()
    mode: Any = OperatorMode(counted.counter)
    with mode:
        yield counted
    counted.take()


def test_an_operator_is_counted_at_the_line_that_calls_a_library() -> None:
    layer, x = nn.Linear(4, 2), torch.randn(3, 4)
    with counting() as counted, torch.no_grad():
        layer(x), layer(x)
        line = here() - 1
    assert counted.operators[line, "addmm"] == 2
    assert {site for site, _ in counted.operators} == {line}


def test_operators_of_a_backward_pass_belong_to_the_forward_line() -> None:
    layer, x = nn.Linear(4, 2), torch.randn(3, 4)
    with counting() as counted:
        y = layer(x)
        forward = here() - 1
        loss = y.exp().sum()
        second = here() - 1
        loss.backward()
        backward = here() - 1
    assert {"addmm", "mm"} <= counted.at(forward)
    assert {"exp", "mul", "sum"} <= counted.at(second)
    assert "mm" not in counted.at(backward)
    assert "ones_like" in counted.at(backward)


class Squared(torch.autograd.Function):
    """A function whose backward pass is code of the program."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        ctx.line[0] = here() + 1
        return gradient.cos() * x


def test_operators_of_a_function_of_the_program_belong_to_its_backward_line() -> None:
    line: list[int] = [0]
    Squared.line = line  # type: ignore[attr-defined]
    x = torch.randn(3, requires_grad=True)
    with counting() as counted:
        y = Squared.apply(x)
        y.grad_fn.line = line
        y.sum().backward()
    assert line[0]
    assert "cos" in counted.at(line[0])


def test_callbacks_at_the_end_of_a_backward_pass_have_the_line_that_begins_it() -> None:
    x = torch.randn(3, requires_grad=True)

    def queue(_: Tensor) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(x.cosh)  # a builtin, without a frame of its own

    with counting() as counted:
        y = x.exp()
        y.register_hook(queue)
        y.sum().backward()
        backward = here() - 1
    assert "cosh" in counted.at(backward)


def test_floating_point_operations_follow_the_formula_of_torch() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 5))
    x = torch.randn(2, 3, 8, 8)
    with counting() as counted:
        model(x).sum().backward()
    theirs = FlopCounterMode(display=False)
    with theirs:
        model(x).sum().backward()
    assert sum(counted.flops.values()) == theirs.get_total_flops() > 0


def test_attention_on_the_cpu_has_as_many_floating_point_operations_as_on_cuda() -> None:
    q = torch.randn(2, 4, 16, 8, requires_grad=True)
    with counting() as counted:
        nn.functional.scaled_dot_product_attention(q, q, q)
        line = here() - 1
    assert counted.flops[line] == 2 * 2 * (2 * 4) * 16 * 16 * 8  # two products of 16x8 and 8x16 for each of 8 heads


def test_views_and_bare_allocations_launch_nothing() -> None:
    x = torch.randn(4, 4)
    with counting() as counted:
        x.t(), x.view(16), torch.empty(3), x.clone()
    views = {name for name, kind in counted.kinds.items() if kind is OperatorKind.VIEW}
    assert views == {"t", "view", "empty"}
    assert counted.kinds["clone"] is OperatorKind.OPERATOR


def test_a_full_log_is_told() -> None:
    told: list[int] = []
    counter = OperatorCounter(_line, lambda _: True, lambda: told.append(len(list(counter.take()))))
    x = torch.zeros(())
    mode: Any = OperatorMode(counter)
    with mode, pytest.MonkeyPatch.context() as patch:
        patch.setattr("profiler.exact.operators._MAX_CALLS", 10)
        for _ in range(25):
            x.add_(1)
    assert len(told) == 2


class Wrapper(Tensor):
    """A tensor without memory of its own, as quantized and nested tensors are: each operator computes with another."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Self:
        made: Self = Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*(each.held if isinstance(each, cls) else each for each in args), **(kwargs or {}))
        return cls(result) if isinstance(result, Tensor) else result


def test_what_does_not_count_computes_the_same() -> None:
    wrapped = Wrapper(torch.ones(3))
    with counting() as counted:
        with uncounted():
            copied: Any = wrapped.clone()
            plain = torch.ones(2) * 2
        plain.cosh()
        line = here() - 1
    assert torch.equal(copied.held, torch.ones(3))
    assert torch.equal(plain, torch.full((2,), 2.0))
    assert counted.operators == {(line, "cosh"): 1}


def test_operators_that_two_threads_meet_at_once_have_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = OperatorCounter(_line, lambda _: True, lambda: None)
    first, second = torch.ops.aten.cosh.default, torch.ops.aten.sinh.default
    binding: Callable[[Any], Any] = private_api.binding

    def meet_another(operator: Any) -> Any:
        """Another thread describes an operator while this one does."""
        if operator is first:
            other = threading.Thread(target=counter.describe, args=(second,))
            other.start()
            other.join()
        return binding(operator)

    monkeypatch.setattr(private_api, "binding", meet_another)
    counter.describe(first)
    mode: Any = OperatorMode(counter)
    with mode:
        torch.ones(1).cosh(), torch.ones(1).sinh()
    counts = {each.operator.name: each.calls for each in counter.take()}
    assert counts["aten::cosh"] == counts["aten::sinh"] == 1


# ---------------------------------------------------------------- memory


def test_memory_of_results_is_counted_in_blocks_until_it_is_freed() -> None:
    memory = MemoryModel()
    first = torch.zeros(100)
    memory.add(first, 1)
    memory.add(first.view(10, 10), 2)  # the same storage
    second = torch.zeros(50)
    memory.add([second], 3)
    changes = memory.changes()
    assert changes.allocated == {1: (1, 512), 3: (1, 512)} == changes.growth
    assert changes.peak == {1: 512, 3: 512}
    del first
    third = torch.zeros(25)
    memory.add(third, 4)
    changes = memory.changes()
    assert changes.allocated == {4: (1, 512)}
    assert changes.growth == {1: (-1, -512), 4: (1, 512)}
    assert changes.peak == {1: 512, 3: 512}  # before the first was freed


def test_the_peak_is_within_the_time_between_two_calls() -> None:
    memory = MemoryModel()
    for size in (10, 1000, 20):
        memory.add(torch.zeros(size), size)  # freed at once
    changes = memory.changes()
    assert changes.peak == {1000: 4096}
    assert {site: amount for site, amount in changes.growth.items() if any(amount)} == {}
    assert memory.changes().peak == {}
