"""The counters of a process and its workers, with their lines: of made-up runs and of real programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.agent.hooks import loader, optimizers, tensors
from profiler.check.counters.counted import counted
from profiler.check.model import Counted, CountedLine
from profiler.check.speed.controlled_process import Program, measured_spans
from profiler.check.speed.interleave import record_steps
from profiler.core.errors import Notice, ProfilerError
from profiler.run.load import load
from profiler.run.model import CollectorStatus, Run
from profiler.run.source_text import ProgramFiles, write_source_text
from profiler.run.tables import RECOMPILED, TOKENIZED, WORKER_OF, CallKind, CountKind, StageKind
from tests.fakes.programs import ROOT
from tests.fakes.watched import watched
from tests.recorded.builders import MS, PID, TID, RunBuilder

WORKER = 200
PROBLEMS = (Notice("process-stopped", {"source": "source-1"}),)


def stepped(steps: int = 10, **facts: object) -> RunBuilder:
    """Steps of 10 ms with one sync each, at train.py:5."""
    builder = RunBuilder(**facts)  # type: ignore[arg-type]
    builder.steps(steps, 10 * MS)
    for number in range(steps):
        builder.counter("syncs", 1, step=number)
        builder.call(CallKind.SYNC, number * 10 * MS + MS, number * 10 * MS + 2 * MS, site="train.py:5:main")
    return builder


def test_all_measured_steps_count_without_blocks() -> None:
    builder = stepped(5)
    builder.step(50 * MS, 60 * MS, warmup=True)
    builder.counter("syncs", 7, step=5)
    found = counted(builder.build(), None)
    assert (found.steps, found.totals) == (5, {"syncs": 5.0})
    assert found.lines == {CountedLine("syncs", "train.py", 5, "main", "sync"): 5.0}


def test_only_steps_that_end_in_a_block_count() -> None:
    run = stepped(10).build()
    blocks = [(70 * MS, 90 * MS), (20 * MS, 40 * MS)]
    found = counted(run, blocks)
    assert (found.steps, found.totals["syncs"]) == (4, 4.0), "20-30, 30-40, 70-80, 80-90"
    assert found.lines[CountedLine("syncs", "train.py", 5, "main", "sync")] == 4.0
    late = [(20 * MS + 1000, 40 * MS + 1000)]
    assert counted(run, late).steps == 2, "a step is stamped before the end of its block and after the pause"


def test_a_warm_up_of_the_program_is_no_warm_up_of_a_block() -> None:
    builder = RunBuilder()
    builder.steps(4, 10 * MS, warmup=True)
    builder.counter("syncs", 3, step=1)
    assert counted(builder.build(), [(0, 40 * MS)]).totals == {"syncs": 3.0}


@pytest.mark.parametrize(
    ("run", "spans", "words"),
    [
        (RunBuilder().build(), None, "nothing can be counted in synthetic: no step"),
        (stepped(3).build(), [(500 * MS, 600 * MS)], "nothing can be counted in synthetic: no step"),
        (stepped(9).build(), [], r"ended before its warm-up was over.*warmup"),
        (replace(stepped().build(), problems=PROBLEMS), None, "is incomplete: source-1"),
    ],
)
def test_what_cannot_be_counted(run: Run, spans: list[tuple[int, int]] | None, words: str) -> None:
    with pytest.raises(ProfilerError, match=words):
        counted(run, spans)


HOOKS = ("might_sync", "h2d", "d2h", "h2d_bytes", "d2h_bytes", "tokenized", "recompilations")


def test_a_0_is_said_of_what_hooks_watched_and_of_nothing_else() -> None:
    hooked = counted(stepped(package="/profiler", device="cuda").build(), None)
    assert hooked.totals == {"syncs": 10.0, **dict.fromkeys(HOOKS, 0.0)}, "no launches, no allocations"
    assert hooked.not_counted == ()
    failed = [CollectorStatus("hook tensors", "failed", "TypeError")]
    lacking = counted(stepped(package="/profiler", collectors=failed).build(), None).totals
    assert lacking == {"syncs": 10.0, "tokenized": 0.0, "recompilations": 0.0}
    assert counted(stepped().build(), None).totals == {"syncs": 10.0}


def test_without_a_device_what_only_one_counts_is_not_0_but_not_counted() -> None:
    builder = RunBuilder(package="/profiler", device="cpu")
    builder.steps(2, 10 * MS)
    builder.counter("might_sync", 3, step=1)
    builder.counter("h2d", 1, step=1)
    found = counted(builder.build(), None)
    assert found.totals == {
        "might_sync": 3.0,
        "h2d": 1.0,
        "tokenized": 0.0,
        "recompilations": 0.0,
    }
    assert found.not_counted == ("syncs", "d2h", "h2d_bytes", "d2h_bytes", "allocations", "launches")
    assert counted(stepped(device="host").build(), None).not_counted == (), "a device of the program's own"


def test_memory_of_which_more_is_in_use_after_each_step_is_growing() -> None:
    """What one line keeps of the last batch is only larger or smaller where batches differ in length."""
    builder = RunBuilder(package="/profiler", counted=True)
    builder.steps(4, 10 * MS)
    for step, sizes in enumerate([(64, 128, 0), (64, -32, 8), (64, 96, 8), (64, 64, 8)]):
        for line, size in zip((3, 5, 7), sizes, strict=True):
            builder.count(step * 10 * MS + MS, CountKind.GROWTH, "", 1, size=size, site=f"train.py:{line}:main")
    found = counted(builder.build(), None)
    assert found.growing == {("train.py", 3)}
    assert {line.number: amount for line, amount in found.lines.items()} == {3: 256.0, 7: 24.0}


def test_a_wait_has_a_stage_of_its_step_where_forward_passes_are_known() -> None:
    """The optimizer steps at the end of each step; what follows it is still after the backward pass."""
    builder = RunBuilder(package="/profiler", counted=True)
    builder.steps(3, 10 * MS)
    for begin in range(0, 30 * MS, 10 * MS):
        builder.stage(StageKind.FORWARD, begin + 3 * MS)
        builder.region("backward", begin + 5 * MS, begin + 7 * MS)
        for line, after in ((2, 1), (4, 4), (6, 6), (8, 8)):
            place = f"train.py:{line}:main"
            builder.named_call(CallKind.SYNC, "item", begin + after * MS, begin + after * MS, site=place)
        builder.named_call(CallKind.SYNC, "item", begin + 6 * MS, begin + 6 * MS, site="train.py:9:main", tid=TID + 1)
    stages = {line.number: line.stage for line in counted(builder.build(), None).lines}
    assert stages == {2: "after", 4: "before", 6: "in", 8: "after", 9: "thread"}


def test_memory_that_varies_is_no_growth() -> None:
    """What a mask selects of the last batch is in use after each step, once more and once less."""
    builder = RunBuilder(package="/profiler", counted=True)
    builder.steps(6, 10 * MS)
    varies, keeps, shrinks = (40, -16, 24, -40, 8, 36), (0, 64, 64, 0, 64, 64), (-8, 4, -8, -8, -8, -8)
    once = (0, 0, 512, 0, 512, 512)  # not in most steps
    for step, sizes in enumerate(zip(varies, keeps, shrinks, once, strict=True)):
        for line, size in zip((3, 5, 7, 9), sizes, strict=True):
            builder.count(step * 10 * MS + MS, CountKind.GROWTH, "", 1, size=size, site=f"train.py:{line}:main")
    found = counted(builder.build(), None)
    assert {line.number: amount for line, amount in found.lines.items()} == {5: 256.0}
    assert found.totals["growth_bytes"] == 256.0 - 36.0


def test_times_and_the_second_source_of_syncs_are_no_amounts() -> None:
    builder = stepped(1)
    for name in ("compile_ns", "wait_s", "load_seconds", "debug_syncs", "debug_syncs_seen", "batches"):
        builder.counter(name, 1, step=0)
    assert counted(builder.build(), None).totals == {"syncs": 1.0, "batches": 1.0}


def test_each_call_is_of_the_counters_that_it_adds_to() -> None:
    builder = RunBuilder()
    builder.step(0, 100 * MS)
    for number, kind in enumerate((CallKind.MIGHT_SYNC, CallKind.ALLOC, CallKind.LAUNCH, CallKind.EVENT)):
        builder.call(kind, number * MS, number * MS + 1, site="train.py:1")
    builder.call(CallKind.H2D, 20 * MS, 21 * MS, bytes=100, site="train.py:2")
    builder.call(CallKind.D2H, 30 * MS, 31 * MS, bytes=8, blocked=MS, site="train.py:3")
    for name, size in ((TOKENIZED, 32), (RECOMPILED, 0), ("all_reduce", 9)):
        name_of = builder.name(name)
        site = builder.site("train.py:4")
        builder.bulk("calls", 1, begin=40 * MS, end=40 * MS, kind=CallKind.OTHER, name=name_of, site=site, bytes=size)
    lines = counted(builder.build(), None).lines
    found = {(line.counter, line.operation): amount for line, amount in lines.items()}
    assert found == {
        ("might_sync", ""): 1.0,  # an operation that has the counter's name says nothing more
        ("allocations", "alloc"): 1.0,
        ("launches", "launch"): 1.0,
        ("h2d", ""): 1.0,
        ("h2d_bytes", "h2d"): 100.0,
        ("d2h", ""): 1.0,
        ("d2h_bytes", "d2h"): 8.0,
        ("syncs", "d2h"): 1.0,
        (TOKENIZED, ""): 32.0,
        (RECOMPILED, ""): 1.0,
    }


def test_files_are_relative_to_the_folder_of_the_program() -> None:
    builder = RunBuilder(cwd="/here")
    builder.step(0, 100 * MS)
    builder.call(CallKind.SYNC, MS, 2 * MS, site="/here/lib/a.py:1")
    builder.call(CallKind.SYNC, MS, 2 * MS)
    run = builder.build()
    assert {line.file for line in counted(run, None).lines} == {"lib/a.py", ""}
    assert {line.file for line in counted(run, None, folder="/here/lib").lines} == {"a.py", ""}


def with_worker(batches: int, *, ahead: int = 0, of: int = PID) -> Run:
    """A worker that makes a batch of 8 tokenized texts every 10 ms, and tokenizes one at its start."""
    builder = stepped(10, package="/profiler")
    site = builder.site("data.py:3:__getitem__")
    common = {"pid": WORKER, "tid": WORKER}
    builder.bulk("calls", 1, kind=CallKind.OTHER, name=builder.name(WORKER_OF), bytes=of, site=-1, **common)
    text = {"kind": CallKind.OTHER, "name": builder.name(TOKENIZED), "site": site, "bytes": 1, **common}
    builder.bulk("calls", 1, begin=-50 * MS, **text)
    for number in range(-ahead, batches - ahead):
        begin = number * 10 * MS + MS
        builder.region("dataset", begin, begin + 5 * MS, pid=WORKER, tid=WORKER)
        moments = [begin + (at + 1) * MS // 4 for at in range(8)]
        builder.bulk("calls", 8, begin=moments, **text)
    return builder.build()


def test_workers_are_counted_by_whole_batches_however_far_they_are_ahead() -> None:
    for batches, ahead in ((10, 0), (12, 2), (14, 4), (7, 1)):
        found = counted(with_worker(batches, ahead=ahead), None)
        assert found.workers[TOKENIZED] == 80.0, f"{batches} batches, {ahead} ahead"
        assert "might_sync" not in found.workers, "they wait nowhere"
        assert found.totals[TOKENIZED] == 0.0, "not the stepping process's"
        assert found.worker_lines[CountedLine(TOKENIZED, "data.py", 3, "__getitem__", "")] == 80.0
    assert counted(with_worker(3, ahead=3), None).workers[TOKENIZED] == 80.0, "all were made before"
    assert counted(with_worker(10, of=PID + 1), None).workers == {}, "workers of another process are not ours"


def test_a_record_of_reads_stands_for_as_many_as_it_says() -> None:
    builder = RunBuilder(package="/profiler", device="cpu")
    builder.steps(2, 100 * MS)
    for number in (0, 5):
        row = {
            "kind": CallKind.MIGHT_SYNC,
            "name": builder.name("item"),
            "site": builder.site("train.py:9:main"),
            "bytes": number,
        }
        builder.bulk("calls", 1, begin=9 * MS, end=9 * MS, **row)
    lines = counted(builder.build(), None).lines
    assert lines[CountedLine("might_sync", "train.py", 9, "main", "item")] == 6.0, "a 0 of an older run is one"


def test_the_thread_with_most_steps_in_the_blocks_is_counted() -> None:
    builder = stepped(4)
    for number in range(6):  # an evaluation in a thread of its own, outside of the blocks
        builder.step((number + 10) * 10 * MS, (number + 11) * 10 * MS, tid=TID + 1, index=50 + number)
    assert counted(builder.build(), [(0, 40 * MS)]).totals == {"syncs": 4.0}


@pytest.mark.parametrize("blocks", [None, [(0, 40 * MS)]])
def test_the_first_rank_is_counted_whichever_is_ahead(blocks: list[tuple[int, int]] | None) -> None:
    for order in ((0, 1), (1, 0)):
        builder = RunBuilder()
        for rank in order:
            for number in range(4):
                begin = number * 10 * MS
                builder.step(begin, begin + 9 * MS + rank, pid=900 - rank, tid=5, rank=rank, index=number)
                builder.counter("syncs", 1 + rank, step=number, pid=900 - rank)
        assert counted(builder.build(), blocks).totals == {"syncs": 4.0}, "rank 0 counts 1, rank 1 counts 2"


# ---------------------------------------------------------------- really watched


LOADED = """import torch
from torch.utils.data import DataLoader


def make(batch):
    return torch.stack(batch) / torch.stack(batch).sum().item()


def train(data, model, optimizer):
    for _ in range(3):
        for batch in DataLoader(data, batch_size=4, shuffle=True, collate_fn=make):
            loss = model(batch).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
"""


def test_the_loss_counts_and_what_torchs_sampler_and_a_collate_read_does_not(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    dataloader = pytest.importorskip("torch.utils.data.dataloader")
    optimizer = pytest.importorskip("torch.optim.optimizer")
    file = tmp_path / "train.py"
    file.write_text(LOADED)
    space: dict[str, Callable[..., None]] = {}
    exec(compile(LOADED, str(file), "exec"), space)
    hooks = (
        (tensors.TENSORS, torch),
        (tensors.FUNCTIONS, torch),
        (loader.PLUGIN, dataloader),
        (optimizers.PLUGIN, optimizer),
    )
    model = torch.nn.Linear(4, 1)
    with watched(tmp_path, *hooks) as loaded:
        space["train"](torch.ones(8, 4), model, torch.optim.SGD(model.parameters(), lr=0.1))
        write_source_text(loaded().path, ProgramFiles(time.time()))
        found = counted(loaded(), None, folder=str(tmp_path))
    assert found.steps == 5
    assert found.totals["might_sync"] == 5.0, "the loss, between six optimizer steps"
    assert {line[2:6]: amount for line, amount in found.lines.items() if line.counter == "might_sync"} == {
        (16, "train", "item", "loss.item()"): 5.0
    }


# ---------------------------------------------------------------- real training in blocks of steps

TRAIN = """
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        x = torch.full((4,), float(i))
        return x / x.sum().clamp(min=1).item()

if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for number, batch in enumerate(DataLoader(Data(), batch_size=8, num_workers=2)):
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(loss.item())
"""
TRAINER = ("-m", "reference_trainer.lm", "--variant", "fixed", "--device", "host", "--max-chunks", "100000")
PLAIN = ("--warmup-seconds", "0")
"""A warm-up in seconds ends at another chunk each time."""


def processes(argv: tuple[str, ...], folder: Path, out: Path, number: int) -> list[Counted]:
    program = Program("candidate", (sys.executable, *argv), folder, hooked=argv[0] != "-m")
    paths = record_steps(program, out, [f"{folder.name}-{one}" for one in range(number)])
    return [counted(load(path), measured_spans(path), folder=str(folder)) for path in paths]


@pytest.mark.slow
def test_two_processes_of_a_program_with_loader_workers_count_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    base = processes(("train.py",), tmp_path, tmp_path / "runs", 2)
    assert base[0] == base[1], "two processes of the same program"
    assert base[0].totals["might_sync"] == 2.0, "every 10th of 20 steps"
    assert "might_sync" not in base[0].workers, "a data set's tensors are on the CPU in any program"
    assert not {"syncs", "h2d", "launches"} & {*base[0].totals, *base[0].workers}, "there is no device"


@pytest.mark.slow
def test_the_reference_trainer_counts_the_same_each_time(tmp_path: Path) -> None:
    found = processes((*TRAINER, *PLAIN), ROOT, tmp_path, 3)
    assert found[0] == found[1] == found[2]
    assert found[0].totals["syncs"] == found[0].steps == 20
