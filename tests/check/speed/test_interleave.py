"""A round: blocks of all sides in random order, equally many, one running at a time."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from profiler.check.model import BASE, CANDIDATE, CONFIRM, LOOK, MEASURE, Conditions, StepBlock
from profiler.check.speed import interleave
from profiler.check.speed.controlled_process import ControlledProcess
from profiler.check.speed.interleave import MAX_STEPS, RoundRunner, SystemLoad, block_order, start_order
from profiler.core.errors import ProfilerError
from tests.check.speed.programs import MOMENTS, STEPPING, WORK, program

SLOW = STEPPING.replace("work()\n", "work(20_000)\n")
"""A block has a few steps."""


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleave, "BLOCK_S", 0.005)


def runner(folder: Path, base: str, candidate: str | None = None, **settings: object) -> RoundRunner:
    sources: Mapping[str, str] = {BASE: base, CANDIDATE: base if candidate is None else candidate}
    programs = {side: program(folder / side, source, side) for side, source in sources.items()}
    return RoundRunner(programs, folder / "runs", seed=1, **settings)  # type: ignore[arg-type]


def test_rounds_of_both_kinds_have_as_many_blocks_of_each_side(tmp_path: Path) -> None:
    rounds = runner(tmp_path, SLOW)
    first = rounds.run(1, MEASURE)
    counts = {side: sum(block.side == side for block in first.blocks) for side in (BASE, CANDIDATE)}
    assert counts[BASE] == counts[CANDIDATE] > 0
    assert {len(block.steps) for block in first.blocks} == {rounds.steps}
    assert all(block.tokens == 7 * rounds.steps for block in first.blocks)
    end = 0
    for block in first.blocks:
        assert block.begin >= end, "two sides ran at once"
        end = block.begin + block.time
    second = rounds.run(2, CONFIRM)
    assert len({sum(block.side == side for block in second.blocks) for side in (BASE, CANDIDATE)}) == 1
    assert {len(block.steps) for block in second.blocks} == {rounds.steps}, "all rounds have the same blocks"
    assert (first.slots, second.slots) == ((BASE, CANDIDATE), (BASE, CANDIDATE)), "the second would be the other way"
    names = [path.name for side in (BASE, CANDIDATE) for path in rounds.runs[side]]
    assert names == ["01-base", "02-base", "01-candidate", "02-candidate"]


def test_short_steps_are_gathered_into_a_block(tmp_path: Path) -> None:
    rounds = runner(tmp_path, WORK + "while True:\n    marks.step()\n", warmup=2)
    rounds.run(1, MEASURE)
    assert 10 < rounds.steps <= MAX_STEPS


def test_a_round_of_limited_time_has_shorter_and_fewer_blocks(tmp_path: Path) -> None:
    rounds = runner(tmp_path, WORK + "while True:\n    marks.step()\n", warmup=2, round_seconds=0.001)
    result = rounds.run(1, MEASURE)
    assert rounds.steps == 1
    assert len(result.blocks) == 2 * interleave.MIN_BLOCKS


def test_a_round_of_limited_time_fits_into_a_program_that_ends(tmp_path: Path) -> None:
    ends = WORK + "for _ in range(60):\n    marks.step()\n"
    rounds = runner(tmp_path, ends, warmup=10, round_seconds=1000.0, program_steps=60, may_end=True)
    result = rounds.run(1, MEASURE)
    assert rounds.steps > 1
    assert len(result.blocks) >= 2 * interleave.MIN_BLOCKS


def test_a_round_that_looks_for_rare_steps_has_more_steps_and_may_end_early(tmp_path: Path) -> None:
    rounds = runner(tmp_path, WORK + "while True:\n    marks.step()\n", warmup=2, round_seconds=0.001)
    rounds.run(1, MEASURE)
    looked = rounds.run(1, LOOK, look=(50, 60.0))
    assert len(looked.blocks) == 100, "50 blocks of one step of each side"
    assert len(rounds.run(2, LOOK, look=(50, 0.0)).blocks) == 0, "its time is over"
    assert [path.name for path in rounds.runs[BASE]] == ["01-base"], "its runs are not compared"
    rounds = runner(
        tmp_path / "short", WORK + "for _ in range(120):\n    marks.step()\n", warmup=2, round_seconds=0.001
    )
    rounds.run(1, MEASURE)
    assert 0 < len(rounds.run(1, LOOK, look=(1000, 60.0)).blocks) < 240, "as many as the program takes"


def test_time_without_a_core_is_left_out_of_a_programs_steps() -> None:
    block = StepBlock(BASE, 5, (100, 300), 7)
    assert interleave._without(0, block) == block
    assert interleave._without(100, block) == StepBlock(BASE, 5, (75, 225), 7)
    assert interleave._without(900, block).time == 0


@pytest.mark.parametrize("is_throttled", [False, True])
def test_time_without_a_core_stays_where_a_quota_of_the_program_was_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_throttled: bool
) -> None:
    readings = itertools.count()
    monkeypatch.setattr(interleave, "throttled_seconds", lambda: next(readings) if is_throttled else None)
    monkeypatch.setattr(interleave, "_without", lambda _, block: replace(block, steps=(0,) * len(block.steps)))
    result = runner(tmp_path, SLOW, is_alone=True).run(1, MEASURE)
    assert all((block.time > 0) is is_throttled for block in result.blocks)


def test_the_event_that_ends_a_step_may_appear_late_and_at_another_time_on_each_side(tmp_path: Path) -> None:
    late = MOMENTS + "for _ in range({}):\n    batch()\nwhile True:\n    batch()\n    work(10_000)\n    optimized()\n"
    rounds = runner(tmp_path, late.format(90), late.format(400), warmup=4)
    result = rounds.run(1, MEASURE)
    assert {len(block.steps) for block in result.blocks} == {rounds.steps}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("print('x')", r"candidate: .*profiler.step\(\)"),
        ("import sys; print('no data'); sys.exit(4)", r"candidate exited with 4: no data \(its output is in .*\)"),
        ("import os; os.kill(os.getpid(), 9)", r"candidate was ended by signal 9"),
        ("raise OSError('CUDA error: out of memory')", r"candidate exited with 1: .*both sides are in memory at once"),
        ("raise OSError('Address already in use')", r"candidate exited with 1: .*both sides run at once"),
        (WORK + "for _ in range(30):\n    work(100_000)\n    marks.step()\n", r"candidate ended about \d+ steps after"),
        ("import time; time.sleep(600)", r"(base|candidate): no step was seen within 0 s"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, source: str, message: str) -> None:
    rounds = runner(tmp_path, SLOW, textwrap.dedent(source), patience=0.0 if "sleep" in source else 60.0)
    with pytest.raises(ProfilerError, match=message) as caught:
        rounds.run(1, MEASURE)
    assert caught.value.exit_code == 2
    assert rounds.runs[BASE] == [], "a round that was not completed has no runs"


def test_a_process_that_is_not_admitted_ends_the_round(tmp_path: Path) -> None:
    def admit(process: ControlledProcess) -> None:
        raise ProfilerError(f"not {process.program.side}")

    with pytest.raises(ProfilerError, match=r"not (base|candidate)"):
        runner(tmp_path, SLOW, admit=admit).run(1, MEASURE)


@pytest.mark.parametrize("blocks", [1, 15, 24])
def test_every_side_has_as_many_blocks(blocks: int) -> None:
    order = block_order(blocks, Random(1))
    assert (order.count(BASE), order.count(CANDIDATE)) == (blocks, blocks)


def test_blocks_are_balanced() -> None:
    order = [side[0] for side in block_order(24, Random(2))]
    assert {"".join(order[at : at + 4]) for at in range(0, len(order), 4)} == {"bccb", "cbbc"}


def test_the_start_order_alternates_from_round_to_round_and_is_swapped_to_confirm() -> None:
    for swapped, firsts in ((False, [BASE, CANDIDATE]), (True, [CANDIDATE, BASE])):
        orders = [start_order(number, swapped=swapped) for number in range(1, 9)]
        assert [order[0] for order in orders] == firsts * 4


def test_load_steal_and_throttling(tmp_path: Path) -> None:
    stat, loadavg = tmp_path / "stat", tmp_path / "loadavg"
    stat.write_text("cpu 100 0 0 100 0 0 0 10 5 5\ncpu0 1 2\n")
    load = SystemLoad(lambda: ("GPU 0: power cap",), tmp_path)
    for runnable in (4, 2):
        loadavg.write_text(f"0.5 0.4 0.3 {runnable}/200 17\n")
        load.sample()
    stat.write_text("cpu 160 0 0 120 0 0 0 30 9 9\ncpu0 1 2\n")
    conditions = load.conditions()
    assert (conditions.load, conditions.steal, conditions.throttled) == (2.0, 0.2, ("GPU 0: power cap",))
    assert conditions.cores
    stat.unlink()
    loadavg.unlink()
    unreadable = SystemLoad(proc=tmp_path)
    unreadable.sample()
    assert (unreadable.conditions().load, unreadable.conditions().steal) == (None, None)


@pytest.mark.parametrize(("loads", "waited"), [((0.2,), 0.5), ((8.0, 8.0, 0.2), 1.5), ((8.0,) * 9, 2.0)])
def test_a_quiet_moment_is_awaited_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch, loads: tuple[float, ...], waited: float
) -> None:
    now, seen = [0.0], iter(loads)

    class Load:
        def sample(self) -> None:
            """Take no sample."""

        def conditions(self) -> Conditions:
            return Conditions(next(seen), cores=2)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(interleave, "SystemLoad", Load)
    monkeypatch.setattr(interleave.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(interleave.time, "sleep", sleep)
    interleave.await_quiet(2.0)
    assert now[0] == pytest.approx(waited, abs=0.51 if len(loads) > 3 else 0.01)
