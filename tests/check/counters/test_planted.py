"""Faults that are planted into a program are found at their line, and nothing else fails."""

from __future__ import annotations

import pytest
import torch

from profiler.check.counters.compare import overall
from profiler.check.model import FAIL
from tests.fakes.planted import PLANTS, PROGRAM, Gate, moves, plant, report

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="virtual devices need a machine without a GPU")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    return Gate(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("kind", PLANTS)
def test_a_planted_fault_is_named_also_where_an_unrelated_line_is_gone(gate: Gate, kind: str) -> None:
    number = 7 * list(PLANTS).index(kind) % 20
    assert gate.finds(plant(kind, number, removing=False))
    assert gate.finds(plant(kind, number, removing=True))


@pytest.mark.parametrize("name", moves())
def test_what_is_renamed_or_moved_does_not_fail(gate: Gate, name: str) -> None:
    file, text = moves()[name]
    assert overall(gate.judge(text, file)) != FAIL


def test_the_same_program_does_not_fail(gate: Gate) -> None:
    assert overall(gate.judge(PROGRAM)) != FAIL


@pytest.mark.slow
def test_all_planted_faults(gate: Gate) -> None:
    found = report(gate)
    assert {found[kind] for kind in PLANTS} == {"20 of 20; with an unrelated line removed 20 of 20"}
    assert found["false FAIL, unchanged"] == "0 of 30"
    assert found["false FAIL, renamed or moved"] == "0 of 10"
