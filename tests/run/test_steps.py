"""Which moments end a step, on made-up runs."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.run.model import CollectorStatus, Run
from profiler.run.steps import MARKED, WHOLE_RUN, with_steps
from profiler.run.tables import BoundaryKind
from tests.recorded.builders import MS, PID, TID, RunBuilder, dtype_of

OPTIMIZER, LOADER = BoundaryKind.OPTIMIZER, BoundaryKind.LOADER


def seen(
    *events: tuple[str, float], kind: BoundaryKind = OPTIMIZER, flags: tuple[int, ...] = (), pid: int = PID
) -> Run:
    """A run in which each event (name, ms) was seen."""
    run = RunBuilder(collectors=[CollectorStatus("inside", "ok")]).build()
    names = tuple(dict.fromkeys(name for name, _ in events))
    rows = np.zeros(len(events), dtype_of("boundaries"))
    for number, (name, ms) in enumerate(events):
        rows[number]["time"] = ms * MS
        rows[number]["thread_cpu"] = ms * MS // 2
        rows[number]["tid"], rows[number]["pid"] = TID, pid
        rows[number]["name"], rows[number]["kind"] = names.index(name), kind
        rows[number]["flag"] = flags[number] if flags else 0
    return replaced(run, boundaries=rows, names=names)


def replaced(run: Run, **changes: object) -> Run:
    from dataclasses import replace

    return replace(run, **changes)  # type: ignore[arg-type]


def ends(run: Run) -> list[float]:
    return (run.steps["end"] / MS).tolist()


def test_a_step_lies_between_two_optimizer_steps() -> None:
    run = with_steps(seen(("AdamW (train.py:3)", 10), ("AdamW (train.py:3)", 14), ("AdamW (train.py:3)", 20)))
    assert (run.steps["begin"] / MS).tolist() == [10, 14]
    assert ends(run) == [14, 20]
    assert run.steps["index"].tolist() == [0, 1]
    assert (run.steps["thread_cpu"] / MS).tolist() == [2, 3]
    assert run.step_source == "steps of AdamW (train.py:3)"


def test_of_a_gan_the_seldomer_optimizer_ends_the_step() -> None:
    events = [(name, 10 * i + at) for i in range(20) for name, at in (("D", 1), ("D", 3), ("D", 5), ("G", 8))]
    run = with_steps(seen(*events))
    assert ends(run) == [10 * i + 8 for i in range(1, 20)]
    assert run.step_source == "steps of G; within them D stepped too"


@pytest.mark.parametrize("cut", range(4))
def test_of_equally_frequent_optimizers_the_last_of_the_round_ends_the_step(cut: int) -> None:
    events = [(name, 10 * i + at) for i in range(20) for name, at in (("A", 1), ("B", 2), ("C", 3))]
    run = with_steps(seen(*events[: len(events) - cut]))
    assert ends(run)[:3] == [13, 23, 33]
    assert all(end % 10 == 3 for end in ends(run)[:-1])


def test_a_rare_extra_optimizer_does_not_end_the_step() -> None:
    events = [("main", i) for i in range(200)] + [("codebook", i + 0.5) for i in range(0, 200, 50)]
    run = with_steps(seen(*sorted(events, key=lambda event: event[1])))
    assert len(run.steps) == 199
    assert run.step_source == "steps of main; within them codebook stepped too"


def test_phases_are_taken_by_themselves() -> None:
    events = [("first", i) for i in range(30)] + [("second", 30 + i) for i in range(100)]
    run = with_steps(seen(*events))
    assert len(run.steps) == 129
    assert run.step_source == "steps of first then second"


def test_what_the_scaler_skipped_is_a_step_and_is_told() -> None:
    run = with_steps(seen(*[("SGD", i) for i in range(5)], flags=(0, 0, 1, 0, 0)))
    assert len(run.steps) == 4
    assert run.step_source == "steps of SGD, of which GradScaler skipped 1"


def test_without_an_optimizer_a_step_is_a_batch() -> None:
    events = [("DataLoader", ms) for ms in (0, 5, 10, 15, 30, 35, 40)]
    run = with_steps(seen(*events, kind=LOADER, flags=(0, 0, 0, 1, 0, 0, 1)))
    assert ends(run) == [5, 10, 30, 35, 40]  # the pause between two epochs belongs to the batch before it
    assert run.step_source == "batches of DataLoader: no optimizer stepped"


def test_the_loader_does_not_count_where_an_optimizer_stepped() -> None:
    run = seen(("SGD", 1), ("DataLoader", 2), ("SGD", 3), ("DataLoader", 4))
    rows = run.boundaries.copy()
    rows["kind"][[1, 3]] = LOADER
    assert ends(with_steps(replaced(run, boundaries=rows))) == [3]


def test_marked_steps_win() -> None:
    builder = RunBuilder()
    builder.step(0, 10 * MS)
    run = with_steps(replaced(builder.build(), boundaries=seen(("SGD", 1), ("SGD", 2)).boundaries))
    assert ends(run) == [10]
    assert run.step_source == MARKED


def test_values_go_to_the_step_in_which_they_were_written() -> None:
    run = seen(("SGD", 10), ("SGD", 20), ("SGD", 30))
    values = np.zeros(5, dtype_of("values"))
    values["time"] = np.array([5, 20, 21, 30, 31]) * MS
    values["step"], values["pid"] = -1, PID
    assert with_steps(replaced(run, values=values)).values["step"].tolist() == [-1, 0, 1, 1, -1]


def test_each_process_has_its_own_steps() -> None:
    one, other = seen(("SGD", 1), ("SGD", 2), ("SGD", 3)), seen(("SGD", 1), ("SGD", 2), pid=7)
    run = with_steps(replaced(one, boundaries=np.concatenate([one.boundaries, other.boundaries])))
    assert sorted(zip(run.steps["pid"].tolist(), run.steps["index"].tolist(), strict=True)) == [
        (7, 0),
        (100, 0),
        (100, 1),
    ]


def test_the_first_tenth_is_warmup_and_at_most_five() -> None:
    assert with_steps(seen(*[("SGD", i) for i in range(4)])).steps["warmup"].sum() == 0
    assert with_steps(seen(*[("SGD", i) for i in range(31)])).steps["warmup"].tolist()[:4] == [1, 1, 1, 0]
    assert with_steps(seen(*[("SGD", i) for i in range(500)])).steps["warmup"].sum() == 5


def test_without_any_boundary_the_run_is_one_step() -> None:
    builder = RunBuilder(collectors=[CollectorStatus("inside", "ok")])
    builder.stack(["train.py:1"], 5 * MS, 7 * MS, pid=9, tid=9)
    builder.stack(["train.py:1"], 7 * MS, 30 * MS, pid=9, tid=9)
    run = with_steps(builder.build())
    assert (run.steps["begin"].tolist(), ends(run), run.steps["tid"].tolist()) == ([5 * MS], [30], [9])
    assert run.step_source == WHOLE_RUN


def test_without_hooks_nothing_is_made_up() -> None:
    builder = RunBuilder()
    builder.stack(["train.py:1"], 5 * MS, 7 * MS, pid=9, tid=9)
    run = with_steps(builder.build())
    assert not len(run.steps)
    assert not run.step_source
