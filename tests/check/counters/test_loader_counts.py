"""What the workers of a loader count is that of a usual batch, and has counters of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from profiler.check.counters.compare import compare, overall
from profiler.check.counters.counted import counted
from profiler.check.diff import content_ids, file_changes
from profiler.check.model import FAIL, PASS, Counted, CountedLine, CounterLine, Limits
from profiler.check.modes.sides import Recordings, not_seen
from profiler.check.speed.controlled_process import Program, measured_spans
from profiler.check.speed.interleave import record_steps
from profiler.run.load import load
from profiler.run.model import Run
from profiler.run.tables import WORKER_OF, CallKind, CountKind
from tests.recorded.builders import MS, PID, RunBuilder

pytest.importorskip("torch")

STEPS = 10
WORKER = 200
EVERY = CountKind.OPERATOR


def made(amounts: Sequence[int], *, ahead: int = 0) -> Counted:
    """Ten steps of 10 ms, and a worker that makes a batch in each, with so many operators at data.py:3."""
    builder = RunBuilder(package="/profiler", counted=True)
    builder.steps(STEPS, 10 * MS)
    common = {"pid": WORKER, "tid": WORKER}
    builder.bulk("calls", 1, kind=CallKind.OTHER, name=builder.name(WORKER_OF), bytes=PID, site=-1, **common)
    for number, amount in enumerate(amounts, -ahead):
        begin = number * 10 * MS + MS
        builder.count(begin - 1, EVERY, "aten::mul", 100, site="data.py:9:start", pid=WORKER)
        builder.region("dataset", begin, begin + 5 * MS, **common)
        builder.count(begin + 4 * MS, EVERY, "aten::add", amount, site="data.py:3:__getitem__", pid=WORKER)
        builder.count(begin + 4 * MS, CountKind.ALLOCATION, "", amount, size=512, site="data.py:3:x", pid=WORKER)
        builder.count(begin + 8 * MS, EVERY, "aten::mul", 7, site="data.py:9:start", pid=WORKER)
    return counted(builder.build(), None)


@pytest.mark.parametrize(
    ("amounts", "ahead"),
    [
        ([8] * 10, 0),
        ([8] * 14, 4),
        ([8] * 7, 1),
        ([8, 8, 8, 2] * 3, 2),
        ([8, 2] * 5 + [2], 0),
        ([2, 8] * 5 + [2], 1),
        ([99, *[8] * 9], 0),
        ([8] * 3, 3),
    ],
)
def test_a_usual_batch_is_counted_whichever_batches_are_made_in_the_steps(amounts: list[int], ahead: int) -> None:
    found = made(amounts, ahead=ahead)
    assert found.totals["loader_operators"] == 8.0 * STEPS
    assert found.totals["operators"] == 0.0, "they are no part of the steps"
    assert found.lines[CountedLine("loader_operators", "data.py", 3, "__getitem__", "add")] == 8.0 * STEPS
    assert found.totals["loader_allocated_bytes"] == 512.0 * STEPS
    assert "operators" not in found.workers


def test_of_batches_that_all_differ_the_mean_is_compared_with_a_slack() -> None:
    base, later = made(range(20, 30)), made(range(20, 30), ahead=1)
    assert "loader_operators" not in base.totals
    assert (base.workers["operators"], later.workers["operators"]) == (245.0, 250.0)
    assert overall(compare([base], [later], Limits())) == PASS
    assert overall(compare([base], [made(range(35, 45))], Limits())) == FAIL


def test_what_only_one_side_counts_is_not_compared() -> None:
    usual, differing = made([8] * 10), made(range(20, 30))
    without = counted(steps_alone(), None)
    for base, candidate in ((usual, differing), (differing, usual), (without, usual), (usual, without)):
        lines = {(line.counter, line.scope): line for line in compare([base], [candidate], Limits())}
        assert overall(lines.values()) == PASS
        assert lines["loader_operators", "step"].reasons[0].code == "on-one-side"


def steps_alone() -> Run:
    builder = RunBuilder(package="/profiler", counted=True)
    builder.steps(STEPS, 10 * MS)
    return builder.build()


def test_an_operator_in_workers_that_had_none_fails() -> None:
    (line,) = (each for each in compare([made([0] * 10)], [made([8] * 10)], Limits()) if each.state == FAIL)
    assert (line.counter, line.before, line.after) == ("loader_operators", (0.0, 0.0), (8.0, 8.0))
    assert [(change.file, change.line) for change in line.changes] == [("data.py", 3)]


# ---------------------------------------------------------------- programs

DATA = """\
import random

import torch
from torch.utils.data import Dataset


class Data(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        x = torch.full((4,), float(i))
        return x / 2


class Augmented(Data):
    def __getitem__(self, i):
        x = super().__getitem__(i)
        for _ in range(random.SystemRandom().randrange(4)):
            x = x.flip(0)
        return x
"""
TRAIN = """\
import sys

import torch
from torch.utils.data import DataLoader

import data

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    dataset, start, workers = getattr(data, sys.argv[1])(), sys.argv[2] or None, int(sys.argv[3])
    for batch in DataLoader(dataset, batch_size=8, num_workers=workers, multiprocessing_context=start):
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


class Counts:
    """Counts the program in new processes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0
        (folder / "train.py").write_text(TRAIN)
        (folder / "data.py").write_text(DATA)

    def __call__(self, dataset: str = "Data", start: str = "fork", workers: int = 2) -> Recordings:
        self.number += 1
        words = (sys.executable, "train.py", dataset, start if workers else "", str(workers))
        program = Program("candidate", words, self.folder, count=True)
        (path,) = record_steps(program, self.folder / "runs", [str(self.number)])
        run = load(path)
        return Recordings((run,), (counted(run, measured_spans(path), folder=str(self.folder)),))

    def judge_with(self, line: str, base: Recordings, **options: str) -> tuple[CounterLine, ...]:
        """The counters where a line follows the first one of `__getitem__`."""
        sources = content_ids(["data.py", "train.py"], str(self.folder))
        first = "        x = torch.full((4,), float(i))\n"
        (self.folder / "data.py").write_text(DATA.replace(first, f"{first}        {line}\n"))
        candidate = self(**options)
        files = file_changes(sources, ["data.py", "train.py"], str(self.folder))
        return compare(base.counted, candidate.counted, Limits(), files)


@pytest.fixture
def count(tmp_path: Path) -> Callable[..., Recordings]:
    return Counts(tmp_path)


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_an_operator_that_is_added_to_the_dataset_fails_at_its_line(count: Counts, start: str) -> None:
    base = count(start=start)
    totals = base.counted[0].totals
    assert totals["loader_operators"] / base.counted[0].steps == 8 * 2 + 1, "and a stack"
    assert "workers" not in [name for notice in not_seen(base) for name, value in notice.values.items() if value]
    failed = [line for line in count.judge_with("x = x + 1", base, start=start) if line.state == FAIL]
    assert [line.counter for line in failed] == ["loader_operators"]
    assert [(each.file, each.line, each.after) for each in failed[0].changes] == [("data.py", 13, 8.0)]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_two_processes_count_the_same_in_workers(count: Counts, start: str) -> None:
    first, second = (count(start=start).counted[0] for _ in range(2))
    assert overall(compare([first], [second], Limits())) == PASS
    names = ("loader_operators", "loader_allocated_bytes", "operators")
    assert [first.totals[name] for name in names] == [second.totals[name] for name in names]


@pytest.mark.slow
def test_without_workers_the_dataset_is_a_part_of_the_steps(count: Counts) -> None:
    alone, apart = count(workers=0).counted[0], count().counted[0]
    assert "loader_operators" not in alone.totals
    assert alone.totals["operators"] == apart.totals["operators"] + apart.totals["loader_operators"]


@pytest.mark.slow
def test_a_dataset_whose_counts_are_random_does_not_fail(count: Counts) -> None:
    base = [count(dataset="Augmented").counted[0] for _ in range(2)]
    candidate = [count(dataset="Augmented").counted[0] for _ in range(2)]
    assert len({each.workers.get("operators") for each in (*base, *candidate)}) > 1
    assert overall(compare(base, candidate, Limits())) == PASS
