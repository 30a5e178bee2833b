"""`check` from the command line to its exit code, on small programs that mark their steps."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from profiler.__main__ import main
from profiler.check import settings
from profiler.check.model import CANDIDATE, Round
from profiler.check.outputs import history
from profiler.check.speed import interleave as rounds
from tests.commands.check_programs import (
    REPORTS,
    STEPPING,
    change_syncs,
    check_report,
    git,
    make_repository,
    train,
    train_command,
)

SOON = ("--set", "max_seconds=0.5")
"""After the first round there is no time for a second one."""


def test_update_then_check_then_a_higher_counter(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--baseline", "b.json", "--update", "--", *train()]) == 0
    printed = capsys.readouterr()
    assert "written" in printed.out
    assert printed.err.splitlines()[:2] == ["counting: process 1 of 2", "counting: process 2 of 2"]
    before = Path("b.json").read_text()
    assert main(["check", "--baseline", "b.json", "--out", "same", "--", *train()]) == 0
    change_syncs(1)
    assert main(["check", "--baseline", "b.json", "--out", "more", "--", *train()]) == 1
    assert "syncs rose from 3 to 4 per step" in " ".join(capsys.readouterr().out.lower().split())
    change_syncs(-1)
    assert main(["check", "--baseline", "b.json", "--out", "less", "--", *train()]) == 0
    assert "--update" in capsys.readouterr().out
    assert Path("b.json").read_text() == before
    assert {path.name for path in Path("same").iterdir() if path.is_file()} == {".gitignore", *REPORTS}
    assert (check_report("same")["state"], check_report("more")["state"]) == ("PASS", "FAIL")


@pytest.mark.usefixtures("baseline")
def test_a_counter_may_rise_within_its_limit_or_where_it_is_ignored() -> None:
    change_syncs(1)
    more = ["--", *train()]
    assert main(["check", "--baseline", "b.json", "--set", "limits.syncs=1", *more]) == 0
    assert main(["check", "--baseline", "b.json", "--set", "limits.syncs=10%", *more]) == 1
    assert main(["check", "--baseline", "b.json", "--set", 'ignore=["syncs"]', *more]) == 0
    assert main(["check", "--baseline", "b.json", "--set", "limits.syncs", *more]) == 2


@pytest.mark.usefixtures("baseline")
def test_an_update_to_higher_counts_needs_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("b.json").read_text()
    change_syncs(2)
    assert main(["check", "--baseline", "b.json", "--update", "--", *train()]) == 2
    assert "--update needs a REASON" in capsys.readouterr().err
    assert Path("b.json").read_text() == before
    reason = "gradients are checked now"
    assert main(["check", "--baseline", "b.json", "--update", reason, "--", *train()]) == 0
    assert reason in Path("b.json").read_text()


@pytest.mark.usefixtures("baseline")
@pytest.mark.slow
def test_other_arguments_are_not_comparable_and_one_file_holds_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--baseline", "b.json", "--", *train(2000, 4)]) == 3
    assert "not comparable: arguments: 2000 3 in the baseline against 2000 4" in capsys.readouterr().out.lower()
    assert main(["check", "--baseline", "b.json", "--update", "--", *train(2000, 4)]) == 0
    assert main(["check", "--baseline", "b.json", "--", *train(2000, 4)]) == 0
    assert main(["check", "--baseline", "b.json", "--", *train()]) == 0


@pytest.mark.usefixtures("baseline")
@pytest.mark.slow
def test_another_program_under_the_same_baseline_is_inconclusive() -> None:
    Path("other.py").write_text(STEPPING)
    command = [sys.executable, "other.py", "2000", "3"]
    assert main(["check", "--baseline", "b.json", "--out", "out", "--", *command]) == 3
    assert check_report()["state"] == "NOT COMPARABLE"
    assert main(["check", "--baseline", "b.json", "--set", "inconclusive=pass", "--", *command]) == 0


def slow_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the times of the measured steps by made-up ones, so that the result does not depend on the machine."""
    make = rounds.RoundRunner.run

    def slower(self: rounds.RoundRunner, number: int, kind: str) -> Round:
        result = make(self, number, kind)
        turns = (
            replace(turn, steps=tuple(1_000_000 * (4 if turn.side == CANDIDATE else 1) + at % 7 for _ in turn.steps))
            for at, turn in enumerate(result.blocks)
        )
        return replace(result, blocks=tuple(turns))

    monkeypatch.setattr(rounds.RoundRunner, "run", slower)


def test_a_slow_candidate_fails_and_is_confirmed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_candidate(monkeypatch)
    monkeypatch.setattr("profiler.check.modes.sides.EXPLAIN_S", 0.1)
    options = [train_command(2000), train_command(2001), "--out", "out"]
    assert main(["check", *options]) == 1
    report = check_report()
    assert report["state"] == "FAIL"
    assert {path.name for path in Path("out").iterdir() if path.is_file()} == {".gitignore", *REPORTS}
    assert report["throughput"]["confirmed"] is True
    assert any(path.name == "explained-candidate" for path in Path("out").iterdir())


WRITES = """
import sys, zlib
from pathlib import Path
from profiler import marks
def save():
    Path("model.bin").write_bytes(zlib.compress(bytes(range(256)) * 400, 9))
while True:
    for number in range(20_000):
        number * number
    if sys.argv[1] == "save":
        with marks.region("checkpoint"):
            save()
    marks.step(tokens=5)
"""
SAVES = WRITES[: WRITES.index("    Path(")].count("\n") + 1


@pytest.mark.slow
def test_a_slow_candidate_fails_with_the_finding_that_is_new_in_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text(WRITES)
    monkeypatch.setattr("profiler.check.modes.sides.EXPLAIN_S", 3.0)
    program = f"{sys.executable} train.py"
    assert main(["check", f"{program} none", f"{program} save", "--out", "out"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "(synchronous-checkpoint): new," in output, output
    [cause] = [cause for cause in check_report()["causes"] if cause["rule"] == "synchronous-checkpoint"]
    assert cause["before"] == 0
    assert cause["after"] > 0
    assert (Path(cause["file"]).name, cause["line"]) == ("train.py", SAVES)
    alerts = json.loads(Path("out/check.sarif").read_text())["runs"][0]["results"]
    [alert] = [alert for alert in alerts if alert["ruleId"] == "cause/synchronous-checkpoint"]
    assert alert["level"] == "error"
    assert alert["locations"][0]["physicalLocation"]["region"]["startLine"] == SAVES


@pytest.mark.slow
def test_an_interrupt_during_the_explanation_keeps_the_verdict(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    slow_candidate(monkeypatch)
    monkeypatch.setattr("profiler.check.modes.sides.record_explanation", stop)
    assert main(["check", train_command(2000), train_command(2001), "--out", "out"]) == 1
    printed = capsys.readouterr()
    assert "\nFAIL: " in printed.out
    assert "where the time of the base goes was not recorded: stopped" in printed.err
    assert check_report()["state"] == "FAIL"


def test_a_higher_counter_fails_whatever_the_times_are_and_the_job_shows_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "summary.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    sides = [train_command(2000, 3), train_command(2000, 4)]
    assert main(["check", *sides, *SOON, "--out", "out"]) == 1
    assert "FAIL" in (here / "summary.md").read_text()
    assert "::error" in capsys.readouterr().out
    assert "syncs" in str(check_report()["sentence"]).lower()


@pytest.mark.slow
def test_two_runs_of_a_check_are_compared(here: Path) -> None:
    assert main(["check", "--baseline", "b.json", "--update", "--out", "a", "--", *train(2000, 3)]) == 0
    assert main(["check", "--baseline", "c.json", "--update", "--out", "b", "--", *train(2000, 4)]) == 0
    run_a, run_b = "a/counted-candidate-1", "b/counted-candidate-1"
    assert main(["check", run_a, run_a.replace("-1", "-2"), "--out", "same"]) == 0
    assert main(["check", run_a, run_b, "--out", "more"]) == 1
    assert "so their speed is not compared" in str(check_report("more"))


def test_a_revision_and_a_baseline_are_compared_to_at_once(baseline: list[str]) -> None:
    Path("train.py").write_text(STEPPING.replace('"syncs", syncs', '"syncs", syncs + 1'))
    make_repository("train.py")
    Path("train.py").write_text(STEPPING.replace('"syncs", syncs', '"syncs", syncs + 2'))
    assert main([*baseline, "--against", "HEAD", *SOON, "--", *train()]) == 1
    report: dict[str, Any] = check_report()
    assert "syncs rose from 3 to 5 per step" in str(report["sentence"]).lower()
    assert report["baseline_file"] == "b.json"
    assert str(report["candidate"]["commit"]).endswith("+changes")
    assert len(git("worktree", "list").splitlines()) == 1


def test_a_damaged_baseline_is_refused_before_anything_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_repository("train.py")
    Path("b.json").write_text("{}")
    assert main(["check", "--baseline", "b.json", "--against", "HEAD", "--out", "out", "--", *train()]) == 2
    assert main(["check", "--baseline", "none.json", "--against", "HEAD", "--out", "out", "--", *train()]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 2, lines
    assert not Path("out").exists()


@pytest.mark.usefixtures("baseline")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--", *train()), 1),
        pytest.param(("--against", "HEAD", *SOON, "--", *train()), 1, marks=pytest.mark.slow),
        ((train_command(), train_command(), *SOON), 3),
    ],
    ids=["alone", "against", "two programs"],
)
def test_the_baseline_of_pyproject_is_used_or_reported_as_unused(options: tuple[str, ...], code: int) -> None:
    Path("pyproject.toml").write_text('[tool.profiler.check]\nbaseline = "b.json"\n')
    Path("train.py").write_text(STEPPING.replace('"syncs", syncs', '"syncs", syncs + 1'))
    make_repository("train.py")
    assert main(["check", "--out", "out", *options]) == code
    if code == 3:
        report = check_report()
        assert "was not used" in str(report["notes"])
        assert "time limit" in report["throughput"]["reason"]


def test_the_candidate_has_its_commit_and_step_time(baseline: list[str]) -> None:
    make_repository("train.py")
    assert main([*baseline, "--set", "history=h.jsonl", "--", *train()]) == 0
    side: dict[str, object] = check_report()["candidate"]  # type: ignore[assignment]
    commit = git("rev-parse", "HEAD").strip()
    assert side["commit"] == f"{commit}+changes", "b.json and the runs are new"
    assert side["step_time"] is not None
    assert side["tokens_per_s"] is not None
    (entry,) = history.read(Path("h.jsonl")).entries
    assert entry.step_time is None, "it would lie in one series with rounds of another level"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import sys\nprint('no data')\nsys.exit(4)\n", "exited with 4: no data"),
        ("def load():\n    open('none.csv')\nload()\n", "'none.csv', at bad.py:2 in load (its output is in"),
        (
            "from pathlib import Path\nPath('part.py').write_text('f((1)')\nimport part\n",
            "SyntaxError: '(' was never closed, at part.py:1 ",
        ),
        ("from profiler import marks\nfor _ in range(30): marks.step()\n", "many more steps"),
    ],
)
def test_programs_without_control(here: Path, capsys: pytest.CaptureFixture[str], source: str, line: str) -> None:
    Path("bad.py").write_text(source)
    command = f"{sys.executable} bad.py"
    assert main(["check", command, command, "--out", "out"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert line in last


def test_data_that_the_revision_lacks_are_to_be_linked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(f"import torch\nopen('data.csv')\n{STEPPING}")
    make_repository("train.py")
    Path("data.csv").write_text("1")
    for options in (["--count"], []):
        assert main(["check", *options, "--against", "HEAD", "--", *train()]) == 2
        last = capsys.readouterr().err.strip().splitlines()[-1]
        assert "at train.py:2" in last
        assert "--link PATH shows it data from outside git" in last
    Path("train.py").write_text(f"import torch\ntorch.zeros(2).view(3)\n{STEPPING}")
    git("commit", "-qam", "a fault of the program")
    assert main(["check", "--count", "--against", "HEAD", "--", *train()]) == 2
    assert "--link" not in capsys.readouterr().err


def test_the_error_for_a_program_without_steps_names_the_mark(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("none.py").write_text("print('all done')\n")
    assert main(["check", "--baseline", "b.json", "--update", "--", sys.executable, "none.py"]) == 2
    assert "profiler.step()" in capsys.readouterr().err.strip().splitlines()[-1]
    assert main(["run", "--out", "run", "--", sys.executable, "none.py"]) == 0
    capsys.readouterr()
    assert main(["check", "run", "run"]) == 2
    assert "profiler.step()" in capsys.readouterr().err.strip().splitlines()[-1]
    assert not Path("b.json").exists()


@pytest.fixture
def configured(here: Path, baseline_text: str) -> Path:
    """A project with two configurations, of which one counts more than its section of the baseline."""
    (here / "b.json").write_text(baseline_text)
    (here / "pyproject.toml").write_text(
        f"""
[tool.profiler.check]
baseline = "b.json"

[tool.profiler.check.configurations.small]
command = "{train_command()}"

[tool.profiler.check.configurations.large]
command = "{train_command(9000)}"
limits.syncs = 1
"""
    )
    assert main(["check", "--update", "--out", "updated"]) == 0
    return here


def test_all_configurations_are_checked_and_have_one_report(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_syncs(1)
    capsys.readouterr()
    assert main(["check", "--out", "out"]) == 1
    small, large = capsys.readouterr().out.splitlines()[-3:-1]
    assert (small.partition(":")[0], large) == ("small", "large: PASS: no counter rose")
    whole = check_report("out")
    assert whole["schema"] == "checks/1"
    assert whole["state"] == "FAIL"
    assert [(each["name"], each["state"]) for each in whole["checks"]] == [("small", "FAIL"), ("large", "PASS")]
    assert check_report("out/small")["state"] == "FAIL"
    assert {path.name for path in Path("out").iterdir() if path.is_file()} == {".gitignore", *REPORTS}
    suites = ET.parse("out/junit.xml").getroot()
    assert [suite.get("name") for suite in suites] == ["profiler check: small", "profiler check: large"]
    assert suites.get("failures") == "1"
    runs = json.loads(Path("out/check.sarif").read_text())["runs"]
    assert [run["automationDetails"]["id"] for run in runs] == ["small/", "large/"]
    assert "FAIL" in Path("out/check.html").read_text()
    assert "small: FAIL" in Path("out/check.md").read_text()


def test_a_configuration_that_cannot_be_checked_does_not_hide_the_others(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = configured / "pyproject.toml"
    file.write_text(file.read_text().replace(train_command(), f"{sys.executable} gone.py"))
    assert main(["check", "--out", "out"]) == 2
    assert "error: small: " in capsys.readouterr().err
    whole = check_report("out")
    assert [each["state"] for each in whole["checks"]] == ["ERROR", "PASS"]
    assert ET.parse("out/junit.xml").getroot().get("errors") == "1"


def test_the_command_of_pyproject_is_checked_where_none_is_given(
    here: Path, baseline_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "b.json").write_text(baseline_text)
    (here / "pyproject.toml").write_text(f'[tool.profiler.check]\ncommand = "{train_command()}"\n')
    assert main(["check", "--baseline", "b.json", "--out", "out"]) == 0
    (here / "pyproject.toml").write_text('[tool.profiler.check]\ncommand = "python \'train.py"\n')
    assert main(["check", "--baseline", "b.json"]) == 2
    assert "No closing quotation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[tool.profiler.check.configurations.a]\ncount = true", "needs a command"),
        ('[tool.profiler.check.configurations."../a"]\ncommand = "python"', "configurations: ../a"),
        ('[tool.profiler.check.configurations."check.json"]\ncommand = "python"', "configurations: check.json"),
        ('[tool.profiler.check.configurations.a]\ncommand = " "', "needs a command"),
        ('[tool.profiler.check.configurations.a]\ncommand = "x"\nstep = 3', "has no key step: did you mean steps?"),
        ('[tool.profiler.check.configurations.a]\ncommand = "x"\nconfigurations.b.command = "y"', "of its own"),
    ],
)
def test_a_faulty_configuration_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, line: str
) -> None:
    (here / "pyproject.toml").write_text(text)
    assert main(["check", "--against", "main"]) == 2
    assert any(line in each for each in capsys.readouterr().err.splitlines())


def test_configurations_after_a_stop_are_told_as_not_checked(
    configured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("profiler.check.modes.counters.check_command", stop)
    capsys.readouterr()
    assert main(["check", "--out", "out"]) == 130
    assert [each["sentence"] for each in check_report("out")["checks"]] == [
        "it was stopped",
        "it was not checked, because the check was stopped",
    ]


def test_reports_of_configurations_may_be_shared(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, files = settings.read_bytes, list[Path]()
    monkeypatch.setattr(settings, "read_bytes", lambda path: files.append(path) or read(path))
    assert main(["check", "--set", "shared=true", "--out", "out"]) == 0
    assert files == [configured / "pyproject.toml"], "it is read once for all configurations"
    assert [Path(folder).stat().st_mode & 0o005 for folder in ("out", "out/small")] == [5, 5]


def test_configurations_belong_to_the_file(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--set", 'configurations.a={command="x"}']) == 2
    assert "they are a table of pyproject.toml" in capsys.readouterr().err
