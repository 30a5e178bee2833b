"""A round: its sides take turns in a drawn order, each as often; what goes wrong is one line."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from profiler.check.model import BASE, CANDIDATE, CONFIRM, CONTROL, MEASURE
from profiler.check.speed.resident import Resident
from profiler.check.speed.rounds import MOST_STEPS, Rounds
from profiler.core.errors import ProfilerError
from tests.check.speed.programs import MOMENTS, STEPPING, WORK, program


def rounds(folder: Path, base: str, candidate: str | None = None, **settings: object) -> Rounds:
    sources: Mapping[str, str] = {BASE: base, CANDIDATE: base if candidate is None else candidate}
    programs = {side: program(folder / side, source, side) for side, source in sources.items()}
    return Rounds(programs, folder / "runs", seed=1, **settings)  # type: ignore[arg-type]


SLOW = STEPPING.replace("work()\n", "work(200_000)\n")
"""Some steps make a turn."""


def test_a_round_has_as_many_turns_of_each_side_and_a_control_to_confirm(tmp_path: Path) -> None:
    maker = rounds(tmp_path, SLOW)
    one = maker.make(1, MEASURE)
    counts = {side: sum(turn.side == side for turn in one.turns) for side in (BASE, CANDIDATE, CONTROL)}
    assert counts[BASE] == counts[CANDIDATE] > 0 == counts[CONTROL]
    assert {len(turn.steps) for turn in one.turns} == {maker.steps}
    assert all(turn.tokens == 7 * maker.steps for turn in one.turns)
    more = maker.make(2, CONFIRM)
    assert len({sum(turn.side == side for turn in more.turns) for side in (BASE, CANDIDATE, CONTROL)}) == 1
    assert {len(turn.steps) for turn in more.turns} == {maker.steps}, "each round counts the same"
    assert [path.name for side in (BASE, CONTROL) for path in maker.runs[side]] == ["01-base", "02-base", "02-control"]


def test_one_runs_while_the_others_stand_still(tmp_path: Path) -> None:
    one = rounds(tmp_path, SLOW).make(1, MEASURE)
    ends = 0
    for turn in one.turns:
        assert turn.begin >= ends, "two sides ran at once"
        ends = turn.begin + turn.time


def test_short_steps_are_gathered_into_a_turn(tmp_path: Path) -> None:
    maker = rounds(tmp_path, WORK + "while True:\n    marks.step()\n", warmup=2)
    maker.make(1, MEASURE)
    assert 100 < maker.steps <= MOST_STEPS


def test_what_ends_a_step_may_come_late(tmp_path: Path) -> None:
    """Batches of a validation, then training: both sides, each in its own time."""
    late = MOMENTS + "for _ in range({}):\n    batch()\nwhile True:\n    batch()\n    work(100_000)\n    optimized()\n"
    maker = rounds(tmp_path, late.format(90), late.format(400), warmup=4)
    one = maker.make(1, MEASURE)
    assert set(maker.step_source.values()) == {"steps of SGD (train.py:2)"}
    assert {len(turn.steps) for turn in one.turns} == {maker.steps}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print('x')", r"candidate: it ended and no step of it was seen: mark its steps with profiler.step\(\)"),
        ("import sys; print('no data'); sys.exit(4)", r"candidate exited with 4: no data \(its output is in .*\)"),
        ("import os; os.kill(os.getpid(), 9)", r"candidate was ended by signal 9: it printed nothing"),
        ("raise OSError('CUDA error: out of memory')", r"candidate exited with 1: .*both sides are in memory at once"),
        ("raise OSError('Address already in use')", r"candidate exited with 1: .*both sides run at once"),
        (
            WORK + "for _ in range(30):\n    work(100_000)\n    marks.step()\n",
            r"candidate ended some \d+ steps after its start and a round needs about \d+, more where",
        ),
        ("import time; time.sleep(600)", r"candidate: no step was seen within 3 s: mark its steps with"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, source: str, said: str) -> None:
    maker = rounds(tmp_path, SLOW, textwrap.dedent(source), patience=3.0 if "sleep" in source else 60.0)
    with pytest.raises(ProfilerError, match=said) as caught:
        maker.make(1, MEASURE)
    assert caught.value.exit_code == 2
    assert maker.runs[BASE] == [], "a round that was not finished is none"


def test_who_is_not_admitted_takes_no_turn(tmp_path: Path) -> None:
    def admit(resident: Resident) -> None:
        raise ProfilerError(f"not {resident.program.side}")

    with pytest.raises(ProfilerError, match=r"not (base|candidate)"):
        rounds(tmp_path, SLOW, admit=admit).make(1, MEASURE)
