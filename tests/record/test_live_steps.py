"""The tails of growing tables, and the step rate that they tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.core.live import StepUse
from profiler.record import live_steps
from profiler.record.live_steps import GrowingTable, StepRate
from profiler.run import tables
from profiler.run.model import StepDefinition, StepKind
from profiler.run.tables import BoundaryKind

S = 1_000_000_000


def read(run: Path, now: int) -> StepUse:
    """The step rate of a run that has steps."""
    use, why = StepRate(run).read(now)
    assert use is not None
    assert not why
    return use


class Source:
    """A source folder of a run, written row by row."""

    def __init__(self, run: Path, pid: int = 7, rank: int = 0) -> None:
        self.folder = run / f"source-{pid}"
        self.folder.mkdir(parents=True)
        (self.folder / tables.SOURCE_META).write_text(json.dumps({"rank": rank, "pid": pid}))
        self.names: dict[str, int] = {}

    def name(self, text: str) -> int:
        if text not in self.names:
            self.names[text] = len(self.names)
            with open(self.folder / tables.NAMES, "a", encoding="utf-8") as file:
                file.write(json.dumps({"id": self.names[text], "text": text}) + "\n")
        return self.names[text]

    def write(self, table: str, *rows: tuple[float, ...]) -> None:
        with open(self.folder / f"{table}.bin", "ab") as file:
            file.writelines(tables.packer(table).pack(*row) for row in rows)

    def step(self, begin: int, end: int, tokens: int = 0, tid: int = 7) -> None:
        self.write("steps", (0, begin, end, tokens, 0, 0, 0, tid, 0))

    def boundary(self, time: int, name: str, kind: BoundaryKind = BoundaryKind.OPTIMIZER, flag: int = 0) -> None:
        self.write("boundaries", (time, 0, 0, 0, 7, self.name(name), kind, flag))


def test_a_tail_gives_each_whole_record_once(tmp_path: Path) -> None:
    source, tail = Source(tmp_path), GrowingTable(tmp_path / "source-7" / "steps.bin", "steps")
    assert len(tail.read()) == 0
    source.step(1, 2)
    assert [row["end"] for row in tail.read()] == [2]
    with open(source.folder / "steps.bin", "ab") as file:  # torn: the rest of it comes later
        record = tables.packer("steps").pack(1, 2, 3, 0, 0, 0, 0, 7, 0)
        file.write(record[:20])
        file.flush()
        assert len(tail.read()) == 0
        file.write(record[20:])
    assert [row["end"] for row in tail.read()] == [3]
    assert len(tail.read()) == 0
    assert tail.rows["end"].tolist() == [2, 3]


def test_of_a_long_table_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(tmp_path)
    size = tables.packer("steps").size
    monkeypatch.setattr(live_steps, "_FIRST_BYTES", 3 * size + 5)
    for end in range(10):
        source.step(0, end)
    assert [row["end"] for row in GrowingTable(source.folder / "steps.bin", "steps").read()] == [7, 8, 9]


def test_marked_steps(tmp_path: Path) -> None:
    source = Source(tmp_path)
    for number in range(20):
        source.step(number * S, (number + 1) * S, tokens=100, tid=9)
    use = read(tmp_path, 21 * S)
    assert use.step == StepDefinition(StepKind.MARKED)
    assert (use.step_time, use.tokens_per_s) == (1.0, 100.0)
    assert (use.since_last, use.pid, use.tid, use.ranks) == (1.0, 7, 9, 1)


def test_recorded_parts_of_the_thread_that_steps(tmp_path: Path) -> None:
    source = Source(tmp_path)
    for number in range(4):
        source.boundary(number * S, "SGD")
        source.write(
            "regions",
            (number * S, number * S + S // 2, 7, source.name("data"), 0),
            (number * S, number * S + S // 2, 9, source.name("data"), 0),
            (number * S, number * S + S, 7, source.name("backward"), 0),
        )
    assert read(tmp_path, 4 * S).parts == {"data": 0.5}


def test_a_program_that_stands_keeps_its_last_step(tmp_path: Path) -> None:
    Source(tmp_path).step(0, 2 * S)
    use = read(tmp_path, 100 * S)
    assert (use.step_time, use.since_last) == (2.0, 98.0)


def test_detected_steps_of_a_gan(tmp_path: Path) -> None:
    """Five steps of one optimizer for one of the other; a third one steps rarely, and a loader is asked too."""
    source = Source(tmp_path)
    for number in range(50):
        source.boundary(number * S // 10, "loader", BoundaryKind.LOADER)
        source.boundary(number * S // 10, "critic")
        if number % 5 == 4:
            source.boundary(number * S // 10 + 1, "generator")
    source.boundary(3 * S, "extra")
    use = read(tmp_path, 5 * S)
    assert (use.step.phases, use.step.nested) == ((("generator",),), ("critic", "extra"))
    assert use.step_time == pytest.approx(0.5)


def test_batches_where_nothing_steps(tmp_path: Path) -> None:
    source = Source(tmp_path)
    for number in range(5):
        source.boundary(number * S, "DataLoader", BoundaryKind.LOADER, flag=number == 4)
    use = read(tmp_path, 5 * S)
    assert use.step == StepDefinition(StepKind.LOADER, (("DataLoader",),), optimizer_steps=0)
    assert use.since_last == 1.0, "the end of the epoch ends its last batch, as at load"


def test_the_first_of_several_ranks_speaks(tmp_path: Path) -> None:
    for pid, rank in ((5, 1), (6, 0), (8, 0)):
        source = Source(tmp_path, pid, rank)
        for number in range(1 if pid == 8 else 6):  # 8: a helper that stepped once
            source.step(number * S, (number + 1) * S)
    use = read(tmp_path, 6 * S)
    assert (use.pid, use.ranks) == (6, 2)


def test_reasons_for_an_unknown_step_rate(tmp_path: Path) -> None:
    rate = StepRate(tmp_path)
    assert rate.read(0) == (None, "the program has not come to Python code yet")
    source = Source(tmp_path)
    assert rate.read(0) == (None, "no step has ended yet")
    source.boundary(1 * S, "SGD")
    assert rate.read(2 * S)[0] is None, "one boundary closes no step"
    source.boundary(2 * S, "SGD")
    assert read(tmp_path, 2 * S).step_time == 1.0
