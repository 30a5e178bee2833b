"""Tests which recordings a comparison makes, in which order, and what happens when one of them fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from profiler.core.errors import Exit, ProfilerError
from profiler.record import schedule as module
from profiler.record.schedule import (
    RecordedRuns,
    SideCommand,
    Task,
    describe_plan,
    record_all,
    schedule,
    shuffled_schedule,
)
from profiler.run.model import RunInfo, RunSpec
from tests.fakes.recordings import FakeRecord

SIDES = (SideCommand("before", ("a",)), SideCommand("after", ("b",), warmup=("b", "--short")))
OURS = tuple(replace(side, ours=True) for side in SIDES)
FLOOR = SideCommand("floor", ("a", "--empty"))
MANY = tuple(SideCommand(f"program {n}", (str(n),), folder=f"p{n}") for n in range(5))


def shuffled(rounds: int, programs: tuple[SideCommand, ...] = MANY) -> list[Task]:
    return list(shuffled_schedule(programs, rounds, FLOOR, warmed=("program 0",), detailed=("program 1", "program 0")))


Make = Callable[..., RecordedRuns]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Calls record_all; `fake` makes the runs."""

    def make(tasks: Sequence[Task], fake: Callable[[Any], Any] | None = None, out: Path = tmp_path) -> RecordedRuns:
        monkeypatch.setattr(module, "record", fake or FakeRecord())
        return record_all(tasks, out, lambda number, task: None)

    return make


def failing(folder: str, code: int, output: str) -> Callable[[Any], Any]:
    """Makes all runs but that in `folder`, whose program prints `output` and exits with `code`."""
    fake = FakeRecord(hooks={folder: lambda: {"exit_code": code, "state": "failed"}})

    def record(spec: Any) -> Any:
        info = fake(spec)
        if spec.out.name == folder:
            (spec.out / "output.log").write_bytes(output.encode(errors="surrogateescape"))
        return info

    return record


def interrupt() -> dict[str, Any]:
    raise KeyboardInterrupt


# ---------------------------------------------------------------- orders


def test_rounds_alternate_and_the_floor_is_in_the_first_and_the_last() -> None:
    assert [task.folder for task in schedule(SIDES, 3, FLOOR)] == [
        "warmup-before", "warmup-after",
        "01-before", "01-after", "detail-before", "detail-after", "01-floor",
        "02-after", "02-before",
        "03-before", "03-after", "03-floor",
    ]  # fmt: skip
    assert [task.folder for task in schedule(SIDES, 1, FLOOR)].count("01-floor") == 1
    assert not any(task.kind == "floor" for task in schedule(SIDES, 2))


def test_shuffled_rounds_run_every_program_once_in_different_orders() -> None:
    tasks = [task for task in shuffled(6) if task.kind == "light"]
    rounds = [[task.side.label for task in tasks[start : start + 5]] for start in range(0, 30, 5)]
    assert all(sorted(order) == [side.label for side in MANY] for order in rounds)
    assert all(order != following for order, following in pairwise(rounds)), rounds
    assert len({pair for order in rounds for pair in pairwise(order)}) > 3 * 4, "neighbours change"
    assert [task.folder for task in tasks[:5]] == [f"01-p{label[-1]}" for label in rounds[0]]
    assert shuffled(3) == shuffled(3), "the same every time"
    kinds = [task.kind for task in shuffled(3)]
    assert kinds == ["warmup", *["light"] * 5, "floor", *["light"] * 10, "floor", "detail", "detail"]
    assert [task.folder for task in shuffled(3)[-2:]] == ["detail-p0", "detail-p1"]
    assert [task.folder for task in shuffled(2, MANY[:1]) if task.kind == "light"] == ["01-p0", "02-p0"]


def test_a_program_may_run_twice_a_round(tmp_path: Path, make: Make) -> None:
    tasks = list(shuffled_schedule(MANY, 3, warmed=(), detailed=(), twice="program 1"))
    assert [task.round for task in tasks] == [1] * 6 + [2] * 6 + [3] * 6
    first, again = (
        {n % 6 for n, task in enumerate(tasks) if (task.side.label, task.kind) == ("program 1", kind)}
        for kind in ("light", "again")
    )
    assert len(first) > 1, "neither has a fixed position"
    assert first != again
    recorded = make(tasks)
    assert recorded.again == {"program 1": [tmp_path / f"0{n}-full-set-again" for n in (1, 2, 3)]}
    assert len(recorded.light["program 1"]) == 3


def test_labels_make_harmless_folders() -> None:
    [first, *_] = schedule((SideCommand("../../etc a/b" + "x" * 99, ("a",)),), 1)
    assert first.folder == "warmup-..-..-etc-a-b" + "x" * 27


def test_the_plan_tells_how_often_programs_run() -> None:
    kinds = (("warmup", 0), ("light", 1), ("light", 2), ("detail", 0))
    plan = describe_plan([Task(SIDES[0], kind, number) for kind, number in kinds])
    assert plan.startswith("4 recordings (1 warm-up, 2 measuring, 1 breakdown pass)")
    assert "--pairs" in plan
    assert "--pairs" not in describe_plan([Task(SIDES[0], "light", 1)])


# ---------------------------------------------------------------- recordings


def test_every_recording_is_at_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, announced = FakeRecord(), []
    monkeypatch.setattr(module, "record", fake)
    tasks = list(schedule(SIDES, 2, FLOOR))
    recorded = record_all(tasks, tmp_path, lambda number, task: announced.append((number, task)))
    assert announced == list(enumerate(tasks))
    assert [(spec.out.name, spec.label, spec.quiet) for spec in fake.specs] == [
        (task.folder, task.side.label, True) for task in tasks
    ]
    levels = {task.kind: spec.level for task, spec in zip(tasks, fake.specs, strict=True)}
    assert levels == {"warmup": "light", "light": "light", "floor": "light", "detail": "standard"}
    assert [spec.argv for spec in fake.specs[:2]] == [("a",), ("b", "--short")], "a warm-up may be another command"
    assert recorded.light == {
        label: [tmp_path / f"01-{label}", tmp_path / f"02-{label}"] for label in ("before", "after")
    }
    assert recorded.detail == {label: tmp_path / f"detail-{label}" for label in ("before", "after")}
    assert recorded.floor == [tmp_path / "01-floor", tmp_path / "02-floor"]
    assert (recorded.pairs, recorded.interrupted) == (2, False)


def test_on_cuda_the_detailed_run_has_a_trace(make: Make) -> None:
    """Nothing else records kernels. What a program uses is in the facts of its first run."""
    on_gpu = SideCommand("on a GPU", ("g",), ours=True)
    fake = FakeRecord(devices={"on a GPU": "cuda"})
    recorded = make(list(schedule((SIDES[0], on_gpu), 2)), fake)
    detailed = {spec.label: spec for spec in fake.specs if spec.out in recorded.detail.values()}
    assert {label: spec.level for label, spec in detailed.items()} == {"before": "standard", "on a GPU": "full"}
    assert not detailed["before"].env
    assert detailed["on a GPU"].env == {"PROFILER_TRACE_STEPS": "50", "PROFILER_TRACE_SECONDS": "0.5"}
    assert {spec.level for spec in fake.specs if spec.out not in recorded.detail.values()} == {"light"}


def test_hooks_go_into_programs_that_mark_at_most_their_steps(make: Make) -> None:
    fake = FakeRecord()
    sides = [
        SideCommand("theirs", ("a",)),
        SideCommand("ours", ("b",), ours=True),
        SideCommand("hooked", ("c",), ours=True, hooked=True),
    ]
    make(list(schedule(sides, 1)), fake)
    hooks = {(spec.label, spec.hooks) for spec in fake.specs}
    assert hooks == {("theirs", True), ("ours", False), ("hooked", True)}, "in every run of a side, or in none"


# ---------------------------------------------------------------- interruptions


@pytest.mark.parametrize("how", [interrupt, lambda: {"state": "interrupted"}], ids=["between runs", "in a run"])
@pytest.mark.parametrize(("folder", "rounds"), [("01-after", 0), ("detail-after", 1), ("02-before", 1)])
def test_an_interruption_keeps_complete_rounds(make: Make, how: Any, folder: str, rounds: int) -> None:
    recorded = make(list(schedule(SIDES, 2, FLOOR)), FakeRecord(hooks={folder: how}))
    assert (recorded.interrupted, recorded.pairs, recorded.planned) == (True, rounds, 2)


def test_an_interruption_of_the_announcement_is_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "record", FakeRecord())

    def announce(number: int, task: Task) -> None:
        if task.folder == "02-after":
            raise KeyboardInterrupt

    assert record_all(list(schedule(SIDES, 2)), tmp_path, announce).pairs == 1


def test_a_round_without_its_second_run_is_not_complete(make: Make) -> None:
    tasks = list(shuffled_schedule(MANY, 3, warmed=(), detailed=(), twice="program 1"))
    assert make(tasks, FakeRecord(hooks={"02-full-set-again": interrupt})).pairs == 1


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("output", "code", "quoted"),
    [
        ("Traceback\n  ...\nValueError: no data\n\n", 3, "after exited with 3: ValueError: no data (run"),
        ("", -9, "after was ended by signal 9: it printed nothing (run"),
        ("a\rb\x1b[2Jc\n", 1, "after exited with 1: b\ufffd[2Jc (run"),
        ("\udcff\n", 1, "after exited with 1: \ufffd (run"),
        ("y" * 9999, 1, "after exited with 1: " + "y" * 300 + "... (run"),
    ],
)
def test_a_failure_quotes_the_last_line_as_one_harmless_line(
    tmp_path: Path, make: Make, output: str, code: int, quoted: str
) -> None:
    with pytest.raises(ProfilerError) as caught:
        make(list(schedule(SIDES, 2)), failing("01-after", code, output))
    assert str(caught.value).startswith(quoted)
    assert str(tmp_path / "01-after") in str(caught.value)
    assert caught.value.exit_code == Exit.TARGET_FAILED
    assert not (tmp_path / "02-after").exists()


@pytest.mark.parametrize("folder", ["warmup-p0", "01-p0"])
def test_an_optional_program_that_fails_is_left_out(tmp_path: Path, make: Make, folder: str) -> None:
    programs = (replace(MANY[0], ours=True, optional=True), *MANY[1:])
    recorded = make(shuffled(2, programs), failing(folder, 2, "x\nerror: nothing to hold out\n"))
    assert recorded.unavailable == {"program 0": "nothing to hold out"}
    assert (recorded.pairs, set(recorded.light)) == (2, {side.label for side in MANY[1:]})
    assert not (tmp_path / "02-p0").exists()
    assert not recorded.interrupted


@pytest.mark.parametrize("folder", ["warmup-before", "warmup-after", "01-before"])
def test_bad_input_of_our_own_program_is_the_error_and_leaves_no_run(tmp_path: Path, make: Make, folder: str) -> None:
    out = tmp_path / "new" / "out"
    with pytest.raises(ProfilerError, match=r"^unknown preset 'foo'$") as caught:
        make(list(schedule(OURS, 2)), failing(folder, 2, "error: unknown preset 'foo'\n"), out)
    assert caught.value.exit_code == Exit.USAGE
    assert [*out.iterdir()] == []
    (tmp_path / "mine").touch()
    with pytest.raises(ProfilerError):
        make(list(schedule(OURS, 2)), failing(folder, 2, "error: no\n"))
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "new"}


def test_bad_input_leaves_folders_that_were_not_recorded(tmp_path: Path, make: Make) -> None:
    (tmp_path / "01-p0").mkdir()
    sides = (replace(MANY[0], optional=True), *OURS)
    unavailable, refused = failing("warmup-p0", 1, "error: no\n"), failing("01-before", 2, "error: no\n")
    with pytest.raises(ProfilerError, match=r"^no$"):
        make(list(schedule(sides, 2)), lambda spec: (unavailable if spec.out.name == "warmup-p0" else refused)(spec))
    assert [path.name for path in tmp_path.iterdir()] == ["01-p0"]


@pytest.mark.parametrize(("folder", "sides"), [("warmup-before", SIDES), ("02-before", OURS)])
def test_other_failures_with_code_2_keep_the_runs(
    tmp_path: Path, make: Make, folder: str, sides: tuple[SideCommand, ...]
) -> None:
    with pytest.raises(ProfilerError, match="before exited with 2: error: no") as caught:
        make(list(schedule(sides, 2)), failing(folder, 2, "error: no\n"))
    assert caught.value.exit_code == Exit.TARGET_FAILED
    assert (tmp_path / folder).exists()


@pytest.mark.parametrize(
    ("tasks", "folder", "message"),
    [
        (list(schedule(SIDES, 2)), "warmup-before", r"before \(a\) recorded no step to compare"),
        (shuffled(2), "01-p3", r"program 3 \(3\) recorded no step to compare"),
    ],
    ids=["after the warm-up", "after the first run"],
)
def test_a_program_without_steps_is_refused_early(make: Make, tasks: list[Task], folder: str, message: str) -> None:
    fake = FakeRecord(hooks={folder: lambda: {"steps": 0}})
    with pytest.raises(ProfilerError, match=message) as caught:
        make(tasks, fake)
    assert caught.value.exit_code == Exit.USAGE
    assert not any(spec.out.name.startswith("02") for spec in fake.specs)


def test_a_log_shows_rounds_with_an_estimate_of_the_remaining_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recordings take 20 s each; the estimate leaves the two warm-ups out."""
    fake, now = FakeRecord(), [0.0]

    def record(spec: RunSpec) -> RunInfo:
        now[0] += 20
        return fake(spec)

    monkeypatch.setattr(module, "record", record)
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    module.record_with_progress(list(schedule(SIDES, 3)), tmp_path)
    assert capsys.readouterr().err.splitlines() == [
        "round 1 of 3",
        "round 2 of 3, about 80 s left of all recordings",
        "round 3 of 3, about 40 s left of all recordings",
    ]
