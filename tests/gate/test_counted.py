"""What is counted in which steps, by whom and where: of made-up runs, and of programs that hooks really watch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.base.errors import ProfilerError
from profiler.gate.counted import counted
from profiler.inside.hooks import functions, optimizers, tensors
from profiler.run.model import CollectorStatus, Run
from profiler.run.tables import RECOMPILED, TOKENIZED, WORKER_OF, CallKind
from tests.fakes.watched import watched
from tests.recorded.builders import MS, PID, TID, RunBuilder

WORKER = 200


def no_text(file: str, line: int) -> str:
    return f"text {line}"


def stepped(steps: int = 10, **facts: object) -> RunBuilder:
    """Steps of 10 ms with one sync each, at train.py:5."""
    builder = RunBuilder(**facts)  # type: ignore[arg-type]
    builder.steps(steps, 10 * MS)
    for number in range(steps):
        builder.counter("syncs", 1, step=number)
        builder.call(CallKind.SYNC, number * 10 * MS + MS, number * 10 * MS + 2 * MS, site="train.py:5:main")
    return builder


def test_all_measured_steps_count_where_there_are_no_turns() -> None:
    builder = stepped(5)
    builder.step(50 * MS, 60 * MS, warmup=True)
    builder.counter("syncs", 7, step=5)
    found = counted(builder.build(), (), text=no_text)
    assert (found.steps, found.totals) == (5, {"syncs": 5.0})
    assert found.sites == {("syncs", "train.py", "main", "sync"): (5.0, 5)}
    assert found.lines == {("syncs", "train.py", "main", "sync"): ((5, 5.0, "text 5"),)}


def test_only_steps_that_end_in_a_turn_count() -> None:
    run = stepped(10).build()
    turns = [(70 * MS, 90 * MS), (20 * MS, 40 * MS)]
    found = counted(run, turns)
    assert (found.steps, found.totals["syncs"]) == (4, 4.0), "20-30, 30-40, 70-80, 80-90"
    assert found.sites["syncs", "train.py", "main", "sync"][0] == 4.0
    late = [(20 * MS + 1000, 40 * MS + 1000)]
    assert counted(run, late).steps == 2, "a step is stamped before the turn that it ends is, and after the pause"


def test_a_warm_up_of_the_program_is_no_warm_up_of_a_turn() -> None:
    builder = RunBuilder()
    builder.steps(4, 10 * MS, warmup=True)
    builder.counter("syncs", 3, step=1)
    assert counted(builder.build(), [(0, 40 * MS)]).totals == {"syncs": 3.0}


@pytest.mark.parametrize("turns", [(), [(500 * MS, 600 * MS)]])
def test_nothing_to_count_is_an_error(turns: list[tuple[int, int]]) -> None:
    run = stepped(3).build() if turns else RunBuilder().build()
    with pytest.raises(ProfilerError, match="nothing can be counted in synthetic: no step"):
        counted(run, turns)


def test_what_was_not_recorded_to_its_end_is_not_counted() -> None:
    run = replace(
        stepped().build(), problems=("source-1: could not write on to the end; its later records are missing",)
    )
    with pytest.raises(ProfilerError, match="is not all there: source-1"):
        counted(run, ())


def test_a_0_is_said_of_what_hooks_watched_and_of_nothing_else() -> None:
    hooked = counted(stepped(package="/profiler").build(), ()).totals
    assert hooked == {
        "syncs": 10.0,
        **dict.fromkeys(("would_sync", "h2d", "d2h", "h2d_bytes", "d2h_bytes", "tokenized", "recompilations"), 0.0),
    }
    failed = [CollectorStatus("hook tensors", "failed", "TypeError")]
    lacking = counted(stepped(package="/profiler", collectors=failed).build(), ()).totals
    assert lacking == {"syncs": 10.0, "tokenized": 0.0, "recompilations": 0.0}
    assert counted(stepped().build(), ()).totals == {"syncs": 10.0}


def test_times_and_the_second_source_of_syncs_are_no_amounts() -> None:
    builder = stepped(1)
    for name in ("compile_ns", "wait_s", "load_seconds", "debug_syncs", "debug_syncs_seen", "batches"):
        builder.counter(name, 1, step=0)
    assert counted(builder.build(), ()).totals == {"syncs": 1.0, "batches": 1.0}


def test_each_call_is_of_the_counters_that_it_adds_to() -> None:
    builder = RunBuilder()
    builder.step(0, 100 * MS)
    for number, kind in enumerate((CallKind.WOULD_SYNC, CallKind.ALLOC, CallKind.LAUNCH, CallKind.EVENT)):
        builder.call(kind, number * MS, number * MS + 1, site="train.py:1")
    builder.call(CallKind.H2D, 20 * MS, 21 * MS, bytes=100, site="train.py:2")
    builder.call(CallKind.D2H, 30 * MS, 31 * MS, bytes=8, blocked=MS, site="train.py:3")
    for name, size in ((TOKENIZED, 32), (RECOMPILED, 0), ("all_reduce", 9)):
        name_of = builder.name(name)
        site = builder.site("train.py:4")
        builder.bulk("calls", 1, begin=40 * MS, end=40 * MS, kind=CallKind.OTHER, name=name_of, site=site, bytes=size)
    found = {(key[0], key[3]): amount for key, (amount, _) in counted(builder.build(), ()).sites.items()}
    assert found == {
        ("would_sync", ""): 1.0,  # an operation that has the counter's name says nothing more
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


def test_a_call_without_a_line_is_at_no_file() -> None:
    builder = RunBuilder()
    builder.step(0, 100 * MS)
    builder.call(CallKind.SYNC, MS, 2 * MS)
    assert counted(builder.build(), ()).lines == {("syncs", "", "", "sync"): ((0, 1.0, ""),)}


def test_files_are_told_from_the_folder_of_the_program() -> None:
    builder = RunBuilder(cwd="/said")
    builder.step(0, 100 * MS)
    builder.call(CallKind.SYNC, MS, 2 * MS, site="/said/lib/a.py:1")
    run = builder.build()
    assert next(iter(counted(run, ()).sites))[1] == "lib/a.py"
    assert next(iter(counted(run, (), folder="/said/lib").sites))[1] == "a.py", "who started it knows better"


def with_worker(batches: int, *, ahead: int = 0, of: int = PID) -> Run:
    """A worker that makes a batch of 8 samples every 10 ms, with an `.item()` each; and something at its start."""
    builder = stepped(10, package="/profiler")
    site = builder.site("data.py:3:__getitem__")
    common = {"pid": WORKER, "tid": WORKER}
    builder.bulk("calls", 1, kind=CallKind.OTHER, name=builder.name(WORKER_OF), bytes=of, site=-1, **common)
    builder.bulk("calls", 1, kind=CallKind.WOULD_SYNC, name=builder.name("item"), site=site, begin=-50 * MS, **common)
    for number in range(-ahead, batches - ahead):
        begin = number * 10 * MS + MS
        builder.region("dataset", begin, begin + 5 * MS, pid=WORKER, tid=WORKER)
        moments = [begin + (at + 1) * MS // 4 for at in range(8)]
        builder.bulk(
            "calls", 8, kind=CallKind.WOULD_SYNC, name=builder.name("item"), site=site, begin=moments, **common
        )
    return builder.build()


def test_workers_are_counted_by_whole_batches_however_far_they_are_ahead() -> None:
    for batches, ahead in ((10, 0), (12, 2), (14, 4), (7, 1)):
        found = counted(with_worker(batches, ahead=ahead), (), text=no_text)
        assert found.workers["would_sync"] == 80.0, f"{batches} batches, {ahead} ahead"
        assert found.totals["would_sync"] == 0.0, "not the stepping process's"
        assert found.worker_lines["would_sync", "data.py", "__getitem__", "item"] == ((3, 80.0, "text 3"),)
    assert counted(with_worker(3, ahead=3), ()).workers["would_sync"] == 80.0, "all were made before"


def test_workers_of_another_process_are_not_ours() -> None:
    assert counted(with_worker(10, of=PID + 1), ()).workers == {}


def test_the_thread_with_most_steps_in_the_turns_is_counted() -> None:
    builder = stepped(4)
    for number in range(6):  # an evaluation in a thread of its own, outside of the turns
        builder.step((number + 10) * 10 * MS, (number + 11) * 10 * MS, tid=TID + 1, index=50 + number)
    assert counted(builder.build(), [(0, 40 * MS)]).totals == {"syncs": 4.0}


@pytest.mark.parametrize("turns", [(), [(0, 40 * MS)]])
def test_of_ranks_the_first_is_counted_whichever_is_ahead(turns: list[tuple[int, int]]) -> None:
    for order in ((0, 1), (1, 0)):
        builder = RunBuilder()
        for rank in order:
            for number in range(4):
                begin = number * 10 * MS
                builder.step(begin, begin + 9 * MS + rank, pid=900 - rank, tid=5, rank=rank, index=number)
                builder.counter("syncs", 1 + rank, step=number, pid=900 - rank)
        assert counted(builder.build(), turns).totals == {"syncs": 4.0}, "rank 0 counts 1, rank 1 counts 2"


# ---------------------------------------------------------------- really watched


@pytest.fixture
def trained(tmp_path: Path) -> Callable[[str], Run]:
    """Runs the lines in a loop of six steps in this process, with the hooks of a recorded program."""
    torch = pytest.importorskip("torch")
    optimizer = pytest.importorskip("torch.optim.optimizer")

    def run(body: str, name: str) -> Run:
        file = tmp_path / "train.py"
        source = f"def train(model, optimizer):\n    for _ in range(6):\n        loss = model(ones).mean()\n{body}"
        source += "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n"
        file.write_text(source)
        (tmp_path / name).mkdir()
        model = torch.nn.Linear(4, 1)
        space = {"ones": torch.ones(2, 4), "torch": torch}
        exec(compile(source, str(file), "exec"), space)
        hooks = ((tensors.PLUGIN, torch), (functions.PLUGIN, torch), (optimizers.PLUGIN, optimizer))
        with watched(tmp_path / name, *hooks) as loaded:
            space["train"](model, torch.optim.SGD(model.parameters(), lr=0.1))
            return loaded()

    numbers = iter(range(100))
    return lambda body: run(body, f"run-{next(numbers)}")


def test_an_added_item_is_counted_at_its_line(trained: Callable[[str], Run], tmp_path: Path) -> None:
    plain = counted(trained(""), (), folder=str(tmp_path))
    added = counted(trained("        float(loss.item())\n"), (), folder=str(tmp_path))
    assert plain.steps == added.steps == 5, "of six optimizer steps, the first begins the first"
    assert plain.totals.get("would_sync", 0.0) == 0.0
    assert added.totals["would_sync"] == 5.0
    assert added.lines == {("would_sync", "train.py", "train", "item"): ((4, 5.0, "float(loss.item())"),)}
