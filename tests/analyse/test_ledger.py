"""The ledger: cells that sum to all time of a run, and what each of them tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from profiler import load
from profiler.analyse.analysis import analyse
from profiler.analyse.ledger_steps import with_kinds
from profiler.analyse.model.host import Stage
from profiler.analyse.model.ledger import (
    DEVICE,
    GARBAGE_KIND,
    IMPORT_KIND,
    MAIN,
    RECORDER_KIND,
    Cell,
    Ledger,
    Owner,
    Period,
    Recurrence,
)
from profiler.run.tables import GARBAGE_COLLECTION, LINE_OF, CallKind, StageKind
from tests.fakes.programs import ROOT
from tests.recorded.builders import MS, RunBuilder

RECORDED = sorted(
    path
    for folder in ("tests/approval/runs", "notebooks/runs", "tests/reference_trainer/closure/runs")
    for path in (ROOT / folder).glob("*.zip")
)
TRACES = sorted((ROOT.parent / "shared" / "traces").glob("*.json.gz"))
WITHIN = 0.01
"""Share of a thread's time by which its cells may differ from it."""
BLOCKED = ("waiting", "gil", "ranks", "sync")
ENOUGH = 200
"""Samples from which the shares of lines are compared with the clock of the thread."""


def ledger_of(path: Path) -> Ledger | None:
    run = load(path)
    return None if run.info.is_counted else analyse(run).ledger


@pytest.mark.parametrize("path", [*RECORDED, *TRACES], ids=lambda path: path.name)
def test_cells_sum_to_the_time_of_each_thread(path: Path) -> None:
    ledger = ledger_of(path)
    if ledger is None:
        pytest.skip("a run that counts has no times")
    for (rank, thread, period), wall in ledger.wall.items():
        cells = list(ledger.of(period, thread, rank))
        assert sum(cell.seconds for cell in cells) == pytest.approx(wall, rel=WITHIN, abs=1e-6)
        assert all(cell.seconds >= 0 and cell.low <= cell.seconds * (1 + 1e-9) for cell in cells)
        assert all(cell.seconds <= cell.high * (1 + 1e-9) and cell.high <= wall * (1 + 1e-6) for cell in cells)
    assert {(cell.rank, cell.thread, cell.period) for cell in ledger.cells} <= set(ledger.wall)
    for rank, active in ledger.active.items():
        cells = [*ledger.of(Period.STEPS, MAIN, rank)]
        if sum(cell.samples for cell in cells) >= ENOUGH:
            shown = sum(cell.seconds for cell in cells if cell.kind not in BLOCKED)
            assert shown == pytest.approx(active, rel=0.1)


# ---------------------------------------------------------------- made up

BEGIN = 1_000 * MS
LOOP = ("train.py:50:<module>",)
WORK = (*LOOP, "train.py:10:step")
TORCH = (*WORK, "/usr/lib/python3.11/site-packages/torch/nn/functional.py:7:linear")
LIBRARY = (*WORK, "/usr/lib/python3.11/site-packages/cv2/__init__.py:3:resize")
STANDARD = (*WORK, "/usr/lib/python3.11/json/encoder.py:3:encode")
IMPORT = (*LOOP, "<frozen importlib._bootstrap>:1176:_find_and_load",
          "/usr/lib/python3.11/site-packages/scipy/__init__.py:3:<module>")  # fmt: skip


class Recording:
    """Steps of 100 ms, sampled every 10 ms."""

    def __init__(self) -> None:
        self.builder, self.now = RunBuilder(device="cpu", span=(BEGIN, None)), BEGIN

    def part(self, frames: tuple[str, ...], samples: int, *, active: int = 1) -> None:
        for _ in range(samples):
            self.builder.stack(frames, self.now, self.now + 10 * MS, active=active)
            self.now += 10 * MS

    def step(self, *parts: tuple[tuple[str, ...], int]) -> None:
        begin = self.now
        for frames, samples in parts:
            self.part(frames, samples)
        self.builder.step(begin, self.now)

    def ledger(self) -> Ledger:
        self.builder.sample("stacks.period_s", self.now, 0.01)
        ledger = analyse(self.builder.build()).ledger
        assert ledger is not None
        return ledger


def owners(cells: Iterator[Cell]) -> dict[tuple[Owner, str], float]:
    sums: dict[tuple[Owner, str], float] = {}
    for cell in cells:
        sums[cell.owner, cell.package] = sums.get((cell.owner, cell.package), 0.0) + round(cell.seconds, 3)
    return sums


def test_whose_code_takes_the_time() -> None:
    recording = Recording()
    for _ in range(20):
        recording.step((WORK, 3), (TORCH, 2), (LIBRARY, 4), (STANDARD, 1))
    assert owners(recording.ledger().of(Period.STEPS)) == {
        (Owner.USER, ""): pytest.approx(0.6),
        (Owner.TORCH, ""): pytest.approx(0.4),
        (Owner.LIBRARY, "cv2"): pytest.approx(0.8),
        (Owner.PYTHON, ""): pytest.approx(0.2),
    }


def test_imports_before_the_steps() -> None:
    recording = Recording()
    recording.part(IMPORT, 30)
    recording.part(LOOP, 10)
    for _ in range(20):
        recording.step((WORK, 10))
    ledger = recording.ledger()
    kinds = {cell.kind: (cell.seconds, cell.place.line) for cell in ledger.of(Period.BEFORE)}
    assert kinds == {IMPORT_KIND: (pytest.approx(0.3), 50), "python": (pytest.approx(0.1), 50)}
    assert all(cell.recurrence is Recurrence.OUTSIDE for cell in ledger.of(Period.BEFORE))


def test_the_step_of_a_lazy_import_is_a_period_of_its_own() -> None:
    recording = Recording()
    for number in range(20):
        recording.step((WORK, 10), *[(IMPORT, 90)] * (number == 7))
    ledger = recording.ledger()
    assert ledger.wall[0, MAIN, Period.ONE_OFF] == pytest.approx(1.0)
    assert {cell.kind: round(cell.seconds, 3) for cell in ledger.of(Period.ONE_OFF)} == {
        IMPORT_KIND: pytest.approx(0.9), "python": pytest.approx(0.1),
    }  # fmt: skip
    assert {cell.recurrence for cell in ledger.of(Period.ONE_OFF)} == {Recurrence.ONCE}
    assert ledger.own_seconds(Period.STEPS) == pytest.approx(1.9)


def test_work_of_every_fifth_step() -> None:
    recording = Recording()
    for number in range(40):
        recording.step((WORK, 10), *[((*LOOP, "train.py:70:draw", "train.py:80:bars"), 30)] * (number % 5 == 4))
    periodic = [cell for cell in recording.ledger().of(Period.STEPS) if cell.recurrence is Recurrence.PERIODIC]
    assert [(cell.every, cell.place.line, cell.entry.line) for cell in periodic] == [(5.0, 80, 70)]
    assert periodic[0].seconds == pytest.approx(8 * 0.3)


def test_evaluations_are_periodic_by_their_records() -> None:
    recording = Recording()
    for number in range(40):
        begin = recording.now + 100 * MS
        recording.step((WORK, 10), *[((*LOOP, "train.py:90:evaluate", *TORCH[2:]), 5)] * (number % 10 == 9))
        if number % 10 == 9:
            recording.builder.stage(StageKind.EVAL_MODE, begin, object_id=7)
            recording.builder.stage(StageKind.NO_GRAD, begin, begin + 50 * MS)
            recording.builder.stage(StageKind.TRAIN_MODE, begin + 50 * MS, object_id=7)
    recording.builder.boundary(0)
    cells = [cell for cell in recording.ledger().of(Period.STEPS) if cell.activity == Stage.EVALUATION]
    assert {(cell.recurrence, cell.every) for cell in cells} == {(Recurrence.PERIODIC, 10.0)}


def test_three_steps_tell_nothing_of_recurrence() -> None:
    recording = Recording()
    for _ in range(2):
        recording.step((WORK, 10))
    assert {cell.recurrence for cell in recording.ledger().of(Period.STEPS)} == {Recurrence.UNKNOWN}


def test_collecting_garbage_takes_its_recorded_time() -> None:
    recording = Recording()
    for _ in range(20):
        begin = recording.now
        recording.step((WORK, 10))
        recording.builder.region(GARBAGE_COLLECTION, begin + 20 * MS, begin + 40 * MS)
    cells = list(recording.ledger().of(Period.STEPS))
    assert sum(cell.seconds for cell in cells if cell.kind == GARBAGE_KIND) == pytest.approx(20 * 0.02)


def test_a_recorded_checkpoint_has_its_line_without_a_sample() -> None:
    recording = Recording()
    for _ in range(20):
        begin = recording.now
        recording.step((WORK, 10))
        recording.builder.region("checkpoint", begin + 90 * MS, begin + 99 * MS)
        recording.builder.named_call(
            CallKind.OTHER, LINE_OF["checkpoint"], begin + 90 * MS, begin + 90 * MS, site="train.py:77:save"
        )
    (cell,) = [each for each in recording.ledger().of(Period.STEPS) if each.kind == "checkpoint"]
    assert (cell.place.line, cell.seconds) == (77, pytest.approx(20 * 0.009))


def test_a_checkpoint_that_the_program_marks_has_no_line_of_another_one() -> None:
    recording = Recording()
    for number in range(20):
        begin = recording.now
        recording.step((WORK, 10))
        recording.builder.region("checkpoint", begin + 90 * MS, begin + 99 * MS)
        if not number:
            recording.builder.named_call(
                CallKind.OTHER, LINE_OF["checkpoint"], begin + 90 * MS, begin + 90 * MS, site="train.py:77:save"
            )
    cells = [each for each in recording.ledger().of(Period.STEPS) if each.kind == "checkpoint"]
    assert all(cell.place is None or cell.place.line != 77 for cell in cells)


def test_the_profiler_that_comes_in_with_torch_is_the_recorder() -> None:
    recording = Recording()
    recording.builder = RunBuilder(device="cpu", span=(BEGIN, None), package="/opt/profiler")
    recording.part((*LOOP, "<frozen importlib._bootstrap>:1176:_find_and_load", "/opt/profiler/agent/boot.py:3:go"), 30)
    for _ in range(20):
        recording.step((WORK, 10))
    (cell,) = recording.ledger().of(Period.BEFORE)
    assert (cell.kind, cell.owner, cell.is_own) == (RECORDER_KIND, Owner.RECORDER, False)


def test_a_cell_knows_the_lines_that_call_its_own() -> None:
    recording = Recording()
    for _ in range(20):
        recording.step(((*LOOP, "train.py:70:draw", "train.py:80:bars"), 10))
    (cell,) = [each for each in recording.ledger().of(Period.STEPS) if each.place]
    assert cell.place.line == 80
    assert {line for _, line in cell.callers} == {50, 70}
    assert cell.is_at({("train.py", 70)})
    assert not cell.is_at({("train.py", 71)})


def test_a_cell_of_a_library_knows_the_other_library_that_calls_it() -> None:
    recording, site = Recording(), "/usr/lib/python3.11/site-packages"
    trainer = (*LOOP, f"{site}/fitkit/trainer.py:3:Trainer.train", f"{site}/fitkit/memory.py:9:Tracker.read")
    for _ in range(20):
        recording.step(((*trainer, f"{site}/psutil/_common.py:7:wrapper", f"{site}/psutil/_linux.py:9:read"), 10))
    (cell,) = [each for each in recording.ledger().of(Period.STEPS) if each.place]
    assert (cell.package, cell.function) == ("psutil", "psutil._linux.read")
    assert cell.called_by == "fitkit.memory.Tracker.read", "the last one before the other library"


def test_a_cell_of_a_hook_knows_the_line_that_registered_it() -> None:
    def hook(line: int, function: str, registered: int) -> dict[str, object]:
        place = {"file": "/home/someone/train.py", "line": registered, "function": "main"}
        return {"file": file, "line": line, "function": function, "registered": place}

    file = "/usr/lib/python3.11/site-packages/watchkit.py"
    hooks = [hook(4, "watch.<locals>.<lambda>", 30), hook(5, "watch.<locals>.<lambda>", 31), hook(9, "keep", 50)]
    recording = Recording()
    recording.builder = RunBuilder(device="cpu", span=(BEGIN, None), cwd="/home/someone", module_hooks=hooks)
    called = [f"{file}:{line}:{function}" for line, function in ((5, "watch.<locals>.<lambda>"), (11, "keep"))]
    for _ in range(20):
        recording.step(
            ((*TORCH, called[0], f"{file}:20:draw"), 4),
            ((*LOOP, TORCH[-1], called[1]), 4),
            ((*LOOP, "train.py:60:peek", called[0]), 2),
        )
    lines = {cell.function: cell.registered_at for cell in recording.ledger().of(Period.STEPS)}
    assert (str(lines["watchkit.draw"]), lines["watchkit.keep"]) == ("train.py:31 (main)", None), "it is at that line"
    assert lines["watchkit.watch.<locals>.<lambda>"] is None, "the program calls it itself"


def test_what_a_device_does_and_waits_for() -> None:
    ledger = ledger_of(ROOT / "notebooks/runs/detail-as-found.zip")
    kinds = {cell.kind for cell in ledger.of(Period.STEPS, DEVICE)}
    assert {"device compute", "idle: sync"} <= kinds


def test_what_recording_costs_is_no_time_of_the_program() -> None:
    ledger = ledger_of(ROOT / "tests/approval/runs/plain-standard.zip")
    (recorder,) = [cell for cell in ledger.of(Period.STEPS) if cell.kind == RECORDER_KIND]
    assert (recorder.owner, recorder.place, recorder.is_own) == (Owner.RECORDER, None, False)
    assert ledger.own_seconds(Period.STEPS) == pytest.approx(ledger.wall[0, MAIN, Period.STEPS] - recorder.seconds)


def test_samples_keep_the_time_of_their_line_and_get_the_kinds_of_the_records() -> None:
    rows = np.array([[60.0, 0.0, 0.0], [20.0, 20.0, 0.0]])
    balanced, rest, moved = with_kinds(rows, np.array([40.0, 30.0, 30.0]))
    assert balanced.sum(axis=1).tolist() == [60.0, 40.0]
    assert balanced.sum(axis=0).tolist() == [40.0, 30.0, 30.0]
    assert rest.tolist() == [0.0, 0.0, 0.0]
    assert moved == pytest.approx(40.0)
    _, rest, _ = with_kinds(rows, np.array([100.0, 30.0, 0.0]))
    assert rest.sum() == pytest.approx(30.0), "no sample shows it"
