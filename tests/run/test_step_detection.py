"""The same boundary ends a step online, at load, in `monitor` and in the speed test."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.agent.recorder import Recorder
from profiler.record import live_steps
from profiler.record.live_steps import StepRate
from profiler.run import store, tables
from profiler.run.load import load
from profiler.run.model import StepDefinition, StepKind
from profiler.run.step_detection import MIN_BATCHES, choose_boundary, define_step
from profiler.run.tables import BoundaryKind
from tests.recorded.directories import write_manifest

ADAM, SGD, LOADER = "0 Adam (train.py:9)", "0 SGD (train.py:10)", "1 DataLoader (train.py:7)"
BACKWARD = "2 backward (train.py:12)"
GRADIENTS = f"{int(BoundaryKind.BACKWARD)} gradients (train.py:14)"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], None),
        ([LOADER, ADAM] * 2, None),
        ([LOADER, ADAM] * 3, ADAM),
        ([LOADER] * 8 + [ADAM], None),
        (([LOADER] * 8 + [ADAM]) * 3, ADAM),  # gradients of eight batches accumulated
        ([LOADER, ADAM, SGD] * 3, SGD),  # two optimizers in turns: the last ends the round
        ([LOADER] * (MIN_BATCHES - 1), None),
        ([LOADER] * MIN_BATCHES, LOADER),
        ([LOADER, ADAM, tables.MARK], tables.MARK),
        (([BACKWARD] * 8 + [ADAM]) * 3, ADAM),
        ([LOADER, BACKWARD] * (MIN_BATCHES - 1), None),
        (([LOADER] * 4 + [BACKWARD]) * MIN_BATCHES, BACKWARD),  # three of four batches are of a validation
        ([GRADIENTS] * MIN_BATCHES, GRADIENTS),
        (([GRADIENTS] * 5 + [BACKWARD]) * MIN_BATCHES, BACKWARD),  # an inner loop
    ],
)
def test_online_choice(keys: list[str], expected: str | None) -> None:
    assert choose_boundary(keys) == expected


@pytest.mark.parametrize(
    ("key", "definition"),
    [
        (ADAM, StepDefinition(StepKind.OPTIMIZER, (("Adam (train.py:9)",),))),
        (BACKWARD, StepDefinition(StepKind.BACKWARD, (("backward (train.py:12)",),))),
        (LOADER, StepDefinition(StepKind.LOADER, (("DataLoader (train.py:7)",),))),
        (tables.MARK, StepDefinition(StepKind.MARKED)),
    ],
)
def test_definition_of_a_choice(key: str, definition: StepDefinition) -> None:
    assert define_step(key) == definition


OPTIMIZER = BoundaryKind.OPTIMIZER


@pytest.mark.parametrize("tail", [1 << 20, 28], ids=["whole table", "tail of a long table"])
@pytest.mark.parametrize(
    ("cycle", "leader"),
    [
        ((SGD, ADAM), ADAM),  # alternating
        ((SGD, SGD, SGD, ADAM), ADAM),  # a GAN
        ((ADAM, SGD, LOADER), SGD),
        ((LOADER,), LOADER),
        ((LOADER, LOADER, BACKWARD), BACKWARD),
        ((BACKWARD, BACKWARD, ADAM), ADAM),
        ((LOADER, GRADIENTS), GRADIENTS),
        ((GRADIENTS, GRADIENTS, BACKWARD), BACKWARD),
        ((GRADIENTS, ADAM), ADAM),
    ],
)
def test_load_monitor_and_speed_test_agree(
    cycle: tuple[str, ...], leader: str, tail: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where `monitor` begins in the middle of a round, because it reads only the end of a long table."""
    store.create(tmp_path / "run")
    write_manifest(tmp_path / "run", state="running")
    recorder = Recorder(tmp_path / "run", "light")
    keys = [*cycle * 24, *cycle[: len(cycle) // 2]]
    repeats = 4 if leader in (LOADER, BACKWARD, GRADIENTS) else 1
    for key in keys * repeats:
        kind, _, name = key.partition(" ")
        recorder.record_boundary(BoundaryKind(int(kind)), name)
    recorder.flush()
    monkeypatch.setattr(live_steps, "_FIRST_BYTES", tail * (tables.packer("boundaries").size + 1))

    name = leader.partition(" ")[2]
    loaded = load(tmp_path / "run")
    assert loaded.step is not None
    assert loaded.step.phases == ((name,),)
    watched, _ = StepRate(tmp_path / "run").read(recorder.boundary[0])
    assert watched is not None
    assert (watched.step.kind, watched.step.phases) == (loaded.step.kind, loaded.step.phases)
    assert choose_boundary(keys * repeats) == leader
