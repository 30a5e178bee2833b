"""Which reads on the CPU count: those of tensors that would lie on the program's device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from profiler.exact.counting import ReadMode

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(DEVICE == "cuda", reason="the program's device is the CPU")


@contextmanager
def reads() -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()
    with ReadMode(lambda event, _: counts.update([event.name])):
        yield counts


def test_a_loss_descends_from_parameters() -> None:
    layer = nn.Linear(2, 1)
    with reads() as counts:
        loss = layer(torch.ones(3, 2)).mean()
        loss.item()
        loss.detach().tolist()
        float(layer.weight.sum())
    assert counts == {"item": 1, "tolist": 1, "float": 1}


def test_numbers_that_torch_takes_from_tensors_count() -> None:
    layer = nn.Linear(2, 1)
    with reads() as counts:
        loss = layer(torch.ones(3, 2)).mean().detach()
        torch.sub(loss, loss, alpha=loss)
        torch.full((2,), loss)
        bound = torch.ones(4).to(DEVICE).argmax()
        torch.arange(4.0)[bound : bound + 1]
        torch.sub(loss, loss, alpha=torch.tensor(2.0))
    assert counts == {"sub": 1, "full": 1, "slice": 2}


def test_data_of_the_host_does_not_count() -> None:
    with reads() as counts:
        indices = torch.randperm(8)
        indices.tolist()
        torch.tensor([1.0, 2.0]).sum().item()
        bool((indices > 3).any())
    assert not counts


def test_what_a_library_makes_on_the_host_does_not_count() -> None:
    """Adam counts its steps in tensors that it makes on the CPU by name, whatever its parameters are on."""
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(layer.parameters(), foreach=False)
    with reads() as counts:
        layer(torch.ones(3, 2)).mean().backward()
        optimizer.step()
        optimizer.step()
    assert not counts


def test_what_is_moved_to_the_device_counts() -> None:
    with reads() as counts:
        x = torch.ones(4).to(DEVICE)
        (x * 2).sum().item()
        x[x > 0]
        torch.zeros(3, device=DEVICE).max().item()
    assert counts == {"item": 2, "mask index": 1}


def test_a_copy_to_the_host_is_one_wait() -> None:
    layer = nn.Linear(2, 1)
    with reads() as counts:
        loss = layer(torch.ones(3, 2)).mean().detach().cpu()
        loss.item()
        layer.weight.detach().sum().to("cpu").item()
    assert counts == {"cpu": 1, "to": 1}


def test_a_part_that_is_moved_to_the_device_does_not_move_its_source() -> None:
    with reads() as counts:
        source = torch.arange(8.0)
        part = source[:4].to(DEVICE)
        source.sum().item()
        source[5].item()
    assert not counts
    with reads() as counts:
        part.sum().item()
        part[1].item()
        part[2:].max().tolist()
    assert counts == {"item": 2, "tolist": 1}


def test_a_part_that_is_copied_to_the_host_does_not_move_its_source() -> None:
    source = nn.Linear(2, 8).weight
    with reads() as counts:
        result = source * 2
        part = result[:4].detach().cpu()
        part[1, 0].item()
        part.sum().item()
        next(iter(part.unbind())).tolist()
    assert counts == {"cpu": 1}
    with reads() as counts:
        result.sum().item()
        result[0, 0].item()
    assert counts == {"item": 2}


def test_gradients_of_a_moved_model_count() -> None:
    with reads() as counts:
        layer = nn.Linear(2, 1).to(DEVICE)
        layer(torch.ones(3, 2)).mean().backward()
        assert layer.weight.grad is not None
        layer.weight.grad.norm().item()
        layer.weight.detach().sum().item()
    assert counts == {"item": 2}


def test_gradients_count() -> None:
    layer = nn.Linear(2, 1)
    with reads() as counts:
        layer(torch.ones(3, 2)).mean().backward()
        assert layer.weight.grad is not None
        layer.weight.grad.norm().item()
    assert counts == {"item": 1}


def test_results_are_those_of_the_program() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    with reads():
        y = x.to(DEVICE)
        assert y is x
        assert y.device == torch.device(DEVICE)
        assert str(y) == str(x)


def test_reads_between_the_graphs_of_a_compiled_function_count() -> None:
    @torch.compile(backend="eager")
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    counts: Counter[str] = Counter()
    mode = ReadMode(lambda event, _: counts.update([event.name]))
    with mode:
        result = mode.call_compiled(function, (torch.ones(2),), {})
        result.sum().item()
        mode.read()  # outside of compiled functions the mode counts reads itself
    assert counts == {"item": 1}
