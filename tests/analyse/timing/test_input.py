"""Parts of the input: summed over workers, cut at the measured steps, the innermost counted, inline work kept apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model.input import InputPart
from profiler.analyse.timing.input import input_measures, input_parts, loader_use
from profiler.analyse.window import measured_window
from profiler.report.text import input_part
from profiler.run.model import Run
from profiler.run.steps import add_steps
from profiler.run.tables import WORKER_OF, BoundaryKind, CallKind
from tests.recorded.builders import MS, PID, RunBuilder, timeline

STEPS = 10
LENGTH = 10 * MS


def parts(run: Run) -> dict[tuple[str, str], InputPart]:
    all_parts = input_parts(run, measured_window(run))
    assert [part.seconds_per_step for part in all_parts] == sorted(
        (p.seconds_per_step for p in all_parts), reverse=True
    )
    return {(part.where, input_part(part)): part for part in all_parts}


def stepping(**options: object) -> RunBuilder:
    builder = RunBuilder(**options)  # type: ignore[arg-type]
    builder.steps(STEPS, LENGTH)
    return builder


def worker(builder: RunBuilder, pid: int, *, begin: int = -20 * MS, until: int = STEPS * LENGTH) -> None:
    """Starts, then over and over 3 ms of waiting, 6 ms of dataset with 2 ms of tokenizer and 1 ms of collate in it."""
    builder.region("worker start", begin, begin + 20 * MS, pid=pid, tid=pid)
    for at in range(begin + 20 * MS, until, LENGTH):
        builder.region("waiting for an index", at, at + 3 * MS, pid=pid, tid=pid)
        builder.region("dataset", at + 3 * MS, at + 9 * MS, pid=pid, tid=pid)
        builder.region("tokenize", at + 4 * MS, at + 6 * MS, depth=1, pid=pid, tid=pid)
        builder.region("collate", at + 8 * MS, at + 9 * MS, depth=1, pid=pid, tid=pid)
        builder.region("send", at + 9 * MS, at + 10 * MS, pid=pid, tid=pid + 1)


def test_without_records_there_are_no_parts() -> None:
    run = stepping().build()
    assert parts(run) == {}
    assert input_measures(run, measured_window(run)) == {}
    assert input_parts(RunBuilder().build(), measured_window(RunBuilder().build())) == ()


def test_workers_are_summed_and_shared_out() -> None:
    builder = stepping()
    for pid in (200, 300):
        worker(builder, pid)
    for step in range(STEPS):
        builder.region("data", step * LENGTH, step * LENGTH + 4 * MS)
    run = builder.build()
    by_name = parts(run)
    shares = {name: (1e3 * part.seconds_per_step, part.share) for (where, name), part in by_name.items()}
    assert shares == {
        "dataset": pytest.approx((6.0, 0.3)),
        "waiting for an index": pytest.approx((6.0, 0.3)),
        "tokenize": pytest.approx((4.0, 0.2)),
        "waiting for the workers": pytest.approx((4.0, 0.4)),
        "collate": pytest.approx((2.0, 0.1)),
        "between batches": pytest.approx((2.0, 0.1)),
        "send": pytest.approx((2.0, 0.1)),
    }, "the start lies before the measured steps"
    assert by_name["main process", "waiting for the workers"].site is None
    assert input_measures(run, measured_window(run))["loader_workers"].value == 2


def test_the_use_of_a_loader_and_the_processor_time_of_its_workers() -> None:
    builder = stepping()
    for pid, used in ((200, 0.5), (300, 0.1)):
        worker(builder, pid)
        for at in (-5, 1, 5, 9):  # the first one lies before the measured steps
            builder.sample("process.cpu_s", at * LENGTH, used * at * LENGTH / 1e9, pid=pid)
            builder.sample("thread.wait_s", at * LENGTH, 0.2 * at * LENGTH / 1e9, pid=pid, tid=pid)
            builder.sample("thread.wait_s", at * LENGTH, 0.9 * at * LENGTH / 1e9, pid=pid, tid=pid + 1)
    for step in range(STEPS):
        builder.region("data", step * LENGTH, step * LENGTH + MS)
        builder.region("data", step * LENGTH + 5 * MS, step * LENGTH + 6 * MS)
    builder.region("loader start", 5 * LENGTH, 5 * LENGTH + MS)
    run = builder.build()
    use = loader_use(run, measured_window(run))
    assert use is not None
    assert (use.batches, use.starts, use.workers) == (2.0, 0.1, 2)
    assert (use.worker_cpu, use.worker_core_wait) == (pytest.approx(0.3), pytest.approx(0.2))
    assert use.busiest_worker == pytest.approx(0.7)


def test_waits_around_starts_of_a_loader() -> None:
    """The first request of each worker after a start, and the last one of an epoch, which ends the workers."""
    builder = stepping()
    for pid in (200, 300):
        worker(builder, pid)
    for number in range(STEPS):
        at = number * LENGTH
        builder.boundary(at, BoundaryKind.LOADER, name="DataLoader (train.py:3)")
        builder.region("data", at, at + MS)
    builder.boundary(5 * LENGTH - 4 * MS, BoundaryKind.LOADER, name="DataLoader (train.py:3)", flag=1)
    builder.region("data", 5 * LENGTH - 4 * MS, 5 * LENGTH - 2 * MS)
    builder.region("loader start", 5 * LENGTH - 2 * MS, 5 * LENGTH - MS)
    run = builder.build()
    use = loader_use(run, measured_window(run))
    assert use is not None
    assert use.around_starts == pytest.approx((2 + 2 * 1) / 1e3 / STEPS)
    assert (use.workers, use.worker_processes) == (2, 2)


def test_the_busiest_worker_is_one_that_works_for_most_of_the_steps() -> None:
    builder = stepping()
    worker(builder, 200)
    worker(builder, 300, until=6 * LENGTH)
    builder.region("dataset", STEPS * LENGTH - MS, STEPS * LENGTH, pid=300, tid=300)  # it does not wait after its sixth
    worker(builder, 400, begin=8 * LENGTH)
    builder.region("waiting for an index", STEPS * LENGTH - MS, STEPS * LENGTH, pid=400, tid=401)
    builder.region("data", 0, MS)
    run = builder.build()
    use = loader_use(run, measured_window(run))
    assert use is not None
    assert use.busiest_worker == pytest.approx(1.0 - 6 * 0.03)
    fact = {"file": "train.py", "line": 1, "function": "f", "variable": "", "batch_size": 8, "num_workers": 2}
    fact |= {"prefetch_factor": 2, "pin_memory": False, "persistent_workers": False, "in_order": False}
    facts = {**run.info.facts, "loaders": {"A": fact}}
    unordered = replace(run, info=replace(run.info, facts=facts))
    use = loader_use(unordered, measured_window(unordered))
    assert use is not None
    assert use.busiest_worker == 0.0, "a loader that takes batches as they come waits for none of them"


def test_what_was_not_sampled_of_workers_is_not_measured() -> None:
    builder = stepping()
    worker(builder, 200)
    builder.region("data", 0, MS)
    run = builder.build()
    use = loader_use(run, measured_window(run))
    assert use is not None
    assert (use.worker_cpu, use.worker_core_wait) == (None, None)
    without = stepping().build()
    assert loader_use(without, measured_window(without)) is None


def test_workers_of_one_epoch_after_the_other_are_not_added_up() -> None:
    builder = stepping()
    worker(builder, 200, until=5 * LENGTH)
    worker(builder, 300, begin=6 * LENGTH)
    run = builder.build()
    assert input_measures(run, measured_window(run))["loader_workers"].value == 1
    by_name = parts(run)
    assert by_name["worker", "worker start"].seconds_per_step == pytest.approx(2e-3)
    assert by_name["worker", "dataset"].share == pytest.approx(7 * 3 / 90)


def test_without_workers_the_parts_lie_within_the_wait() -> None:
    step = (
        "data {0} {6}; dataset {1} {5} depth=1; tokenize {2} {4} depth=2; tokenize {7} {8}; backward {8} {9};"
        "pin_memory {0} {3} thread=102"
    )
    text = "; ".join(step.format(*range(at, at + 10)) for at in range(0, STEPS * 10, 10))
    shares = {name: part.share for (_, name), part in parts(timeline(f"steps {STEPS} 10; {text}", tick=MS)).items()}
    assert shares == pytest.approx(
        {
            "pin memory, in a thread of its own": 0.3,
            "the loader itself": 0.2,
            "dataset": 0.2,
            "tokenize": 0.2,
            "tokenize, outside of a loader": 0.1,
        }
    )


def test_a_part_has_the_line_that_was_recorded_before_it() -> None:
    builder = stepping()
    for at, site in ((0, "train.py:7:Rows.__getitem__"), (5 * LENGTH, "check.py:9:Check.__getitem__")):
        builder.named_call(CallKind.OTHER, "dataset", at, at, site=site)
    for step in range(STEPS):
        builder.region("dataset", step * LENGTH + 1, step * LENGTH + 4 * MS)
    run = builder.build()
    assert [(str(part.site), round(part.share, 3)) for part in input_parts(run, measured_window(run))] == [
        ("check.py:9 (Check.__getitem__)", 0.2),
        ("train.py:7 (Rows.__getitem__)", 0.2),
    ]


def test_another_ranks_workers_are_not_ours() -> None:
    builder = stepping()
    builder.bulk(
        "regions", 1, begin=0, end=50 * MS, pid=700, tid=700, rank=1, name=builder.name("waiting for an index")
    )
    assert parts(builder.build()) == {}


def test_workers_of_another_stepping_process_are_not_ours() -> None:
    builder = stepping()
    builder.step(0, LENGTH, pid=PID + 1)
    for pid, parent in ((200, PID), (300, PID + 1), (400, 7)):
        worker(builder, pid)
        builder.bulk("calls", 1, pid=pid, tid=pid, kind=int(CallKind.OTHER), name=builder.name(WORKER_OF), bytes=parent)
    run = builder.build()
    assert input_measures(run, measured_window(run))["loader_workers"].value == 2, "whose the third is, nobody knows"


@pytest.mark.parametrize(
    ("hooks", "loader", "name"),
    [
        (True, False, "its region data, outside of a loader"),
        (True, True, "the loader itself"),
        (False, False, "the loader itself"),
    ],
)
def test_a_region_data_of_the_programs_own_is_no_loader(hooks: bool, loader: bool, name: str) -> None:
    builder = stepping(**({"package": "/somewhere/profiler"} if hooks else {}))
    for step in range(STEPS):
        builder.region("data", step * LENGTH, step * LENGTH + 2 * MS)
    if loader:
        builder.boundary(0, BoundaryKind.LOADER, name="DataLoader (train.py:3)")
    by_name = parts(add_steps(builder.build()))
    assert {key: part.share for key, part in by_name.items()} == {("main process", name): pytest.approx(0.2)}


def test_the_loader_that_takes_the_time_comes_first() -> None:
    setting = {"file": "train.py", "function": "f", "variable": "", "batch_size": 8, "num_workers": 0}
    setting |= {"prefetch_factor": None, "pin_memory": True, "persistent_workers": False}
    builder = stepping(
        loaders={
            "A": setting | {"line": 1},
            "B": setting | {"line": 2, "num_workers": 3, "iterable": True, "made_anew": True},
        }
    )
    for step in range(STEPS):
        for name, offset, length in (("A", 0, MS), ("B", 5 * MS, 4 * MS)):
            at = step * LENGTH + offset
            builder.boundary(at, BoundaryKind.LOADER, name=name)
            builder.region("data", at, at + length)
    builder.region("loader start", 5 * LENGTH + 4 * MS, 5 * LENGTH + 5 * MS - 1)
    run = builder.build()
    use = loader_use(run, measured_window(run))
    assert use is not None
    first, second = use.loaders
    assert (first.name, first.workers, first.site.line, first.batch_size, first.pin_memory) == ("B", 3, 2, 8, True)
    assert first.share == pytest.approx(41 / 51, abs=0.001), "its start is before its first request"
    assert second.share == pytest.approx(10 / 51, abs=0.001)
    assert (first.is_iterable, second.is_iterable) == (True, False)
    assert (first.made_anew, second.made_anew) == (True, None), "runs of earlier versions do not tell"


def test_the_only_loader_of_a_program_that_marks_its_steps_is_known() -> None:
    setting = {"file": "train.py", "line": 3, "function": "f", "variable": "train", "batch_size": None}
    setting |= {"num_workers": 0, "prefetch_factor": None, "pin_memory": False, "persistent_workers": False}
    builder = stepping(loaders={"A": setting})
    for step in range(STEPS):
        builder.region("data", step * LENGTH, step * LENGTH + MS)
    run = builder.build()
    use = loader_use(run, measured_window(run))
    assert use is not None
    assert [(each.variable, each.share) for each in use.loaders] == [("train", 1.0)]


@pytest.mark.parametrize(
    ("host", "samples", "free"),
    [
        ({"cores": 4}, "sample machine.cpu_util 50 0.5 pid=0; sample process.cpu 50 1.0 pid=1", 2.0),
        # the program may use 4 of many cores, half of all cores are idle, and it uses 3 itself
        ({"cores": 4}, "sample machine.cpu_util 50 0.5 pid=0; sample process.cpu 50 3.0 pid=1", 1.0),
        # a program of lower priority uses a quarter of the cores
        (
            {"cores": 4},
            "sample machine.cpu_util 50 1 pid=0; sample process.cpu 50 1 pid=1; sample machine.low_priority 50 0.25",
            1.0,
        ),
        ({"cores": 4, "cpu_quota": 1.5}, "sample machine.cpu_util 50 0.2 pid=0; sample process.cpu 50 1.0 pid=1", 0.5),
        ({"cores": 4}, "sample machine.cpu_util 5000 0.5 pid=0; sample process.cpu 5000 1.0 pid=1", None),
        ({}, "sample machine.cpu_util 50 0.5 pid=0; sample process.cpu 50 1.0 pid=1", None),
    ],
)
def test_cores_that_nothing_uses(host: dict[str, float], samples: str, free: float | None) -> None:
    run = timeline(f"steps 10 10; data 0 5; {samples}", tick=MS, host=host)
    use = loader_use(run, measured_window(run))
    assert use is not None
    assert use.free_cores == (free if free is None else pytest.approx(free))
