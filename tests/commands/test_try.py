"""`try`: asks before anything runs, says why it cannot, and leaves its result in the run directory."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import profiler
from profiler.__main__ import main
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Finding, KnockOut
from profiler.analyse.model.measures import Measure
from profiler.core.errors import ProfilerError
from profiler.core.terminal import called_as
from profiler.knockout import trial
from profiler.knockout.plan import Plan
from profiler.knockout.trial import _worth_trying
from profiler.report.action_text import measured_text
from profiler.run.model import RunInfo
from profiler.run.trials import Trial, read_trials
from tests.check.speed.programs import ROOT
from tests.knockout.test_isolation import allowed, fingerprint
from tests.knockout.test_trial import TRAIN, finding, line_of


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run whose only finding is about a useless line; there is no terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    Path("train.py").write_text(TRAIN)
    Path("run").mkdir()
    with_findings(monkeypatch, finding(line_of("useless")))
    return tmp_path / "run"


def with_findings(monkeypatch: pytest.MonkeyPatch, *findings: Finding, **measures: float) -> None:
    later = datetime.now(UTC) + timedelta(minutes=1)
    info = RunInfo(1, "", later.isoformat(), (sys.executable, "train.py"), begin=0, end=2 * 10**9, cwd=str(Path.cwd()))
    values = {name: Measure(name, value, "bytes") for name, value in measures.items()}
    monkeypatch.setattr(profiler, "read", lambda _: Analysis(info, values, {}, {}, findings=findings))


@allowed
def test_a_measured_gain_is_printed_and_kept(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: value for name, value in fingerprint(run.parent).items() if not name.startswith("run")}
    assert main(["try", "run", "--yes", "--minutes", "0.08"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert printed.err.startswith("python-loop: round 1 (0:00:00)\n")
    assert lines[1] == f"  The trial skips train.py:{line_of('useless')}: useless = work(60_000)"
    assert lines[2] == f"The program runs in {run.parent}: {sys.executable} train.py"
    assert "1 trial of at most 4.80 s in all" in lines[3]
    assert lines[4].startswith("python-loop: measured ")
    assert lines[5] == "more: python -m profiler diagnose run"
    (kept,), _ = read_trials(run)
    assert kept.rule == "python-loop"
    assert kept.factor is not None
    after = {name: value for name, value in fingerprint(run.parent).items() if not name.startswith("run")}
    assert after == before


@allowed
def test_json(run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with_findings(monkeypatch, finding(line_of("useless")))
    monkeypatch.setattr(trial, "_reports", lambda _: {"skipped": set(), "stopped": set(), "steps": {0}, "graph": set()})
    assert main(["try", "--yes", "--json", "--minutes", "0.03", "run"]) == 3, "nothing was measured"
    (row,) = json.loads(capsys.readouterr().out)["trials"]
    assert row["factor"] is None
    assert row["reason"]["code"] == "training"
    assert "trains the model" in row["explanation"]


def test_without_a_terminal_nothing_runs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", "run"]) == 2
    assert "it needs --yes" in capsys.readouterr().err
    assert list(run.iterdir()) == []


@allowed
@pytest.mark.parametrize("answer", ["", "n", "no\n"])
def test_it_asks(run: Path, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = io.StringIO(answer + "\n")
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", terminal)
    assert main(["try", "--json", "run"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "", "standard output is for JSON only"
    assert printed.err.endswith("Run it? [y/N] ")
    assert f"{sys.executable} train.py" in printed.err
    assert list(run.iterdir()) == []


@allowed
def test_what_cannot_be_tried_is_told(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = finding(line_of("useless"), knock_out=None)
    with_findings(monkeypatch, replace(other, rule=replace(other.rule, name="float64")))
    assert main(["try", "run", "--yes"]) == 3
    printed = capsys.readouterr()
    assert printed.out == (
        "float64: not tried: its cause cannot be left out of the program; apply the fix by hand, and run "
        "`compare --before OLD --after NEW`\n"
    )
    assert printed.err == "error: no finding of run can be tried\n"


@allowed
def test_runs_that_cannot_be_repeated_are_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    analysis = profiler.read(run)
    changed = replace(analysis, info=replace(analysis.info, cwd="/no/such/folder"))
    monkeypatch.setattr(profiler, "read", lambda _: changed)
    assert main(["try", "run", "--yes"]) == 2
    assert "/no/such/folder" in capsys.readouterr().err


@allowed
def test_a_command_without_its_secret_has_to_be_given_anew(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    analysis = profiler.read(run)
    words = (sys.executable, "train.py", "--api-key", "***")
    masked = replace(analysis, info=replace(analysis.info, argv=words))
    monkeypatch.setattr(profiler, "read", lambda _: masked)
    for given in ((), ("--", *words)):
        assert main(["try", "--yes", "run", *given]) == 2
        said = capsys.readouterr().err
        assert said == (
            "error: a part of the command was not recorded (--api-key ***): write it in place of *** in: "
            f"{called_as()} try --yes run -- {sys.executable} train.py --api-key '***'\n"
        )
    assert main(["try", "--yes", "run", "--", sys.executable, "train.py", "--lr", "1"]) == 2
    assert capsys.readouterr().err.startswith("error: run was recorded with another command: ")
    complete = (*words[:3], "hunter2")
    assert trial.prepare(run, masked, command=complete).program.argv == complete


@allowed
@pytest.mark.slow
def test_a_secret_that_is_given_anew_is_nowhere(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    analysis, complete = profiler.read(run), (sys.executable, "train.py", "--api-key", "hunter2")
    masked = replace(analysis, info=replace(analysis.info, argv=(*complete[:3], "***")))
    monkeypatch.setattr(profiler, "read", lambda _: masked)
    assert main(["try", "run", "--yes", "--minutes", "0.08", "--", *complete]) == 0
    printed = capsys.readouterr()
    assert "hunter2" not in printed.out + printed.err
    assert not any(b"hunter2" in file.read_bytes() for file in run.rglob("*") if file.is_file())


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_at_least_one_finding_is_tried(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["try", "--findings", number, "run", "--yes"])
    assert "is not a number of findings" in capsys.readouterr().err


@allowed
@pytest.mark.parametrize(("factor", "tried"), [(1.02, ["no-workers", "slow-item"]), (2.0, ["no-workers"])])
def test_where_a_finding_gains_nothing_the_next_one_about_the_same_time_is_tried(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], factor: float, tried: list[str]
) -> None:
    settings = {"loader": {"num_workers": 1}}
    first = finding(knock_out=KnockOut.SETTINGS, settings=settings)
    first = replace(first, rule=replace(first.rule, name="no-workers"))
    other = finding(line_of("useless"))
    item = replace(other, rule=replace(other.rule, name="slow-item"), overlaps="no-workers")
    unrelated = replace(item, overlaps="python-loop")
    with_findings(monkeypatch, first, unrelated, item)

    def measured(plan: Plan, *_: object) -> Trial:
        return Trial(plan.finding.rule.name, factor=factor, low=factor - 0.01, high=factor + 0.01)

    monkeypatch.setattr(trial, "measure", measured)
    assert main(["try", "run", "--yes", "--findings", "1"]) == 0
    assert [trial.rule for trial in read_trials(run)[0]] == tried
    printed = capsys.readouterr().out
    assert "If no-workers gains nothing, the trial skips train.py" in printed
    assert "2 trials of at most" in printed


def test_a_program_that_was_saved_just_before_it_started_has_not_changed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = datetime.fromtimestamp((run.parent / "train.py").stat().st_mtime, UTC)
    for started, number in ((saved.replace(microsecond=0), 1), (saved - timedelta(seconds=2), 0)):
        analysis = profiler.read(run)
        info = replace(analysis.info, started_at=started.isoformat())
        assert len(trial.prepare(run, replace(analysis, info=info)).plans) == number


def test_a_line_is_tried_once_for_the_larger_cause(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    larger = finding(line_of("useless"), knock_out=None)
    larger = replace(larger, rule=replace(larger.rule, name="loader-started-anew"))
    with_findings(monkeypatch, larger, finding(line_of("useless")))
    prepared = trial.prepare(run, profiler.read(run))
    assert prepared.plans == ()
    assert [reason.code for _, reason in prepared.not_tried] == ["no-knock-out", "line-of-other"]


def test_findings_without_a_prediction_come_last() -> None:
    unknown = replace(finding(1), gains=())
    assert _worth_trying([unknown, finding(2)]) == [finding(2), unknown]
    assert measured_text(Trial("a", factor=1.5, low=1.4, high=1.6)).endswith("nothing was predicted")
    assert measured_text(Trial("a", factor=1.02, low=0.8, high=1.3)).endswith("; the difference may be chance")


@allowed
def test_two_copies_must_fit_into_the_memory(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_findings(monkeypatch, finding(line_of("useless")), peak_memory=1e15)
    assert main(["try", "run", "--yes"]) == 3
    assert "two copies of the program take 2,000 TB of memory" in capsys.readouterr().err


def test_without_isolation_nothing_runs(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise ProfilerError("nothing can be tried here", 3)  # type: ignore[arg-type]

    monkeypatch.setattr(trial, "check_isolation", refuse)
    assert main(["try", "run", "--yes"]) == 3
    assert capsys.readouterr().err == "error: nothing can be tried here\n"
    assert list(run.iterdir()) == []


@pytest.mark.parametrize("words", [["--"], ["run", "other"]])
def test_bad_words_are_one_line(words: list[str], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", "--yes", *words]) == 2
    assert "name a run directory" in capsys.readouterr().err


def test_every_knock_out_has_what_it_needs() -> None:
    from profiler.core.plugins import discover

    for rule in discover("profiler.diagnose.rules"):
        assert (rule.knock_out is KnockOut.SETTINGS) <= bool(rule.settings), rule.name
        assert bool(rule.settings) <= (rule.knock_out is not None), rule.name
