"""Boundaries that end a step, on constructed runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from profiler.report.text import step_text
from profiler.run.model import CollectorStatus, Run, StepDefinition, StepKind
from profiler.run.steps import add_steps, interpolate_cpu
from profiler.run.tables import NOT_READ, STEP_OF_ANOTHER_PROCESS, BoundaryKind
from tests.fakes.seeds import for_each_seed
from tests.recorded.builders import MS, PID, TID, RunBuilder, dtype_of

OPTIMIZER, LOADER = BoundaryKind.OPTIMIZER, BoundaryKind.LOADER


def seen(
    *events: tuple[str, float], kind: BoundaryKind = OPTIMIZER, flags: tuple[int, ...] = (), pid: int = PID
) -> Run:
    """A run in which each event (name, ms) was seen."""
    run = RunBuilder(collectors=[CollectorStatus("hooks", "ok")]).build()
    names = tuple(dict.fromkeys(name for name, _ in events))
    rows = np.zeros(len(events), dtype_of("boundaries"))
    for number, (name, ms) in enumerate(events):
        rows[number]["time"] = ms * MS
        rows[number]["thread_cpu"] = ms * MS // 2
        rows[number]["tid"], rows[number]["pid"] = TID, pid
        rows[number]["name"], rows[number]["kind"] = names.index(name), kind
        rows[number]["flag"] = flags[number] if flags else 0
    return replace(run, boundaries=rows, names=names)


def by_time(event: tuple[str, float]) -> float:
    return event[1]


def ends(run: Run) -> list[float]:
    return (run.steps["end"] / MS).tolist()


def test_a_step_lies_between_two_optimizer_steps() -> None:
    run = add_steps(seen(("AdamW (train.py:3)", 10), ("AdamW (train.py:3)", 14), ("AdamW (train.py:3)", 20)))
    assert (run.steps["begin"] / MS).tolist() == [10, 14]
    assert ends(run) == [14, 20]
    assert run.steps["index"].tolist() == [0, 1]
    assert (run.steps["thread_cpu"] / MS).tolist() == [2, 3]
    assert step_text(run.step) == "steps of AdamW (train.py:3)"


def test_cpu_times_that_were_not_read_lie_evenly_between_those_that_were() -> None:
    run = seen(("SGD", 10), ("SGD", 11), ("SGD", 13), ("SGD", 14), ("SGD", 15))
    rows = run.boundaries.copy()
    rows["process_cpu"] = 3 * rows["thread_cpu"]
    of_another = rows[:1].copy()
    of_another["tid"], of_another["thread_cpu"], of_another["time"] = TID + 1, 0, 12 * MS
    for column in ("thread_cpu", "process_cpu", "device_cpu"):
        rows[column][[1, 2, 4]] = NOT_READ  # behind the last reading it goes on as before
    of_another["process_cpu"] = 20 * MS
    filled = interpolate_cpu(np.concatenate([rows, of_another]))
    assert (filled["thread_cpu"] / MS).tolist() == [5, 5.5, 6.5, 7, 7.5, 0]
    assert (filled["process_cpu"] / MS).tolist() == [15, 17.5, 20.5, 21, 21.5, 20]
    assert (filled["device_cpu"] == 0).all()
    steps = add_steps(replace(run, boundaries=rows)).steps
    assert (steps["thread_cpu"] / MS).tolist() == [0.5, 1, 0.5, 0.5]


def steps_of(*phases: tuple[str, ...], **values: Any) -> StepDefinition:
    return StepDefinition(StepKind.OPTIMIZER, phases, **values)


def alternating(*names: str, begin: float = 0) -> list[tuple[str, float]]:
    """20 rounds of 10 ms, in which the optimizers step 1, 2, ... ms after its begin."""
    return [(name, begin + 10 * i + at) for i in range(20) for at, name in enumerate(names, 1)]


@pytest.mark.parametrize(
    ("events", "steps", "definition"),
    [
        # an optimizer for each layer: the last one ends the step
        (
            [(f"SGD #{layer}", 1000 * i + layer) for i in range(6) for layer in range(300)][:-120],
            4,
            steps_of(("SGD #299",), nested=tuple(sorted(f"SGD #{layer}" for layer in range(299)))),
        ),
        # a rare extra optimizer does not end the step
        (
            sorted([*[("main", i) for i in range(200)], *[("extra", i + 0.5) for i in range(0, 200, 50)]], key=by_time),
            199,
            steps_of(("main",), nested=("extra",)),
        ),
        # phases have rounds of their own
        (
            [*alternating("D", "G"), *alternating("actor", "critic", begin=1000)],
            39,
            steps_of(("G",), ("critic",), nested=("D", "actor")),
        ),
        # thousands of optimizers, one after another
        (
            [(f"o{number}", number * 10 + at) for number in range(3000) for at in range(5)],
            14_999,
            steps_of(*((f"o{number}",) for number in range(3000))),
        ),
        # bursts: each optimizer step is a step
        *[
            ([(name, 10 * at) for at, name in enumerate((["critic"] * critic + ["actor"] * actor) * 10)],
             10 * (critic + actor) - 1, steps_of(("critic", "actor")))
            for critic, actor in ((100, 20), (30, 10), (5, 5), (5, 2))
        ],
    ],
)  # fmt: skip
def test_what_a_step_is(events: list[tuple[str, float]], steps: int, definition: StepDefinition) -> None:
    run = add_steps(seen(*events))
    assert (len(run.steps), run.step) == (steps, definition)


@pytest.mark.parametrize("cut", range(4))
@pytest.mark.parametrize(
    ("a_round", "text"),
    [
        *[([*[("D", 1 + at) for at in range(critics)], ("G", 8)], "steps of G; within them D stepped too")
          for critics in (1, 2, 5)],
        ([("A", 1), ("B", 2), ("C", 8)], "steps of C; within them A, B stepped too"),
    ],
)  # fmt: skip
def test_the_last_optimizer_of_a_round_ends_the_step(a_round: list[tuple[str, float]], text: str, cut: int) -> None:
    events = [(name, 10 * i + at) for i in range(20) for name, at in a_round]
    run = add_steps(seen(*events[: len(events) - cut]))
    last = 20 - -(-cut // len(a_round))
    assert ends(run)[: last - 1] == [10 * i + 8 for i in range(1, last)]
    assert len(run.steps) - last in (-1, 0), "the last round may be cut off"
    assert step_text(run.step) == text


def test_an_optimizer_that_steps_in_another_thread_is_a_part_of_the_round() -> None:
    run = seen(*[(name, 10 * i + at) for i in range(20) for at, name in enumerate(("O #1", "O #2", "O #3", "main"))])
    run.boundaries["tid"][run.names.index("main") != run.boundaries["name"]] = 7
    run = add_steps(run)
    assert ends(run) == [10 * i + 3 for i in range(1, 20)]
    assert set(run.steps["tid"].tolist()) == {TID}


@pytest.mark.parametrize("pause", [1, 600_000])
def test_phases_are_taken_by_themselves_and_what_joins_them_is_not_measured(pause: int) -> None:
    events = [("first", i) for i in range(30)] + [("second", 29 + pause + i) for i in range(100)]
    run = add_steps(seen(*events))
    assert len(run.steps) == 129
    assert step_text(run.step) == "steps of first then second"
    assert np.flatnonzero(run.steps["warmup"]).tolist() == [0, 1, 2, 3, 4, 29]
    measured = run.steps[run.steps["warmup"] == 0]
    assert set((measured["end"] - measured["begin"]).tolist()) == {MS}


def test_more_critic_steps_now_and_then_do_not_change_what_a_step_is() -> None:
    counts = [100 if i < 5 or i % 100 == 0 else 5 for i in range(300)]
    names = [name for count in counts for name in [*["D"] * count, "G"]]
    run = add_steps(seen(*[(name, at) for at, name in enumerate(names)]))
    assert len(run.steps) > 299  # the first critic steps come before any round
    assert (
        run.boundaries["name"][np.searchsorted(run.boundaries["time"], run.steps["end"])][-290:].tolist() == [1] * 290
    )


@for_each_seed(20)
def test_whatever_comes_steps_follow_each_other(seed: int) -> None:
    random = np.random.default_rng(seed)
    often = random.dirichlet(np.ones(5) / 2)
    events = [(str(name), at) for at, name in enumerate(random.choice(list("abcde"), 300, p=often))]
    run = add_steps(seen(*events))
    assert (run.steps["begin"][1:] == run.steps["end"][:-1]).all()
    assert (run.steps["end"] > run.steps["begin"]).all()
    assert np.isin(run.steps["end"], run.boundaries["time"]).all()


def test_threads_that_train_side_by_side_have_steps_of_their_own() -> None:
    for names in (("SGD", "SGD"), ("SGD (train.py:3)", "SGD (train.py:3) #2")):
        run = seen(*[(names[at % 2], 5 * at) for at in range(100)])
        run.boundaries["tid"][1::2] = TID + 1
        values = np.zeros(100, dtype_of("values"))
        values["time"], values["step"], values["pid"] = run.boundaries["time"], -1, PID
        run = add_steps(replace(run, values=values))
        assert run.steps["index"].tolist() == list(range(98))
        for tid in (TID, TID + 1):
            own = run.steps[run.steps["tid"] == tid]
            assert len(own) == 49
            assert set((own["end"] - own["begin"]).tolist()) == {10 * MS}
        assert run.values["step"].tolist() == [-1, 0, *range(98)]


def test_threads_that_train_one_after_another_are_one_stream() -> None:
    run = seen(*[("SGD", at) for at in range(100)])
    run.boundaries["tid"][50:] = TID + 1
    assert len(add_steps(run).steps) == 99


@pytest.mark.parametrize(
    ("kind", "events", "flags", "expected", "unmeasured", "text"),
    [
        # what GradScaler skipped is a step
        (OPTIMIZER, [("SGD", i) for i in range(5)], (0, 0, 1, 0, 0), [1, 2, 3, 4], [],
         "steps of SGD, of which GradScaler skipped 1"),
        # without an optimizer a step is a batch; the pause between two epochs belongs to the batch before it
        (LOADER, [("DataLoader", ms) for ms in (0, 5, 10, 15, 30, 35, 40)], (0, 0, 0, 1, 0, 0, 1),
         [5, 10, 30, 35, 40], [], "batches of DataLoader: no optimizer stepped"),
        # of loaders that are asked together a round is a step
        (LOADER, alternating("one", "other"), (), [10 * i + 2 for i in range(1, 20)], [12, 22],
         "batches of other: no optimizer stepped"),
        # what lies between two loaders is no batch
        (LOADER, [*[("val", ms) for ms in (0, 5, 10)], *[("test", ms) for ms in (900, 905, 910)]], (0, 0, 1, 0, 0, 1),
         [5, 10, 900, 905, 910], [900], "batches of val then test: no optimizer stepped"),
    ],
)  # fmt: skip
def test_skipped_steps_and_batches(
    kind: BoundaryKind, events: Any, flags: Any, expected: list[float], unmeasured: list[int], text: str
) -> None:
    run = add_steps(seen(*events, kind=kind, flags=flags))
    assert ends(run) == expected
    assert (run.steps["end"][run.steps["warmup"] == 1] / MS).tolist() == unmeasured
    assert step_text(run.step) == text


def test_of_loaders_that_take_turns_each_batch_is_a_step() -> None:
    events, flags = [], []
    for epoch in range(10):
        for name, count, each, start in (("train", 100, 10, 0), ("val", 20, 3, 1000)):
            events += [(name, 2000 * epoch + start + each * at) for at in range(count + 1)]
            flags += [0] * count + [1]
    run = add_steps(seen(*events, kind=LOADER, flags=tuple(flags)))
    assert len(run.steps) == 1200
    assert np.median(run.steps["end"] - run.steps["begin"]) == 10 * MS
    assert step_text(run.step) == "batches of train and val alternating: no optimizer stepped"


def beside(batches: int, *optimizer: tuple[str, float]) -> Run:
    """A run of one batch each ms, in which optimizers stepped too."""
    run = seen(*sorted([*[("batches", at) for at in range(batches)], *optimizer], key=by_time))
    run.boundaries["kind"] = np.where(run.boundaries["name"] == run.names.index("batches"), LOADER, OPTIMIZER)
    return add_steps(run)


@pytest.mark.parametrize(
    ("batches", "optimizer", "often"),
    [(1000, [("Adam", 500.2), ("Adam", 501.2)], "2 times"), (100, [("LBFGS", 150)], "once")],
)
def test_a_few_optimizer_steps_beside_many_batches_are_not_the_steps(
    batches: int, optimizer: list[tuple[str, float]], often: str
) -> None:
    run = beside(batches, *optimizer)
    assert len(run.steps) == batches - 1
    assert step_text(run.step) == f"batches of batches: an optimizer stepped only {often}"


def test_a_few_optimizer_steps_of_many_batches_each_are_the_steps() -> None:
    assert ends(beside(1000, ("Adam", 499.5), ("Adam", 999.5))) == [999.5]
    assert len(beside(1000, *[("Adam", 100.5 + at) for at in range(100)]).steps) == 99


@pytest.mark.parametrize("names", [("SGD",), tuple(f"SGD #{layer}" for layer in range(9))])
def test_one_optimizer_step_without_a_loader_is_counted(names: tuple[str, ...]) -> None:
    run = seen(*[(name, at) for at, name in enumerate(names)])
    builder = RunBuilder()
    builder.stack(["train.py:1"], 0, 30 * MS, pid=PID, tid=PID)
    run = add_steps(replace(run, stacks=builder.build().stacks))
    assert ends(run) == [30]
    assert step_text(run.step).startswith(
        "the whole run as one step: an optimizer stepped only once, no DataLoader was used,"
    )


def test_batches_of_a_validation_are_no_steps_where_gradients_are_computed() -> None:
    events = [("DataLoader", 10 * i + at) for i in range(40) for at in range(4)]
    run = seen(*sorted([*events, *[("backward (a.py:3)", 10 * i + 0.5) for i in range(40)]], key=by_time))
    is_batch = run.boundaries["name"] == run.names.index("DataLoader")
    run.boundaries["kind"] = np.where(is_batch, LOADER, BoundaryKind.BACKWARD)
    run = add_steps(run)
    assert len(run.steps) == 39
    assert step_text(run.step) == "steps that end with backward (a.py:3): no optimizer stepped"


def test_a_few_backward_passes_beside_many_batches_are_not_the_steps() -> None:
    run = beside(1000, ("backward (a.py:3)", 500.2), ("backward (a.py:3)", 501.2))
    run.boundaries["kind"][run.boundaries["kind"] == OPTIMIZER] = BoundaryKind.BACKWARD
    assert len(add_steps(run).steps) == 999


def test_the_loader_does_not_count_where_an_optimizer_stepped() -> None:
    run = seen(("SGD", 1), ("DataLoader", 2), ("SGD", 3), ("DataLoader", 4))
    rows = run.boundaries.copy()
    rows["kind"][[1, 3]] = LOADER
    assert ends(add_steps(replace(run, boundaries=rows))) == [3]


def test_marked_steps_win() -> None:
    builder = RunBuilder()
    builder.step(0, 10 * MS)
    run = add_steps(replace(builder.build(), boundaries=seen(("SGD", 1), ("SGD", 2)).boundaries))
    assert ends(run) == [10]
    assert run.step == StepDefinition(StepKind.MARKED)


def test_values_go_to_the_step_in_which_they_were_written() -> None:
    run = seen(("SGD", 10), ("SGD", 20), ("SGD", 30))
    values = np.zeros(5, dtype_of("values"))
    values["time"] = np.array([5, 20, 21, 30, 31]) * MS
    values["step"], values["pid"] = -1, PID
    assert add_steps(replace(run, values=values)).values["step"].tolist() == [-1, 0, 1, 1, -1]


def test_the_process_with_the_most_steps_comes_first() -> None:
    one, other = seen(("SGD", 1), ("SGD", 2), ("SGD", 3)), seen(("SGD", 1), ("SGD", 2), pid=7)
    run = add_steps(replace(one, boundaries=np.concatenate([other.boundaries, one.boundaries])))
    assert list(zip(run.steps["pid"].tolist(), run.steps["index"].tolist(), strict=True)) == [
        (100, 0),
        (100, 1),
        (7, 0),
    ]


def test_the_first_tenth_is_warmup_and_at_most_five() -> None:
    assert add_steps(seen(*[("SGD", i) for i in range(4)])).steps["warmup"].sum() == 0
    assert add_steps(seen(*[("SGD", i) for i in range(31)])).steps["warmup"].tolist()[:4] == [1, 1, 1, 0]
    assert add_steps(seen(*[("SGD", i) for i in range(500)])).steps["warmup"].sum() == 5


@pytest.mark.parametrize("hooks", [True, False])
def test_without_any_boundary_the_run_is_one_step_where_hooks_looked(hooks: bool) -> None:
    builder = RunBuilder(collectors=[CollectorStatus("hooks", "ok")] if hooks else [])
    builder.stack(["train.py:1"], 5 * MS, 7 * MS, pid=9, tid=9)
    builder.stack(["train.py:1"], 7 * MS, 30 * MS, pid=9, tid=9)
    run = add_steps(builder.build())
    if not hooks:
        assert (len(run.steps), run.step) == (0, None), "nothing is made up"
        return
    assert (run.steps["begin"].tolist(), ends(run), run.steps["tid"].tolist()) == ([5 * MS], [30], [9])
    assert step_text(run.step) == (
        "the whole run as one step: no optimizer stepped, no DataLoader was used, "
        "and the program marks no steps (profiler.step())"
    )


def counted(run: Run) -> list[tuple[int, int, float]]:
    """(pid, step, amount) of every counter."""
    return [(int(row["pid"]), int(row["step"]), float(row["value"])) for row in run.values]


def test_what_workers_counted_belongs_to_the_step_that_was_open() -> None:
    builder = RunBuilder()
    builder.steps(3, 10 * MS, begin=100 * MS)
    for pid, time, step in (
        (7, 50, STEP_OF_ANOTHER_PROCESS),  # before the first step: of none
        (7, 105, STEP_OF_ANOTHER_PROCESS),
        (8, 110, STEP_OF_ANOTHER_PROCESS),  # at its very end: still of the first
        (8, 112, -1),  # what a hook wrote in the middle of the work
        (8, 125, STEP_OF_ANOTHER_PROCESS),
        (9, 125, -1),  # of a process that works for nobody
        (PID, 129, -1),  # what a hook wrote before the program marked its first step
    ):
        builder.counter("syncs", time, step=step, time=time * MS, pid=pid)
    found = counted(add_steps(builder.build()))
    assert found == [
        (PID, STEP_OF_ANOTHER_PROCESS, 50),
        (PID, 0, 105),
        (PID, 0, 110),
        (PID, 1, 112),
        (PID, 2, 125),
        (9, -1, 125),
        (PID, 2, 129),
    ]


def test_a_worker_with_steps_of_its_own_keeps_what_it_counted() -> None:
    builder = RunBuilder()
    builder.steps(3, 10 * MS)
    builder.step(0, 30 * MS, pid=7, index=0)
    builder.counter("syncs", 1, step=STEP_OF_ANOTHER_PROCESS, time=15 * MS, pid=7)
    builder.counter("syncs", 2, step=1, time=20 * MS)
    assert counted(add_steps(builder.build())) == [(7, 0, 1), (PID, 1, 2)]
