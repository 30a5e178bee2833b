"""`compare` on the command line: what it records, reports, refuses, and leaves behind."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from profiler.__main__ import main
from profiler.agent.results import describe_result
from profiler.check.model import BASE, CANDIDATE, Conditions, Round, StepBlock
from profiler.check.speed.controlled_process import Program
from profiler.check.speed.interleave import ShortProgramError
from profiler.check.worktree.environment import Interpreter
from profiler.commands import _comparing
from profiler.core.errors import ProfilerError
from profiler.record import schedule
from profiler.run import tables
from profiler.run.tables import SCHEMA
from reference_trainer.report import trainers
from tests.fakes.ladders import document
from tests.fakes.programs import ROOT
from tests.fakes.recordings import FakeRecord, write_run

BEFORE_AFTER = ("--before", f"{sys.executable} slow.py", "--after", f"{sys.executable} fast.py")
REPORTS = {"compare.html", "compare.md", "compare.json"}


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The only line that was printed, which is an error."""
        assert (self.out, self.err.count("\n")) == ("", 1), self
        assert self.err.startswith("error: "), self
        return self.err.removeprefix("error: ").removesuffix("\n")


Compare = Callable[..., Done]


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Compare:
    """`compare` in an empty folder, which is the working directory; "here" is where its report goes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: str | Path) -> Done:
        code = main(["compare", *map(str, arguments)])
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return call


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRecord:
    """Instead of recording: steps of 40 ms before and of 10 ms after."""
    made = FakeRecord(step_ms={"before": 40, "after": 10})
    monkeypatch.setattr(schedule, "record", made)
    return made


def rounds_said(err: str, of: int = 3) -> list[int]:
    """Rounds that a log was told of; each with the time left, but for the first."""
    said = [
        re.fullmatch(rf"round (\d) of {of}(, about \d+ (s|min) left of all recordings)?", line)
        for line in err.splitlines()
    ]
    assert [bool(one and one[2]) for one in said] == [number > 0 for number in range(len(said))], err
    return [int(one[1]) for one in said if one]


def report() -> dict[str, Any]:
    return json.loads(Path("here/compare.json").read_text())


def test_two_commands_are_recorded_in_pairs_and_reported(compare: Compare, fake: FakeRecord) -> None:
    done = compare(*BEFORE_AFTER, "--pairs", "3", "--out", "here")
    assert (done.code, rounds_said(done.err)) == (0, [1, 2, 3])
    assert len(fake.specs) == 2 + 3 * 2 + 2
    found = report()
    ratio = found["ratios"]["after"]["tokens_per_s"]
    assert ratio["low"] < ratio["value"] < ratio["high"]
    assert ratio["value"] == pytest.approx(4, rel=0.01)
    assert found["pairs"] == 3
    assert found["sides"][0]["detail"]["breakdown"]["sync"]["value"] is None, "nothing recorded it, so it is not 0"
    for wanted in ("after trains 4.0× faster", "report: here/compare.html"):
        assert wanted in done.out
    assert {path.name for path in Path("here").iterdir() if path.is_file()} == {".gitignore", *REPORTS}
    assert Path("reports/runs/latest").resolve() == Path("here").resolve()


def test_without_out_a_new_directory_of_runs_is_made(compare: Compare, fake: FakeRecord) -> None:
    for _ in range(2):
        assert compare(*BEFORE_AFTER, "--pairs", "1").code == 0
    directories = sorted(path for path in Path("reports/runs").iterdir() if path.is_dir() and not path.is_symlink())
    assert len(directories) == 2
    assert all(path.name.split("-")[2] == "compare" for path in directories)
    assert Path("reports/runs/latest").resolve() == directories[-1].resolve()


def interrupt() -> dict[str, Any]:
    raise KeyboardInterrupt


def test_ctrl_c_before_and_after_the_first_complete_round(compare: Compare, fake: FakeRecord) -> None:
    fake.hooks = {"01-after": interrupt}
    done = compare(*BEFORE_AFTER, "--pairs", "5", "--out", "there")
    assert done.code == 130
    assert (
        done.err == "round 1 of 5\nerror: interrupted before a pair was complete; the runs so far are kept in there\n"
    )
    assert Path("there/01-before/run.json").exists()
    assert not Path("there/compare.html").exists()
    fake.hooks = {"02-before": interrupt}
    done = compare(*BEFORE_AFTER, "--pairs", "5", "--out", "here")
    assert (done.code, report()["pairs"]) == (130, 1)
    assert "only one pair" in done.out
    assert "Stopped early: The recording was stopped after 1 of 5 rounds" in done.out
    assert report()["planned"] == 5


def test_sides_that_are_not_comparable_are_refused_and_their_runs_kept(compare: Compare, fake: FakeRecord) -> None:
    other = {"facts": {"device": "host", "step": "batch"}}
    fake.hooks = {f"0{number}-after": lambda: other for number in (1, 2)} | {"detail-after": lambda: other}
    done = compare(*BEFORE_AFTER, "--pairs", "2", "--out", "here")
    assert done.code == 3
    errors = done.err.splitlines()[1:]
    assert len(errors) == 1, "no second round is made"
    assert errors[0].startswith("error: not comparable: step: chunk against batch")
    assert not REPORTS & {path.name for path in Path("here").iterdir()}
    assert errors[0].endswith("one of 2 rounds was made, and the runs are kept in here)")
    assert Path("here/01-after/run.json").exists()
    assert not Path("here/02-after").exists()
    assert not Path("reports/runs/latest").exists()
    assert compare(*BEFORE_AFTER, "--pairs", "2", "--out", "there", "--anyway").code == 0


# ---------------------------------------------------------------- a part of each program


@dataclass
class FakeRounds:
    """Instead of a RoundRunner and the breakdown passes: writes runs at once, and gives rounds of blocks."""

    ratios: tuple[float, ...] = (2.0,)
    """How many times as long a step takes before, by round."""
    load: float = 0.0
    """Runnable threads of other programs."""
    ends: Mapping[int, BaseException] = field(default_factory=dict)
    """What is raised in a round instead."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts of the side `after`."""
    details: list[tuple[str, float]] = field(default_factory=list)
    """The breakdown passes: the folder and the seconds."""

    def __call__(self, programs: Mapping[str, Program], out: Path, **_: object) -> FakeRounds:
        self.programs, self.out, self.runs = programs, out, {BASE: [], CANDIDATE: []}
        return self

    def run(self, number: int, kind: str) -> Round:
        if number in self.ends:
            raise self.ends[number]
        ratio, made = self.ratios[(number - 1) % len(self.ratios)], list[StepBlock]()
        for role, program in self.programs.items():
            folder = self.out / f"{number:02}-{program.side}"
            changes = {"facts": self.facts} if self.facts and role == CANDIDATE else {}
            write_run(folder, step_ms=10 * ratio, label=program.side, argv=program.argv, **changes)
            self.runs[role].append(folder)
        for pair in range(20):
            for role in (BASE, CANDIDATE) if pair % 2 else (CANDIDATE, BASE):
                length = (ratio if role == BASE else 1.0) * (1.01 if pair % 3 else 1.0)
                made.append(StepBlock(role, 0, (round(1e7 * length),) * 5, 500))
        return Round(number, kind, (BASE, CANDIDATE), tuple(made), 30.0, Conditions(self.load, cores=2))

    def detail(self, program: Program, out: Path, *, level: str, seconds: float) -> Path:
        self.details.append((out.name, seconds))
        write_run(out, step_ms=20, label=program.side, level=level)
        return out


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> FakeRounds:
    made = FakeRounds()
    monkeypatch.setattr(_comparing, "RoundRunner", made)
    monkeypatch.setattr(_comparing, "record_explanation", made.detail)
    monkeypatch.setattr(_comparing, "await_quiet", lambda _: None)
    return made


def test_two_commands_are_compared_by_a_part_of_each(compare: Compare, rounds: FakeRounds) -> None:
    done = compare(*BEFORE_AFTER, "--out", "here")
    assert done.code == 0, done.err
    found = report()
    ratio = found["ratios"]["after"]["tokens_per_s"]
    assert ratio["value"] == pytest.approx(2.0)
    assert ratio["low"] < 2 < ratio["high"]
    assert (found["pairs"], ratio["n"]) == (3, 60), "three starts tell the ratio within 6%"
    assert found["ratios"]["after"]["step_time"]["value"] == pytest.approx(0.5)
    assert [side["measures"]["step_time"]["value"] for side in found["sides"]] == pytest.approx(
        [0.0201, 0.0101], rel=0.01
    )
    assert rounds.details == [("detail-before", 10), ("detail-after", 10)]
    assert "after trains 2.0× faster" in done.out
    assert "a part of each program" in done.out
    assert "more minutes" not in done.out
    assert "All of this is about a part of each program" in Path("here/compare.md").read_text()


def test_what_more_time_would_give_is_told(compare: Compare, rounds: FakeRounds) -> None:
    rounds.ratios = (0.4, 0.5, 0.6)
    done = compare(*BEFORE_AFTER, "--out", "here", "--minutes", "0.0001")
    assert done.code == 0, done.err
    assert report()["pairs"] == 1
    assert re.search(r"5 more minutes would narrow it to about 2\.\d+ to 2\.\d+× slower\.", " ".join(done.out.split()))


@pytest.mark.parametrize(("load", "why"), [(25.0, "this machine was too busy to tell"), (0.0, "too much to tell")])
def test_a_wide_interval_is_no_fact(compare: Compare, rounds: FakeRounds, load: float, why: str) -> None:
    rounds.ratios, rounds.load = (0.07, 0.2, 0.41), load
    rounds.ends = {4: KeyboardInterrupt()}
    done = compare(*BEFORE_AFTER, "--out", "here")
    assert done.code == 130
    assert "The speed of after relative to before is not known" in done.out
    assert why in done.out
    ratio = report()["ratios"]["after"]["tokens_per_s"]
    assert (ratio["value"], ratio["low"], ratio["bound"]) == (None, None, None)


def test_programs_that_end_too_early_are_recorded_as_a_whole(
    compare: Compare, rounds: FakeRounds, fake: FakeRecord
) -> None:
    rounds.ends = {1: ShortProgramError("before ended")}
    done = compare(*BEFORE_AFTER, "--out", "here")
    assert done.code == 0, done.err
    assert "a program ended before enough steps: both are recorded as a whole" in done.err
    assert (report()["pairs"], len(fake.specs)) == (5, 5 * 2 + 2)


@pytest.mark.parametrize(("number", "pairs"), [(1, None), (2, 1)])
def test_ctrl_c_in_a_round_keeps_those_before(
    compare: Compare, rounds: FakeRounds, number: int, pairs: int | None
) -> None:
    rounds.ends = {number: KeyboardInterrupt()}
    done = compare(*BEFORE_AFTER, "--out", "here")
    assert done.code == 130
    assert Path("here/compare.json").exists() is (pairs is not None)
    if pairs is not None:
        assert (report()["pairs"], report()["planned"]) == (1, 3)


def test_a_later_round_that_fails_loses_no_other(compare: Compare, rounds: FakeRounds) -> None:
    rounds.ends = {2: ProfilerError("before ran out of memory")}
    done = compare(*BEFORE_AFTER, "--out", "here")
    assert (done.code, report()["pairs"]) == (0, 1)
    assert "profiler: no further round is measured: before ran out of memory" in done.err


def test_a_breakdown_pass_that_fails_ends_no_measurement(
    compare: Compare, rounds: FakeRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ProfilerError("no room")

    monkeypatch.setattr(_comparing, "record_explanation", fail)
    done = compare(*BEFORE_AFTER, "--out", "here")
    assert (done.code, report()["pairs"]) == (0, 3)
    assert "where the time of after goes was not recorded: no room" in done.err


def test_other_facts_end_it_after_the_first_round(compare: Compare, rounds: FakeRounds) -> None:
    rounds.facts = {"device": "host", "step": "batch"}
    done = compare(*BEFORE_AFTER, "--out", "here")
    assert done.code == 3
    assert "not comparable: step: chunk against batch" in done.err
    assert not rounds.details


def test_packages_of_two_environments_are_compared(
    compare: Compare, rounds: FakeRounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = {"old": {"numpy": "1.26", "same": "1", "gone": "3"}, "new": {"numpy": "2.1", "same": "1"}}
    names = iter(packages)
    monkeypatch.setattr(_comparing, "find_interpreter", lambda *_: next(names))
    monkeypatch.setattr(
        _comparing,
        "inspect_interpreter",
        lambda python, _: Interpreter(python, ("cpython", "3.12"), (), packages[python], {}),
    )
    done = compare(*BEFORE_AFTER, "--out", "here")
    assert done.code == 0, done.err
    assert report()["packages"] == [["gone", ["3", "-"]], ["numpy", ["1.26", "2.1"]]]
    assert "2 packages differ: gone (3 → -) and numpy (1.26 → 2.1)." in " ".join(done.out.split())
    assert "1.26" in Path("here/compare.md").read_text()


# ---------------------------------------------------------------- the ladder of fixes


@pytest.fixture
def ladder(monkeypatch: pytest.MonkeyPatch, fake: FakeRecord) -> FakeRecord:
    """The bundled trainer lists made-up fixes, and is recorded as 40 ms a step as found, 10 ms with anything."""
    monkeypatch.setattr(trainers, "_printed_by", lambda argv: json.dumps(document()))
    fake.step_ms = {"as-found": 40, "without parallel": 10.0}
    fake.hooks = {f"{n:02}-learn": lambda: {"facts": FACTS | {"work": "learn"}} for n in range(9)}
    return fake


FACTS = {"device": "host", "step": "chunk"}
PROGRAMS = 13
"""Number of different programs of the made-up list."""


def test_a_ladder_is_recorded_in_rounds_and_reported(compare: Compare, ladder: FakeRecord) -> None:
    done = compare("--ladder", "--pairs", "3", "--out", "here")
    assert (done.code, rounds_said(done.err)) == (0, [1, 2, 3])
    assert len(ladder.specs) == 5 + 3 * (PROGRAMS + 1) + 2 + 8
    names = [spec.out.name for spec in ladder.specs]
    assert [name for name in names if name.endswith("-full-set-again")] == [f"0{n}-full-set-again" for n in (1, 2, 3)]
    added = [f"detail-cumulative-{fix}" for fix in ("async", "batch", "embed", "parallel")]
    left_out = ["detail-without-batch", "detail-without-parallel"]
    assert sorted(names[-8:]) == ["detail-as-found", *added, "detail-fixed", *left_out]
    assert all("1.0" in spec.argv for spec in ladder.specs if spec.out.name.startswith("0")), "shorter runs"
    found = report()
    assert [side["label"] for side in found["sides"]] == ["as-found", "fixed"]
    assert (found["pairs"], found["comparable"]) == (3, True)
    assert found["ratios"]["fixed"]["tokens_per_s"]["value"] == pytest.approx(4, rel=0.05)
    rows = {row["label"]: row for row in found["ladder"]["rows"]}
    assert rows["+ batch"]["gain"]["value"] == pytest.approx(4, rel=0.05)
    assert rows["+ parallel"]["gain"]["value"] == pytest.approx(1, rel=0.05)
    assert rows["learn"]["gain"]["value"] is None
    assert (found["ladder"]["rounds"], found["ladder"]["interrupted"]) == (3, False)
    assert "Of the fixes, each left out of the full set: " in found["verdict"]
    assert {path.name for path in Path("here").iterdir() if path.is_file()} == {".gitignore", *REPORTS}


def test_a_ladder_of_the_sweep(compare: Compare, fake: FakeRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no runs with empty kernels."""
    monkeypatch.setattr(trainers, "_printed_by", lambda argv: json.dumps(document()))
    facts = {"device": "cpu", "unit": "points", "trainer": "reference_trainer.ssm", "methods": "gd", "seeds": "0 to 6"}
    fake.always = {"facts": facts}
    done = compare("--trainer", "ssm", "--ladder", "--pairs", "2", "--num-seeds", "7", "--out", "here")
    assert (done.code, rounds_said(done.err, 2)) == (0, [1, 2])
    assert not [spec.out.name for spec in fake.specs if "floor" in spec.out.name]
    measured = next(spec for spec in fake.specs if spec.out.name == "01-as-found")
    assert measured.argv[1:3] == ("-m", "reference_trainer.ssm")
    assert measured.argv[measured.argv.index("--num-seeds") + 1] == "7"
    assert measured.hooks, "it marks its steps, and hooks find the rest"
    found = report()
    assert {row["kind"] for row in found["ladder"]["rows"]} == {
        "baseline", "cumulative", "without", "alone", "instead", "work", "beside",
    }  # fmt: skip
    assert "Points a second" in Path("here/compare.md").read_text()
    assert "tokens" not in Path("here/compare.md").read_text().lower()


def test_a_ladder_goes_on_without_other_work_that_cannot_run(compare: Compare, ladder: FakeRecord) -> None:
    ladder.hooks = {**ladder.hooks, "warmup-learn": lambda: {"exit_code": 2, "state": "failed"}}
    done = compare("--ladder", "--pairs", "2", "--out", "here")
    assert done.code == 0
    found = report()["ladder"]
    assert "learn" not in [row["label"] for row in found["rows"]]
    assert ["learn", "it exited with 2 and printed nothing"] in found["unavailable"]
    assert not Path("here/01-learn").exists()


@pytest.mark.parametrize(
    ("where", "rounds", "marked"),
    [("02-fixed", 1, True), ("02-full-set-again", 1, True), ("04-learn", 3, True), ("detail-fixed", 4, False)],
)
def test_ctrl_c_in_a_ladder_after_a_round(
    compare: Compare, ladder: FakeRecord, where: str, rounds: int, marked: bool
) -> None:
    ladder.hooks = {**ladder.hooks, where: interrupt}
    done = compare("--ladder", "--out", "here")
    assert done.code == 130
    found = report()
    assert (found["ladder"]["rounds"], found["ladder"]["interrupted"]) == (rounds, marked)
    gains = [row["gain"] for row in found["ladder"]["rows"]]
    assert {gain["n"] for gain in gains if gain["value"] is not None} == {rounds}
    assert ("ladder was interrupted after" in Path("here/compare.md").read_text()) == marked


def test_ctrl_c_in_the_first_round_of_a_ladder(compare: Compare, ladder: FakeRecord) -> None:
    ladder.hooks = {**ladder.hooks, "01-learn": interrupt}
    done = compare("--ladder", "--out", "here")
    assert done.code == 130
    said, command = done.err.removesuffix("\n").split(" runs are kept in here, compare two of them: ")
    kept = [path.name for path in Path("here").glob("01-*")]
    assert said == f"round 1 of 4\nerror: interrupted before a round was complete; {len(kept)}"
    assert not REPORTS & {path.name for path in Path("here").iterdir()}
    assert command.startswith("python -m profiler compare here/01-as-found here/01-")
    assert compare(*command.split()[4:], "--out", "there").code == 0, "it is a command that works"


# ---------------------------------------------------------------- real programs


def test_a_target_that_fails_is_killed_or_takes_no_step(compare: Compare) -> None:
    failing, killed = 'print(1, flush=True); raise SystemExit("no data in x")', "import os; os.kill(os.getpid(), 9)"
    kept = "(run and output are kept in "
    for out, program, code, line in (
        ("a", f"{sys.executable} -c '{failing}'", 4, f"before exited with 1: no data in x {kept}"),
        ("b", f"{sys.executable} -c '{killed}'", 4, "before was ended by signal 9: it printed nothing"),
        ("c", "true", 2, "before (true) recorded no step to compare, no optimizer or loader was seen: "),
    ):
        done = compare("--before", program, "--after", "true", "--pairs", "1", "--out", out)
        assert done.code == code
        assert done.error.startswith(line)
    assert Path("a/warmup-before/output.log").read_text().startswith("1\n")


@pytest.mark.parametrize(
    ("given", "said", "ladder"),
    [
        (("--preset", "foo"), "unknown preset 'foo'", ()),
        pytest.param(("--corpus", "missing.txt"), "missing.txt", ("--ladder",), marks=pytest.mark.slow),
    ],
)
def test_bad_input_of_the_bundled_trainer_is_bad_input_here(
    compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[str, ...],
    said: str,
    ladder: tuple[str, ...],
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = compare(*ladder, "--device", "host", *given, "--out", "here")
    assert done.code == 2, done.err
    assert "exited with" not in done.error
    assert said in done.error
    assert [*Path().iterdir()] == []


# ---------------------------------------------------------------- recorded runs


def test_recorded_runs_are_compared(compare: Compare) -> None:
    for name, step_ms in (("one", 30), ("two", 10), ("three", 15)):
        write_run(Path(name), step_ms=step_ms, label="same")
    done = compare("one", "two", "three", "--out", "here")
    assert done.code == 0
    found = report()
    assert [side["label"] for side in found["sides"]] == ["one", "two", "three"], "alike labels give way to names"
    assert found["ratios"]["two"]["tokens_per_s"]["value"] == pytest.approx(3)
    last = found["ratios"]["three"]["tokens_per_s"]
    assert (last["value"], last["low"]) == (pytest.approx(2), None), "the last side over the baseline"


def test_recorded_runs_that_are_not_comparable(compare: Compare) -> None:
    write_run(Path("one"), facts={"device": "host", "corpus": "a", "step": "chunk"})
    write_run(Path("two"), facts={"device": "host", "corpus": "b", "step": "chunk"})
    done = compare("one", "two", "--out", "here")
    assert done.code == 3
    assert done.err == "error: not comparable: corpus: a against b (--anyway compares them)\n"
    assert not Path("here").exists()
    forced = compare("one", "two", "--out", "here", "--anyway")
    assert forced.code == 0
    found = report()
    (mismatch,) = found["mismatches"]
    assert (found["comparable"], found["forced"]) == (False, True)
    assert (mismatch["name"], mismatch["before"], mismatch["after"]) == ("corpus", "a", "b")
    assert found["verdict"].startswith("Not comparable (corpus: a against b), compared nevertheless: ")
    assert "Forced" in Path("here/compare.html").read_text()


def state(run: str, value: Any) -> None:
    """Have the run state the result `answer`."""
    (source,) = Path(run).glob("source-*")
    line = describe_result("answer", value, 1e-3, 1e-6, None)
    (source / tables.RESULTS).write_text(json.dumps(line) + "\n")


def test_runs_that_compute_the_same_say_so(compare: Compare) -> None:
    for name in ("one", "two"):
        write_run(Path(name))
        state(name, [1, 2, 3])
    done = compare("one", "two", "--out", "here")
    assert "Same results: answer 3 of 3, in all runs." in done.out
    (result,) = report()["results"]
    assert (result["name"], result["compared"], result["difference"]) == ("answer", 3, None)
    assert '<span class="tag judged good">Same results</span>' in Path("here/compare.html").read_text()
    (next(Path("two").glob("source-*")) / tables.RESULTS).unlink()
    done = compare("one", "two", "--out", "there")
    assert "two states no result answer: these results were not compared." in done.out


def test_runs_that_compute_something_else_are_refused(compare: Compare) -> None:
    for name, value in (("one", [1, 2, 3]), ("two", [1, 7, 8])):
        write_run(Path(name))
        state(name, value)
    done = compare("one", "two", "--out", "here")
    assert done.code == 3
    reason = "result answer: 2 of 3 values of two differ from the first run (value 1 is 7 instead of 2)"
    assert done.err == f"error: not comparable: {reason} (--anyway compares them)\n"
    forced = compare("one", "two", "--out", "here", "--anyway")
    assert forced.code == 0
    (mismatch,) = report()["mismatches"]
    assert mismatch["result"]["difference"]["values"] == [2, 7]
    assert "Forced" in Path("here/compare.html").read_text()
    assert "Same results" not in Path("here/compare.html").read_text()
    write_run(Path("three"), facts={"device": "host", "step": "chunk", "seed": 3})
    state("three", [4, 5, 6])
    done = compare("one", "three", "--out", "there", "--anyway")
    assert "Not comparable, but compared: three trains" in done.out
    page = Path("there/compare.html").read_text()
    assert "These sides are not comparable: seed: not stated against 3" in page
    assert "result answer: 3 of 3 values of three differ from the first run" in page


BROKEN = """
import sys
from reference_trainer.devices.host import HostDevice
from reference_trainer.kernels import scan
from reference_trainer.lm.__main__ import main

launch = HostDevice.launch
def changed(device, kernel, *arguments):
    if kernel is not scan.SCAN:
        launch(device, kernel, *arguments)
HostDevice.launch = changed
sys.exit(main())
"""


@pytest.mark.slow
def test_a_fixed_trainer_without_its_recurrence_is_refused(compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("broken.py").write_text(BROKEN)
    size = "--device host --max-chunks 5 --warmup-seconds 0 --tokens-per-chunk 300"
    before = f"{sys.executable} -m reference_trainer.lm --variant as-found {size}"
    after = f"{sys.executable} -m reference_trainer.lm --variant fixed {size}"
    done = compare("--before", before, "--after", after, "--pairs", "2", "--out", "here")
    assert done.code == 0, done.err
    assert all(result["difference"] is None and result["runs"] == 5 for result in report()["results"])
    broken = f"{sys.executable} broken.py --variant fixed {size}"
    done = compare("--before", before, "--after", broken, "--pairs", "1", "--out", "there")
    assert done.code == 3
    assert "not comparable: result predictions: " in done.err
    assert "(--anyway compares them; the runs are kept in there)" in done.err


def test_runs_that_cannot_be_read(compare: Compare) -> None:
    write_run(Path("one"))
    Path("damaged").mkdir()
    Path("damaged/run.json").write_text("{")
    write_run(Path("newer"))
    manifest = Path("newer/run.json")
    manifest.write_text(manifest.read_text().replace(f'"schema": {SCHEMA}', '"schema": 999'))
    for other, word in (("missing", "no run at missing"), ("damaged", "damaged"), ("newer", "newer")):
        done = compare("one", other, "--out", "here")
        assert done.code == 2
        assert word in done.error
        assert not Path("here").exists()


def test_latest_that_is_no_link_is_left_alone(compare: Compare) -> None:
    write_run(Path("one"))
    write_run(Path("two"))
    Path("reports/runs/latest").mkdir(parents=True)
    done = compare("one", "two", "--out", "here")
    assert done.code == 0
    assert done.err == "profiler: reports/runs/latest is not a link and stays as it is; the newest is here\n"


# ---------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a", "b", *BEFORE_AFTER), "give either recorded runs or --before and --after"),
        (("a",), "one run cannot be compared"),
        (("a", "./a"), "a run is given twice"),
        (("--before", "true"), "--before and --after go together"),
        (("--before", "", "--after", "true"), "--before '': the command is empty"),
        (("--before", "true", "--after", "'x"), '--after "\'x": No closing quotation'),
        (("--before", "true", "--after", "no-such-program x"), "there is no such program"),
        (("--before", "no-such-program", "--after", "true"), "--before 'no-such-program': cannot start"),
        (("--pairs", "0"), "--pairs 0: must be at least 1"),
        (("--seconds", "0"), "--seconds 0.0: must be above 0"),
        (("--seconds", "nan"), "--seconds nan: must be above 0"),
        (("--seconds", "inf"), "--seconds inf: must be above 0"),
        (("--preset", "tiny", *BEFORE_AFTER), "--preset: only for the bundled trainer"),
        (("--ladder", *BEFORE_AFTER), "--ladder: only for the bundled trainer"),
        (("--ladder", "a", "b", "--preset", "tiny"), "--ladder, --preset: only for the bundled trainer"),
        (("a", "b", "--device", "host", "--corpus", "c"), "--corpus, --device: only for the bundled trainer"),
        (("--trainer", "ssm", *BEFORE_AFTER), "--trainer: only for the bundled trainer"),
        (("a", "b", "--num-seeds", "3"), "--num-seeds: only for the bundled trainer"),
        (
            ("--trainer", "ssm", "--seconds", "3"),
            "--seconds means nothing to the sweep of teacher-student experiments (--trainer ssm): leave it out",
        ),
        (("--trainer", "ssm", "--preset", "tiny", "--ladder"), "--preset means nothing to the sweep"),
        (("--trainer", "ssm", "--corpus", "x"), "or choose from --device, --num-seeds, --teacher-ranks"),
        (("--num-seeds", "3"), "--num-seeds means nothing to the language model (--trainer lm): leave it out"),
        (("--trainer", "lm", "--student-dims", "8"), "--student-dims means nothing to the language model"),
    ],
)
def test_usage_errors_are_one_line_and_leave_nothing(compare: Compare, arguments: tuple[str, ...], said: str) -> None:
    done = compare(*arguments, "--out", "here")
    assert done.code == 2
    assert said in done.error
    assert [*Path().iterdir()] == []


def test_a_directory_in_use_and_a_file_are_never_overwritten(compare: Compare) -> None:
    never = "and a run is never overwritten. Nothing was recorded or changed; here-2 is free\n"
    Path("here").touch()
    done = compare("a", "b", "--out", "here")
    assert (done.code, done.err) == (2, f"error: cannot use here: it is a file, {never}")
    Path("here").unlink()
    Path("here").mkdir()
    Path("here/mine").touch()
    done = compare("a", "b", "--out", "here")
    assert (done.code, done.err) == (2, f"error: cannot use here: it is not empty (mine is in it), {never}")
