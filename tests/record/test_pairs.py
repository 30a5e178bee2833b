"""Which recordings a comparison makes, in which order, and what becomes of it when one of them goes wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from profiler.core.errors import Exit, ProfilerError
from profiler.record import pairs
from profiler.record.pairs import Recorded, SideCommand, Task, record_all, schedule, shuffled_schedule
from tests.fakes.recordings import FakeRecord

SIDES = (SideCommand("before", ("a",)), SideCommand("after", ("b",), warmup=("b", "--short")))
FLOOR = SideCommand("floor", ("a", "--empty"))


def record_with(monkeypatch: pytest.MonkeyPatch, out: Path, fake: FakeRecord, rounds: int = 2) -> Recorded:
    monkeypatch.setattr(pairs, "record", fake)
    return record_all(list(schedule(SIDES, rounds, FLOOR)), out, lambda number, task: None)


def test_rounds_turn_around_and_the_floor_is_in_the_first_and_the_last() -> None:
    assert [task.folder for task in schedule(SIDES, 3, FLOOR)] == [
        "warmup-before", "warmup-after",
        "01-before", "01-after", "01-floor",
        "02-after", "02-before",
        "03-before", "03-after", "03-floor",
        "detail-before", "detail-after",
    ]  # fmt: skip


def test_one_round_has_one_floor_and_none_is_made_of_other_programs() -> None:
    folders = [task.folder for task in schedule(SIDES, 1, FLOOR)]
    assert folders.count("01-floor") == 1
    assert not any(task.kind == "floor" for task in schedule(SIDES, 2))


def test_only_the_breakdown_pass_is_detailed_and_warm_ups_may_be_shorter() -> None:
    tasks = list(schedule(SIDES, 2, FLOOR))
    assert {task.kind: task.level for task in tasks} == {
        "warmup": "light", "light": "light", "floor": "light", "detail": "standard",
    }  # fmt: skip
    assert [task.argv for task in tasks if task.kind == "warmup"] == [("a",), ("b", "--short")]


MANY = tuple(SideCommand(f"program {n}", (str(n),), folder=f"p{n}") for n in range(5))


def shuffled(rounds: int, programs: tuple[SideCommand, ...] = MANY) -> list[Task]:
    return list(shuffled_schedule(programs, rounds, FLOOR, warmed=("program 0",), detailed=("program 1", "program 0")))


def test_shuffled_rounds_run_every_program_once_in_orders_of_their_own() -> None:
    tasks = [task for task in shuffled(6) if task.kind == "light"]
    rounds = [[task.label for task in tasks[start : start + 5]] for start in range(0, 30, 5)]
    assert all(sorted(order) == [side.label for side in MANY] for order in rounds)
    assert all(one != other for one, other in pairwise(rounds)), rounds
    before = {pair for order in rounds for pair in pairwise(order)}
    assert len(before) > 3 * 4, "neighbours change"
    assert [task.folder for task in tasks[:5]] == [f"01-p{label[-1]}" for label in rounds[0]]


def test_a_shuffled_schedule_is_the_same_every_time_and_ends_with_the_details() -> None:
    assert shuffled(3) == shuffled(3)
    kinds = [task.kind for task in shuffled(3)]
    assert kinds == ["warmup", *["light"] * 5, "floor", *["light"] * 10, "floor", "detail", "detail"]
    assert [task.folder for task in shuffled(3)[-2:]] == ["detail-p0", "detail-p1"]


def test_a_program_may_run_twice_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = list(shuffled_schedule(MANY, 3, warmed=(), detailed=(), twice="program 1"))
    assert len(tasks) == 3 * 6
    assert {task.round for task in tasks} == {1, 2, 3}
    first, again = (
        [n % 6 for n, t in enumerate(tasks) if (t.label, t.kind) == ("program 1", k)] for k in ("light", "again")
    )
    assert len({*first}) > 1, "neither has a place of its own"
    assert {*first} != {*again}
    monkeypatch.setattr(pairs, "record", FakeRecord())
    recorded = record_all(tasks, tmp_path, lambda number, task: None)
    assert recorded.again == {"program 1": [tmp_path / f"0{n}-full-set-again" for n in (1, 2, 3)]}
    assert len(recorded.light["program 1"]) == 3


def test_a_round_without_its_second_run_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "record", FakeRecord(hooks={"02-full-set-again": interrupt}))
    tasks = list(shuffled_schedule(MANY, 3, warmed=(), detailed=(), twice="program 1"))
    assert record_all(tasks, tmp_path, lambda number, task: None).pairs == 1


def test_a_single_program_is_no_endless_shuffle() -> None:
    assert [task.folder for task in shuffled(2, MANY[:1]) if task.kind == "light"] == ["01-p0", "02-p0"]


def test_a_program_without_a_warm_up_is_refused_after_its_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRecord(hooks={"01-p3": lambda: {"steps": 0}})
    monkeypatch.setattr(pairs, "record", fake)
    with pytest.raises(ProfilerError, match=r"program 3 \(3\) recorded no step to compare"):
        record_all(shuffled(2), tmp_path, lambda number, task: None)
    assert not any(spec.out.name.startswith("02") for spec in fake.specs)


def test_rounds_that_were_asked_for_are_known_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "record", FakeRecord(hooks={"02-p4": interrupt}))
    recorded = record_all(shuffled(3), tmp_path, lambda number, task: None)
    assert (recorded.pairs, recorded.planned, recorded.interrupted) == (1, 3, True)


def test_labels_make_harmless_folders() -> None:
    [first, *_] = schedule((SideCommand("../../etc a/b" + "x" * 99, ("a",)),), 1)
    assert first.folder == "warmup-..-..-etc-a-b" + "x" * 27


def test_every_recording_is_where_it_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, announced = FakeRecord(), []
    monkeypatch.setattr(pairs, "record", fake)
    tasks = list(schedule(SIDES, 2, FLOOR))
    recorded = record_all(tasks, tmp_path, lambda number, task: announced.append((number, task)))
    assert announced == list(enumerate(tasks))
    assert [(spec.out.name, spec.level, spec.label, spec.quiet) for spec in fake.specs] == [
        (task.folder, task.level, task.label, True) for task in tasks
    ]
    assert recorded.light == {
        label: [tmp_path / f"01-{label}", tmp_path / f"02-{label}"] for label in ("before", "after")
    }
    assert recorded.detail == {label: tmp_path / f"detail-{label}" for label in ("before", "after")}
    assert recorded.floor == [tmp_path / "01-floor", tmp_path / "02-floor"]
    assert (recorded.pairs, recorded.interrupted) == (2, False)


def interrupt() -> dict[str, Any]:
    raise KeyboardInterrupt


@pytest.mark.parametrize("how", [interrupt, lambda: {"state": "interrupted"}], ids=["between runs", "in a run"])
@pytest.mark.parametrize(("where", "rounds"), [("01-after", 0), ("02-after", 1), ("02-before", 1), ("detail-after", 2)])
def test_an_interruption_keeps_the_rounds_that_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any, where: str, rounds: int
) -> None:
    recorded = record_with(monkeypatch, tmp_path, FakeRecord(hooks={where: how}))
    assert recorded.interrupted
    assert recorded.pairs == rounds


def test_an_interruption_of_the_announcement_is_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "record", FakeRecord())

    def announce(number: int, task: Task) -> None:
        if task.folder == "02-after":
            raise KeyboardInterrupt

    assert record_all(list(schedule(SIDES, 2)), tmp_path, announce).pairs == 1


def said(
    monkeypatch: pytest.MonkeyPatch, out: Path, output: str, code: int, where: str = "01-after"
) -> tuple[str, Exit]:
    """The message and the exit code when the target of `where` printed `output` and exited with `code`."""

    def fail() -> dict[str, Any]:
        return {"exit_code": code, "state": "failed"}

    fake = FakeRecord(hooks={where: fail})

    def record(spec: Any) -> Any:
        info = fake(spec)
        (spec.out / "output.log").write_bytes(output.encode(errors="surrogateescape"))
        return info

    monkeypatch.setattr(pairs, "record", record)
    with pytest.raises(ProfilerError) as caught:
        record_all(list(schedule(SIDES, 2)), out, lambda number, task: None)
    return str(caught.value), caught.value.exit_code


def test_a_failure_names_code_last_line_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message, code = said(monkeypatch, tmp_path, "Traceback\n  ...\nValueError: no data\n\n", 3)
    assert message == (f"after exited with 3: ValueError: no data (run and output are kept in {tmp_path / '01-after'})")
    assert code == Exit.TARGET_FAILED
    assert not (tmp_path / "02-after").exists()


@pytest.mark.parametrize(
    ("output", "code", "expected"),
    [
        ("", -9, "after was ended by signal 9: it printed nothing (run"),
        ("a\rb\x1b[2Jc\n", 1, "after exited with 1: b\ufffd[2Jc (run"),
        ("\udcff\n", 1, "after exited with 1: \ufffd (run"),
        ("y" * 9999, 1, "after exited with 1: " + "y" * 300 + "... (run"),
    ],
)
def test_what_a_target_said_stays_one_harmless_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int, expected: str
) -> None:
    message, _ = said(monkeypatch, tmp_path, output, code)
    assert message.startswith(expected)


def failing(out: Path, where: str, code: int, says: str) -> FakeRecord:
    """Records all but `where`, whose program prints `says` and exits with `code`."""

    class Failing(FakeRecord):
        def __call__(self, spec: Any) -> Any:
            info = super().__call__(spec)
            if spec.out.name == where:
                (spec.out / "output.log").write_text(says)
            return info

    return Failing(hooks={where: lambda: {"exit_code": code, "state": "failed"}})


@pytest.mark.parametrize("where", ["warmup-p0", "01-p0"])
def test_an_optional_program_that_fails_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    programs = (replace(MANY[0], ours=True, optional=True), *MANY[1:])
    monkeypatch.setattr(pairs, "record", failing(tmp_path, where, 2, "x\nerror: nothing to hold out\n"))
    recorded = record_all(shuffled(2, programs), tmp_path, lambda number, task: None)
    assert recorded.unavailable == {"program 0": "nothing to hold out"}
    assert (recorded.pairs, set(recorded.light)) == (2, {side.label for side in MANY[1:]})
    assert not (tmp_path / "02-p0").exists()
    assert not recorded.interrupted


@pytest.mark.parametrize("where", ["warmup-before", "warmup-after", "01-before"])
def test_bad_input_of_our_own_program_is_passed_on_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(pairs, "record", failing(tmp_path, where, 2, "error: unknown preset 'foo'\n"))
    ours = [replace(side, ours=True) for side in SIDES]
    with pytest.raises(ProfilerError, match=r"^unknown preset 'foo'$") as caught:
        record_all(list(schedule(ours, 2)), tmp_path / "new" / "out", lambda number, task: None)
    assert caught.value.exit_code == Exit.USAGE
    assert [*tmp_path.iterdir()] == []


def test_bad_input_takes_back_only_what_was_made_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "record", failing(tmp_path, "warmup-before", 2, "error: no\n"))
    (tmp_path / "mine").touch()
    with pytest.raises(ProfilerError):
        record_all(list(schedule([replace(SIDES[0], ours=True)], 1)), tmp_path, lambda number, task: None)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(("where", "ours"), [("warmup-before", False), ("02-before", True)])
def test_other_failures_with_two_keep_what_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, ours: bool
) -> None:
    monkeypatch.setattr(pairs, "record", failing(tmp_path, where, 2, "error: no\n"))
    with pytest.raises(ProfilerError, match="before exited with 2: error: no") as caught:
        record_all(list(schedule([replace(SIDES[0], ours=ours)], 2)), tmp_path, lambda number, task: None)
    assert caught.value.exit_code == Exit.TARGET_FAILED
    assert (tmp_path / where).exists()


def test_a_program_without_steps_is_refused_after_its_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRecord(hooks={"warmup-before": lambda: {"steps": 0}})
    with pytest.raises(ProfilerError, match=r"before \(a\) recorded no step to compare, .*: mark its steps") as caught:
        record_with(monkeypatch, tmp_path, fake)
    assert caught.value.exit_code == Exit.USAGE
    assert [spec.out.name for spec in fake.specs] == ["warmup-before"]


def test_hooks_go_where_a_program_marks_its_steps_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRecord()
    monkeypatch.setattr(pairs, "record", fake)
    sides = [
        SideCommand("theirs", ("a",)),
        SideCommand("ours", ("b",), ours=True),
        SideCommand("hooked", ("c",), ours=True, hooked=True),
    ]
    record_all(list(schedule(sides, 1)), tmp_path, lambda number, task: None)
    inside = {(spec.label, spec.hooks) for spec in fake.specs}
    assert inside == {("theirs", True), ("ours", False), ("hooked", True)}, "in every run of a side, or in none"
