"""Decisions of `check` that need no program: which hooks, which of two counts, what is kept when something fails."""

from __future__ import annotations

import errno
import io
import json
import math
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from profiler.check.model import (
    BASE,
    CANDIDATE,
    CONFIRM,
    FAIL,
    INCONCLUSIVE,
    MEASURE,
    PASS,
    CounterLine,
    GateResult,
    Limits,
    Round,
    SideInfo,
)
from profiler.check.modes import interleaved
from profiler.check.modes.counters import merge_baseline
from profiler.check.modes.interleaved import (
    progress,
    progress_text,
    rounds_saved,
)
from profiler.check.modes.run import check_spelling
from profiler.check.modes.sides import (
    Recordings,
    load_recordings,
    marks_itself,
    not_seen,
    programs_of_sides,
    short_program,
)
from profiler.check.settings import Settings, SettingsTable
from profiler.check.speed.controlled_process import SPANS_FILE
from profiler.check.speed.rounds import RoundValues
from profiler.check.worktree.prepare import PreparedSide
from profiler.core.errors import Notice, ProfilerError
from tests.fakes.counting import one

ELAPSED = r"\d:\d\d:\d\d"


@pytest.mark.parametrize(
    ("command", "itself"),
    [
        ("python -m reference_trainer.lm --steps 5", True),
        ("/usr/bin/python3.11 -u -W error -m reference_trainer.lm", True),
        ("python -m reference_trainer.lm.pretokenize", True),
        ("python -m reference_trainer.lmx", False),
        ("python -m reference_trainer.ssm", False),
        ("python -um reference_trainer.lm", True),
        ("python -mreference_trainer.lm", True),
        ("taskset -c 0 python -X dev -m reference_trainer.lm", True),
        ("python train.py --like reference_trainer", False),
        ("python reference_trainer/train.py", False),
        ("python -m reference_trainers", False),
        ("python -m mine -m reference_trainer", False),
        ("python -c pass -m reference_trainer", False),
        ("/opt/reference_trainer/bin/python -m mine", False),
        ("python", False),
        ("reference_trainer", False),
    ],
)
def test_only_the_bundled_language_model_started_as_a_module_marks_all_it_does(command: str, itself: bool) -> None:
    assert marks_itself(command.split()) is itself


@pytest.mark.parametrize(
    ("before", "after", "inside"),
    [
        ("python -m reference_trainer.lm", "python -m reference_trainer.lm --fixes all", False),
        ("python -m reference_trainer.lm", "python mine.py", True),
        ("python mine.py", "python -m reference_trainer.lm", True),
    ],
)
def test_hooks_go_into_both_sides_or_neither(before: str, after: str, inside: bool) -> None:
    sides = [PreparedSide((sys.executable, *text.split()[1:]), Path.cwd()) for text in (before, after)]
    programs = programs_of_sides(dict(zip((BASE, CANDIDATE), sides, strict=True)), Settings(SettingsTable(), Path()))
    assert [program.hooked for program in programs.values()] == [inside, inside]


def test_a_program_that_ended_early_raises_a_warning() -> None:
    for counted in ((one(20), one(20)), (), (one(21),)):
        assert short_program(counted, 20) == ()
    assert short_program((one(20), one(7)), 20) == (Notice("short-program", {"steps": 7, "wanted": 20}),)


def test_nothing_is_told_of_runs_that_a_signal_prevented() -> None:
    assert not_seen(Recordings((), ())) == ()


def test_a_packed_run_counts_as_its_directory_does(tmp_path: Path) -> None:
    """With the spans that `check` measured, and without them."""
    packed = Path(__file__).parents[2] / "approval" / "runs" / "spikes.zip"
    shutil.unpack_archive(packed, tmp_path)
    folder = next(tmp_path.rglob("run.json")).parent
    complete = load_recordings([folder])
    assert load_recordings([packed]).counted == load_recordings([folder / "run.json"]).counted == complete.counted
    steps = complete.runs[0].steps
    (folder / SPANS_FILE).write_text(json.dumps([[int(steps["begin"][2]), int(steps["end"][6])]]))
    spans = load_recordings([Path(shutil.make_archive(str(tmp_path / "packed"), "zip", folder))])
    assert (
        [one.steps for one in spans.counted]
        == [one.steps for one in load_recordings([folder]).counted]
        != [one.steps for one in complete.counted]
    )


def counter(name: str, state: str, *codes: str) -> CounterLine:
    return CounterLine(name, state, (3.0, 3.0), (4.0, 4.0), 3.0, tuple(Notice(code) for code in codes))


def test_of_each_counter_the_worse_of_file_and_revision_counts() -> None:
    lines = (counter("syncs", FAIL), counter("h2d", PASS), counter("d2h", PASS))
    revision = (counter("syncs", PASS), counter("h2d", FAIL, "varies"))
    file = GateResult(
        base=SideInfo("base", "b.json (of 2026-01-02)", ""),
        counters=lines,
        counters_state=FAIL,
        warnings=(Notice("other-command"),),
        baseline_file="b.json",
    )
    merged = merge_baseline(GateResult(mode="against", counters=revision, counters_state=FAIL), file)
    assert {line.counter: (line.state, [reason.code for reason in line.reasons]) for line in merged.counters} == {
        "syncs": (FAIL, ["compared-to"]),
        "h2d": (FAIL, ["varies", "compared-to"]),
        "d2h": (PASS, []),
    }
    assert (merged.warnings, merged.notes) == (file.warnings, (Notice("baseline-too", {"file": file.base.what}),))
    file = replace(file, counters=(), counters_state=INCONCLUSIVE, counters_reasons=(Notice("key-differs"),))
    merged = merge_baseline(GateResult(mode="against", counters=revision[:1], counters_state=PASS), file)
    assert (merged.counters_state, merged.counters_reasons) == (INCONCLUSIVE, file.counters_reasons)
    assert merge_baseline(GateResult(mode="against", counters_state=None), file).counters_state == INCONCLUSIVE


def test_a_counter_of_the_program_is_not_taken_for_a_misspelt_one() -> None:
    names = {"syncs", "might_sync", "launches"}
    check_spelling("fsyncs", names, "limits")
    with pytest.raises(ProfilerError, match="did you mean might_sync"):
        check_spelling("might_snc", names, "limits")


@pytest.mark.parametrize("fault", [ProfilerError("it crashed"), ValueError("a fault of the tool"), KeyboardInterrupt()])
def test_rounds_are_kept_whatever_ends_them(tmp_path: Path, fault: BaseException) -> None:
    rounds = [Round(1, MEASURE, ("base", "candidate"), (), 1.0)]
    with pytest.raises(type(fault)), rounds_saved(rounds, tmp_path):
        raise fault
    assert len(json.loads((tmp_path / "rounds.json").read_text())["rounds"]) == 1


class ClosedTerminal(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_closed_terminal_ends_no_round(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    monkeypatch.setattr("sys.stderr", ClosedTerminal())
    with progress(Console(file=ClosedTerminal(), force_terminal=is_terminal)) as show:
        show("round 1")


@pytest.fixture
def slowdowns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow-down of a round is its number in percent, a gain where that is odd; round 3 is unusable."""

    def values(measured: Round) -> RoundValues:
        share = measured.number / 100 * (-1) ** measured.number
        return RoundValues(None, None) if measured.number == 3 else RoundValues(math.log1p(share), 0.0)

    monkeypatch.setattr(interleaved, "round_values", values)


def rounds(measured: int, confirming: int = 0) -> list[Round]:
    kinds = [MEASURE] * measured + [CONFIRM] * confirming
    return [Round(number, kind, (), ()) for number, kind in enumerate(kinds, 1)]


@pytest.mark.usefixtures("slowdowns")
@pytest.mark.parametrize(
    ("done", "kind", "line"),
    [
        (rounds(0), MEASURE, "round 1 of at most 28"),
        (rounds(1), MEASURE, "round 2 of at most 28: step time -1.0%, last -1.0%"),
        (rounds(3), MEASURE, "round 4 of at most 28: step time +0.5%, last +2.0%"),
        (rounds(5, 1), CONFIRM, "round 7 (confirming, 2 of at most 8): step time +1.1%, last +6.0%"),
    ],
)
def test_progress_in_one_line(capsys: pytest.CaptureFixture[str], done: list[Round], kind: str, line: str) -> None:
    with progress(Console(file=io.StringIO())) as show:
        show(progress_text(done, kind, Limits()))
    assert re.fullmatch(rf"{re.escape(line)} \({ELAPSED}\)\n", capsys.readouterr().err)


@pytest.mark.usefixtures("slowdowns")
@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize(("done", "kind"), [(rounds(19), MEASURE), (rounds(20, 7), CONFIRM)])
def test_a_narrow_terminal_cuts_neither_the_slow_down_nor_the_time(done: list[Round], kind: str, width: int) -> None:
    console = Console(width=width, height=10, file=io.StringIO(), force_terminal=True, color_system=None)
    text = progress_text(done, kind, Limits())
    with progress(console) as show:
        show(text)
    shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert re.search(ELAPSED, shown)
    assert "\u2026" not in shown
    assert text.rpartition(" ")[2] in shown
    assert (f"{text} " in shown) == (width == 80)
