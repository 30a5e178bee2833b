"""Faults that are planted into a program are found at their line, and nothing else fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from profiler.check.counters.compare import overall
from profiler.check.model import FAIL
from tests.fakes.planted import (
    COMPILED,
    ON_CPU,
    PLANTS,
    PROGRAM,
    Gate,
    Planted,
    count_on_cpu,
    moves,
    plant,
    plant_on_cpu,
    report,
)

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="virtual devices need a machine without a GPU")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    return Gate(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    return Gate(tmp_path_factory.mktemp("planted"), ON_CPU, count_on_cpu)


@pytest.mark.parametrize("kind", PLANTS)
def test_a_planted_fault_is_named_also_where_an_unrelated_line_is_gone(gate: Gate, kind: str) -> None:
    number = 7 * list(PLANTS).index(kind) % 20
    assert gate.finds(plant(kind, number, removing=False))
    assert gate.finds(plant(kind, number, removing=True))


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.slow if index else ()) for index, kind in enumerate(COMPILED)],
)
def test_so_is_one_in_compiled_code_and_in_an_evaluation(on_cpu: Gate, kind: str) -> None:
    number = 7 * list(COMPILED).index(kind)
    assert on_cpu.finds(plant_on_cpu(kind, number, removing=False))
    assert on_cpu.finds(plant_on_cpu(kind, number + 1, removing=True))


def test_so_is_a_file_that_each_step_writes(on_cpu: Gate, tmp_path: Path) -> None:
    lines = ON_CPU.splitlines()
    at = lines.index("    optimizer.step()")
    lines.insert(at, f'    torch.save(model.state_dict(), "{tmp_path / "model.pt"}")')
    assert on_cpu.finds(Planted("\n".join(lines) + "\n", at + 1, "checkpoint_number"))


def test_an_evaluation_and_the_start_are_counted_apart(on_cpu: Gate) -> None:
    totals = {name: amount / on_cpu.base.steps for name, amount in on_cpu.base.totals.items()}
    assert (totals["evaluation_operators"], totals["evaluation_syncs"]) == (10, 1)
    assert totals["evaluation_flops"] == 2 * 16 * (8 * 16 + 16 * 4), "of two linear layers"
    assert totals["startup_operators"] > totals["operators"], "the first step, and what comes before it"
    lines = {line.number for line in on_cpu.base.lines if line.counter == "evaluation_operators"}
    texts = [ON_CPU.splitlines()[line - 1].strip() for line in sorted(lines)]
    assert texts[0] == "logits = model(data)"
    assert texts[-1] == 'statistics["validation"] = loss.item()'


@pytest.mark.parametrize("name", moves())
def test_what_is_renamed_or_moved_does_not_fail(gate: Gate, name: str) -> None:
    file, text = moves()[name]
    assert overall(gate.judge(text, file)) != FAIL


def test_the_same_program_does_not_fail(gate: Gate) -> None:
    assert overall(gate.judge(PROGRAM)) != FAIL


@pytest.mark.slow
def test_all_planted_faults(gate: Gate, on_cpu: Gate) -> None:
    found = report(gate, on_cpu)
    assert {found[kind] for kind in (*PLANTS, *COMPILED)} == {"20 of 20; with an unrelated line removed 20 of 20"}
    assert found["false FAIL, unchanged"] == "0 of 30"
    assert found["false FAIL, renamed or moved"] == "0 of 10"
