"""Which way of the forward pass is taken: the one that is measured to be fastest, once a size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import pytest
import torch

from reference_trainer.ssm import fastest, forward
from tests.reference_trainer.ssm.forward_reference import CPU

Clock = list[tuple[fastest.Shape, bool]]
CURED = [way for way in forward.WAYS if way != forward.LOOP]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Measurements that were asked for; powers are the fastest without a gradient, scan with."""
    requested = []

    def seconds(ways: list[str], shape: fastest.Shape, device: torch.device, *, backward: bool) -> dict:
        requested.append((shape, backward))
        quick = forward.SCAN if backward else forward.POWERS
        # a pass that something else disturbed does not decide
        return {way: [1.0, 1.0, 9.0] if way == quick else [2.0, 2.0, 0.5] for way in ways}

    monkeypatch.setattr(fastest, "seconds", seconds)
    monkeypatch.setattr(fastest, "_chosen", {})
    return requested


def test_the_fastest_is_measured_once_for_sizes_of_the_same_power_of_two(clock: Clock) -> None:
    assert [fastest.fastest((10, 4, 24, 128), CPU, backward=True) for _ in range(3)] == [forward.SCAN] * 3
    assert fastest.fastest((9, 4, 30, 100), CPU, backward=True) == forward.SCAN
    assert clock == [((8, 4, 32, 128), True)]
    fastest.fastest((100, 4, 24, 128), CPU, backward=True)
    assert fastest.fastest((10, 4, 24, 128), CPU, backward=False) == forward.POWERS, "the gradient makes a difference"
    assert len(clock) == 3


@pytest.mark.parametrize("backward", [False, True])
def test_the_choice_is_measured(monkeypatch: pytest.MonkeyPatch, backward: bool) -> None:
    """All ways except the one as found are measured in turns, without drawing from a random generator."""
    monkeypatch.setattr(fastest, "_chosen", {})
    monkeypatch.setattr(fastest, "ENOUGH_S", float("inf"))
    requested = []
    run = forward.respond
    monkeypatch.setattr(
        forward,
        "respond",
        lambda *arguments, **options: [requested.append(arguments[2]), run(*arguments, **options)][1],
    )
    state = torch.get_rng_state()
    assert fastest.fastest((2, 2, 8, 4), CPU, backward=backward) in CURED
    ways = [forward.POWERS, forward.FFT] if backward else [forward.SCAN, forward.POWERS, forward.FFT]
    assert requested == ways * (fastest.ROUNDS + 1)  # with the gradient, scan goes another way
    assert torch.equal(torch.get_rng_state(), state)


def test_passes_that_take_long_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "ENOUGH_S", 0.0)
    times = fastest.seconds([forward.SCAN, forward.FFT], fastest.Shape(2, 2, 8, 4), CPU, backward=True)
    assert [len(of_way) for of_way in times.values()] == [1, 1]


def test_what_would_take_too_much_memory_is_not_tried(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "LARGEST_POWERS", 4 * 8 * 8 * 4 - 1)
    assert fastest.fastest((8, 2, 8, 4), CPU, backward=False) == forward.SCAN
    assert fastest.fastest((4, 2, 8, 4), CPU, backward=False) == forward.POWERS


def test_ways_that_do_not_agree_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "_chosen", {})
    right = forward._convolve
    monkeypatch.setattr(forward, "_convolve", lambda inputs, responses: 1.01 * right(inputs, responses))
    with pytest.raises(RuntimeError, match="fft and scan differ by"):
        fastest.fastest((2, 2, 8, 4), CPU, backward=True)


@pytest.mark.parametrize("backward", [False, True])
def test_the_ways_agree_at_the_smallest_sizes(monkeypatch: pytest.MonkeyPatch, backward: bool) -> None:
    """One student of dimension 1 once had parameters whose outputs were all 0, and 0 / 0 is no agreement."""
    monkeypatch.setattr(fastest, "ENOUGH_S", 0.0)
    for shape in product((1, 2), repeat=4):
        parameters, inputs = fastest._example(fastest.Shape(*shape), CPU, backward=backward)
        assert fastest._pass(parameters, inputs, forward.SCAN, backward=backward).abs().max() > 0, shape
        fastest.seconds(CURED, fastest.Shape(*shape), CPU, backward=backward)


class Products:
    """Stands for torch.backends.cuda.matmul."""

    allow_tf32 = True


def test_agreement_is_of_whole_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 is off while ways are compared, and what it was afterwards."""
    monkeypatch.setattr(torch.backends.cuda, "matmul", Products)
    with fastest._without_tf32(torch.device("cuda", 0)):
        assert not Products.allow_tf32
    assert Products.allow_tf32
    with fastest._without_tf32(CPU):
        assert Products.allow_tf32


def test_ways_are_timed_with_the_products_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[bool] = []
    observed: list[bool] = []

    @contextmanager
    def whole(_: torch.device) -> Iterator[None]:
        inside.append(True)
        yield
        inside.clear()

    run = fastest._pass
    monkeypatch.setattr(fastest, "ENOUGH_S", float("inf"))
    monkeypatch.setattr(fastest, "ROUNDS", 2)
    monkeypatch.setattr(fastest, "_without_tf32", whole)
    monkeypatch.setattr(
        fastest, "_pass", lambda *arguments, **options: [observed.append(bool(inside)), run(*arguments, **options)][1]
    )
    times = fastest.seconds([forward.SCAN, forward.FFT], fastest.Shape(2, 2, 8, 4), CPU, backward=False)
    assert observed == [True] * 2 + [False] * 4
    assert [len(of_way) for of_way in times.values()] == [2, 2]


def test_a_choice_that_was_taken_over_is_not_measured(clock: Clock) -> None:
    fastest.fastest((8, 2, 8, 4), CPU, backward=True)
    created = fastest.choices()
    [key] = created
    assert [type(part) for part in key] == [str, bool, tuple], "a process that hands them on need not load torch"
    fastest._chosen.clear()
    fastest.adopt(created)
    assert fastest.fastest((8, 2, 8, 4), CPU, backward=True) == forward.SCAN
    assert len(clock) == 1
