"""Trials: what they measure, what they report, and that nothing is left of them however they end."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from profiler.analyse.model.finding import Confidence, Finding, Gain, GainMethod, KnockOut, RuleText
from profiler.check.model import BASE, CANDIDATE, MEASURE, Conditions, Round, StepBlock
from profiler.check.speed.rounds import MORE_S, NARROW, doubt, measured_gain, more_time, time_for_rounds
from profiler.core.errors import Notice
from profiler.core.plugins import discover
from profiler.diagnose.findings import with_trials
from profiler.knockout.plan import Plan, plan_trial
from profiler.knockout.trial import Recorded, measure
from profiler.report.action_text import measured_text, trials_json
from profiler.report.finding_text import factor_text, gain_text
from profiler.report.notices import describe
from profiler.run import tables
from profiler.run.model import Site
from profiler.run.trials import SkippedLine, Trial, read_trials, write_trials
from tests.check.speed.programs import ROOT, until
from tests.knockout.test_isolation import allowed, fingerprint

RULES = {rule.name: rule for rule in discover("profiler.diagnose.rules")}
SECONDS = 5.0
"""Limit of a trial; its first round takes as long as it needs."""

TRAIN = """
from pathlib import Path
from profiler import marks
def work(amount):
    return sum(number * number for number in range(amount))
class Loss:
    def backward(self):
        work(20_000)
log = Path("log.txt").open("a")
while True:
    useless = work(60_000)
    log.write("step")
    log.flush()
    Path("model.pt").write_text("of the trial")
    nothing = 0
    Loss().backward()
    marks.step()
"""


def finding(*lines: int, knock_out: KnockOut | None = KnockOut.STATEMENT, **rule: Any) -> Finding:
    text = RuleText("python-loop", "Python", (), "", knock_out=knock_out, **rule)
    sites = tuple(Site("train.py", line, "<module>") for line in lines)
    gains = (Gain(GainMethod.BOUND, 1.5, 1.4, 1.6),)
    return Finding(text, 0.1, 0.3, 0.2, 0.4, Confidence.HIGH, sites, {"workers": 3.6, "missing": None}, gains)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The folder of a program, older than its recording."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "model.pt").write_text("of the user")
    return folder


def line_of(part: str) -> int:
    return next(number for number, line in enumerate(TRAIN.splitlines(), 1) if part in line)


def planned(here: Path, part: str) -> Plan:
    plan = plan_trial(finding(line_of(part)), [here], time.time() + 60)
    assert isinstance(plan, Plan)
    return plan


def program(here: Path) -> Recorded:
    return Recorded((sys.executable, "train.py"), here, {"PYTHONPATH": str(ROOT)})


# ---------------------------------------------------------------- plans


def test_a_plan_names_what_it_skips(here: Path) -> None:
    plan = planned(here, "useless")
    assert [(line.file, line.source) for line in plan.lines] == [(str(here / "train.py"), "useless = work(60_000)")]
    assert list(plan.texts) == [str(here / "train.py")]


def test_what_cannot_be_planned_has_a_reason(here: Path) -> None:
    later = time.time() + 60
    cases: list[tuple[Finding, float, str]] = [
        (finding(1, knock_out=None), later, "no-knock-out"),
        (replace(finding(1, knock_out=None), costs={"core": 0.1}), later, "wait-for-core"),
        (replace(finding(1), is_of_run=True), later, "not-of-steps"),
        (finding(), later, "no-line"),
        (finding(line_of("Loss().backward")), later, "training"),
        (finding(line_of("useless")), time.time() - 60, "source-changed"),
        (finding(knock_out=KnockOut.SETTINGS, settings={"threads": "missing"}), later, "no-value"),
    ]
    for each, recorded_at, code in cases:
        plan = plan_trial(each, [here], recorded_at)
        assert isinstance(plan, Notice)
        assert plan.code == code
    gone = plan_trial(finding(1), [here / "elsewhere"], later)
    assert isinstance(gone, Notice)
    assert gone.code == "source-unreadable"


def test_what_does_not_skip_the_first_line_is_no_plan(here: Path) -> None:
    useless, backward = line_of("useless"), line_of("Loss().backward")
    refused = plan_trial(finding(backward, useless), [here], time.time() + 60)
    assert isinstance(refused, Notice)
    assert (refused.code, refused.values["line"]) == ("training", backward)
    part = plan_trial(finding(useless, backward), [here], time.time() + 60)
    assert isinstance(part, Plan)
    assert part.cause == {0}


def test_settings_take_the_values_of_the_finding(here: Path) -> None:
    settings = {"loader": {"num_workers": "workers", "persistent_workers": True}}
    changed = plan_trial(finding(knock_out=KnockOut.SETTINGS, settings=settings), [here], 0.0)
    assert isinstance(changed, Plan)
    assert changed.settings == {"loader": {"num_workers": 4, "persistent_workers": True}}
    blamed = finding(knock_out=KnockOut.SETTINGS, settings={"loader": {"persistent_workers": "keep"}})
    anew = replace(blamed, values={"keep": None, "made_anew": Site("train.py", 3, "main")})
    refused = plan_trial(anew, [here], 0.0)
    assert isinstance(refused, Notice)
    assert refused.code == "no-knock-out", "a loader that is made anew keeps no workers, whatever its settings are"
    blamed = finding(knock_out=KnockOut.SETTINGS, settings=settings)
    blamed = replace(blamed, values={**blamed.values, "loader_site": Site("train.py", 3, "main")})
    changed = plan_trial(blamed, [here], time.time() + 60)
    assert isinstance(changed, Plan)
    assert changed.settings["loader_at"] == [str(here / "train.py"), 3]
    for folder, code in ((here, "source-changed"), (here / "elsewhere", "source-unreadable")):
        refused = plan_trial(blamed, [folder], 0.0)
        assert isinstance(refused, Notice)
        assert refused.code == code, "the line may be that of another loader, or of none"


@pytest.mark.parametrize("rule", ["io-bound-input", "slow-dataset-item", "slow-collate"])
def test_all_work_of_a_blamed_loader_is_left_out_and_not_only_that_of_the_sampled_lines(here: Path, rule: str) -> None:
    blamed = replace(finding(line_of("useless")), rule=RULES[rule])
    blamed = replace(blamed, values={"loader_site": Site("train.py", 3, "main")})
    plan = plan_trial(blamed, [here], time.time() + 60)
    assert isinstance(plan, Plan)
    assert plan.settings == {"replay": True, "loader_at": [str(here / "train.py"), 3]}
    assert not plan.lines


def test_a_thread_is_stopped_at_its_own_line_and_not_where_others_wait_for_it(here: Path) -> None:
    waiting = finding(line_of("nothing = 0"), knock_out=KnockOut.THREAD)
    held_at = Site("train.py", line_of("return sum"), "work")
    plan = plan_trial(replace(waiting, values={"thread_site": held_at}), [here], time.time() + 60)
    assert isinstance(plan, Plan)
    assert [line.line for line in plan.lines] == [held_at.line]


# ---------------------------------------------------------------- statistics


def blocks(ratio: float, pairs: int = 24, noise: float = 0.02, seed: int = 1) -> Round:
    """A round in which the base takes `ratio` times as long."""
    random = Random(seed)
    made = []
    for pair in range(pairs):
        for side in (BASE, CANDIDATE) if pair % 2 else (CANDIDATE, BASE):
            length = (ratio if side == BASE else 1.0) * random.gauss(1.0, noise)
            made.append(StepBlock(side, 0, tuple(int(1e6 * length) for _ in range(5))))
    return Round(1, MEASURE, (BASE, CANDIDATE), tuple(made))


def rounds_in(seconds: float, made: list[Round]) -> Iterator[None]:
    return time_for_rounds(time.monotonic(), seconds, made, lambda _: None)


def test_the_gain_is_the_ratio_of_all_steps() -> None:
    widths = []
    for rounds in (1, 2, 3):
        gain = measured_gain([blocks(1.5, seed=seed) for seed in range(rounds)])
        assert gain is not None
        assert gain.pairs == 24 * rounds
        low, high = gain.interval()
        assert low < 1.5 < high
        widths.append(2 * gain.half())
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.3, "starts of a program differ, of which one round tells nothing"


@pytest.mark.parametrize("starts", [0.05, *(pytest.param(starts, marks=pytest.mark.slow) for starts in (0.03, 0.08))])
@pytest.mark.parametrize("rounds", [1, 2, 3, 5])
def test_intervals_hold_the_truth_where_starts_differ(rounds: int, starts: float) -> None:
    """Rounds end early where the interval is narrow, as in a trial."""
    random, outside = Random(1), 0
    for seed in range(400):
        made: list[Round] = []
        for number, _ in zip(range(rounds), rounds_in(math.inf, made), strict=False):
            ratio = math.exp(random.gauss(0.0, starts))
            made.append(blocks(ratio, noise=0.05, seed=5 * seed + number))
        gain = measured_gain(made)
        outside += gain is None or not abs(gain.log) <= gain.half()
    assert outside <= 32, f"{outside} of 400"


@pytest.mark.parametrize("allowed_s", [1.0, 100.0])
def test_starts_are_repeated_as_the_time_allows(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed_s: float
) -> None:
    settings: dict[str, Any] = {}

    class Runner:
        def __init__(self, *_: object, **more: Any) -> None:
            settings.update(more)

        def run(self, number: int, _: str) -> Round:
            return replace(blocks(1.5, pairs=20, noise=0.001, seed=number), seconds=2.0)

    monkeypatch.setattr("profiler.knockout.trial.RoundRunner", Runner)
    monkeypatch.setattr("profiler.knockout.trial.await_quiet", lambda _: None)
    trial = measure(Plan(finding(), settings={"collect": False}), program(here), tmp_path / "out", allowed_s)
    assert trial.rounds == (1 if allowed_s < 2 else 3)
    assert settings["round_seconds"] < allowed_s / 3
    assert settings["is_alone"] is True


def test_rounds_wait_for_quiet_moments_and_end_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits, made = [0.0], [], list[Round]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for number, _ in enumerate(time_for_rounds(0.0, 300.0, made, waits.append)):
        noise = replace(blocks(1.5, noise=0.3, seed=number), seconds=70.0)
        made.append(replace(noise, blocks=noise.blocks[: 2 * (4 + number % 2)]))
        now[0] += 80.0
    assert (len(made), waits) == (3, [10.0, 10.0, 10.0]), "a fourth would end after 310 s"


def test_rounds_end_once_the_gain_is_known() -> None:
    made = list[Round]()
    for number, _ in enumerate(rounds_in(1e9, made)):
        made.append(blocks(1.5, pairs=40, noise=0.001, seed=number))
    assert len(made) == 3


def test_what_more_time_gives_is_the_interval_of_more_rounds() -> None:
    rounds = [blocks(1.5, noise=0.1, seed=seed) for seed in range(2)]
    gain = measured_gain(rounds)
    assert gain is not None
    more = more_time(gain, MORE_S / 2)
    assert more is not None
    enough = next(number for number in range(3, 7) if number == 6 or gain.half(number) < NARROW)
    assert (more.values["low"], more.values["high"]) == gain.interval(rounds=enough), "no round follows then"
    assert gain.half(enough) < gain.half()
    many = more_time(gain, MORE_S / 1000)
    assert many is not None
    assert math.log(many.values["high"] / many.values["low"]) / 2 > NARROW / 2, "it ends once it is narrow enough"
    wanted = f"5 more minutes would narrow it to about {more.values['low']:.2f} to {more.values['high']:.2f}×"
    assert describe(more) == wanted
    assert more_time(replace(gain, rounds=40), MORE_S) is None


@pytest.mark.parametrize(("load", "said"), [(25.0, "this machine was too busy to tell"), (0.1, "differ too much")])
def test_an_interval_of_more_than_a_factor_of_two_is_no_fact(load: float, said: str) -> None:
    rounds = [replace(blocks(ratio), conditions=Conditions(load, cores=2)) for ratio in (0.08, 0.2, 0.45)]
    gain = measured_gain(rounds)
    assert gain is not None
    reason = doubt(gain, rounds)
    assert said in describe(reason)
    assert ("25 threads ready to run for its 2 cores" in describe(reason)) is (load > 1)
    trial = Trial("a", reason=reason)
    assert measured_text(trial).startswith("not measured: ")
    near = rounds[:1] * 3
    known = measured_gain(near)
    assert known is not None
    assert doubt(known, near) is None


def test_too_few_pairs_measure_nothing() -> None:
    assert measured_gain([]) is None
    assert measured_gain([blocks(1.5, pairs=3)]) is None


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("is_made", [True, False])
def test_without_the_blamed_loader_nothing_is_measured(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made: bool, is_known: bool
) -> None:
    out = tmp_path / "out"

    class Runner:
        def __init__(self, *_: object, **__: object) -> None:
            folder = out / f"round1-{CANDIDATE}" / "source-7"
            folder.mkdir(parents=True)
            (folder / tables.SOURCE_META).write_text(
                json.dumps({"facts": {tables.CHANGED_LOADER: True} if is_made else {}})
            )

        def run(self, *_: object) -> Round:
            return blocks(1.5, pairs=20)

    monkeypatch.setattr("profiler.knockout.trial.RoundRunner", Runner)
    monkeypatch.setattr("profiler.knockout.trial.await_quiet", lambda _: None)
    place = [str(here / "train.py"), 3]
    settings = {"loader": {"num_workers": 2}, "loader_at": place} if is_known else {"replay": True}
    trial = measure(Plan(finding(), settings=settings), program(here), out, SECONDS)
    assert (trial.factor is not None) is is_made
    missing = Notice("loader-not-found", {"file": place[0], "line": place[1]}) if is_known else Notice("no-loader")
    assert trial.reason == (None if is_made else missing)


@pytest.mark.parametrize(("ratio", "is_measured"), [(1.1, False), (1.5, True)])
def test_without_the_recorded_waits_for_files_their_gain_is_not_measured(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: float, is_measured: bool
) -> None:
    class Runner:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def run(self, number: int, _: str) -> Round:
            return blocks(ratio, pairs=20, noise=0.001, seed=number)

    monkeypatch.setattr("profiler.knockout.trial.RoundRunner", Runner)
    monkeypatch.setattr("profiler.knockout.trial.await_quiet", lambda _: None)
    plan = Plan(replace(finding(), values={"files": 0.8}), settings={"threads": 1})
    trial = measure(plan, program(here), tmp_path / "out", 100.0)
    assert (trial.factor is not None) is is_measured
    assert trial.reason == (None if is_measured else Notice("files-in-memory"))


# ---------------------------------------------------------------- files and findings


def test_trials_are_written_and_read(tmp_path: Path) -> None:
    reason = Notice("training", {"file": "train.py", "line": 3})
    trials = (
        Trial(
            "a", "train.py:3", 1.5, 1.4, 1.3, 1.5,
            is_least=True, skipped=(SkippedLine("train.py", 3, "x = 1"),), settings={"threads": 2}, pairs=9,
        ),
        Trial("b", reason=reason),
    )  # fmt: skip
    write_trials(tmp_path, trials)
    assert read_trials(tmp_path) == (trials, ())
    assert read_trials(tmp_path / "none") == ((), ())


def test_measured_gains_come_first_and_rank_findings() -> None:
    first, second = finding(1), finding(2)
    trials = [
        Trial("python-loop", "train.py:2", 1.5, 2.5, 2.4, 2.6),
        Trial("python-loop", "train.py:1", reason=Notice("x")),
    ]
    ranked = with_trials((first, second), trials)
    assert [each.sites[0].line for each in ranked] == [2, 1]
    assert [gain.method for gain in ranked[0].gains] == [GainMethod.KNOCK_OUT, GainMethod.BOUND]
    assert ranked[0].gain == 2.5
    assert not ranked[0].gains[0].is_least
    (written,) = with_trials((first,), [Trial("python-loop", "train.py:1", None, 2.5, 2.4, 2.6, is_least=True)])
    assert factor_text(written.gains[0]) == "at least 2.50×"
    replayed = Trial("python-loop", "train.py:1", None, 2.5, 2.4, 2.6, settings={"replay": True})
    assert factor_text(with_trials((first,), [replayed])[0].gains[0]) == "up to about 2.50×"
    limited = replace(first, gains=tuple(replace(gain, factor=2.0, is_most=True) for gain in first.gains[:1]))
    (both,) = with_trials((limited,), [replayed])
    assert gain_text(both) == "up to about 2.00× (2.50× measured)", "of two upper limits the smaller one counts"
    assert measured_text(replayed).startswith("measured up to 2.50×")
    assert json.loads(trials_json([replayed], "Edit train.py:3: ..."))["trials"][0]["is_most"] is True
    assert ranked[1] == first


# ---------------------------------------------------------------- real programs


@allowed
@pytest.mark.slow
def test_a_useless_statement_gives_its_time_back_and_nothing_else_changes(here: Path, tmp_path: Path) -> None:
    before = fingerprint(here)
    trial = measure(planned(here, "useless"), program(here), tmp_path / "out", SECONDS)
    assert trial.reason is None
    assert trial.factor is not None
    assert trial.factor > 1.5, "the statement takes three quarters of a step"
    assert [line.source for line in trial.skipped] == ["useless = work(60_000)"]
    assert fingerprint(here) == before


LOADER = """
from torch.utils.data import DataLoader
from profiler import marks
def work(amount):
    return sum(number * number for number in range(amount))
class Items:
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        work(60_000)
        return work(20_000)
while True:
    for batch in DataLoader(Items()):
        work(20_000)
        marks.step()
"""


@allowed
@pytest.mark.slow
def test_a_trial_of_slow_items_gives_at_least_what_items_without_work_give(here: Path, tmp_path: Path) -> None:
    """The sampled line is a quarter of the item: a program without it alone is 1.25 times as fast."""
    (here / "train.py").write_text(LOADER)
    lines = {text.strip(): number for number, text in enumerate(LOADER.splitlines(), 1)}
    loader = Site("train.py", lines["for batch in DataLoader(Items()):"], "<module>")
    blamed = replace(finding(lines["return work(20_000)"]), rule=RULES["io-bound-input"])
    plan = plan_trial(replace(blamed, values={"loader_site": loader}), [here], time.time() + 60)
    assert isinstance(plan, Plan)
    trial = measure(plan, program(here), tmp_path / "out", 4 * SECONDS)
    assert trial.reason is None
    assert trial.factor is not None
    assert trial.factor > 2.0, "items take four fifths of a step"


@allowed
@pytest.mark.slow
def test_a_statement_that_costs_nothing_gives_nothing(here: Path, tmp_path: Path) -> None:
    trial = measure(planned(here, "nothing = 0"), program(here), tmp_path / "out", SECONDS)
    assert trial.reason is None
    assert trial.factor is not None
    assert 0.7 < trial.factor < 1.4


@allowed
@pytest.mark.slow
def test_without_the_first_line_left_out_nothing_is_measured(here: Path, tmp_path: Path) -> None:
    source = TRAIN.replace("    nothing = 0\n", "    if log.closed:\n        useless = 1\n")
    (here / "train.py").write_text(source)
    lines = [number for number, text in enumerate(source.splitlines(), 1) if "useless = " in text]
    plan = plan_trial(finding(*reversed(lines)), [here], time.time() + 60)
    assert isinstance(plan, Plan)
    trial = measure(plan, program(here), tmp_path / "out", SECONDS)
    assert [line.line for line in trial.skipped] == lines[:1]
    assert trial.factor is None
    assert trial.reason == Notice("not-reached", {"file": str(here / "train.py"), "line": lines[1]})


@allowed
@pytest.mark.parametrize(
    ("source", "code"),
    [
        (
            TRAIN.replace("    Loss().backward()\n", "    if useless is None: raise ValueError(useless)\n"),
            "trial-failed",
        ),
        pytest.param(
            TRAIN.replace("    useless = work(60_000)\n", "    if log.closed:\n        useless = 1\n"),
            "not-reached",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_why_nothing_was_measured(here: Path, tmp_path: Path, source: str, code: str) -> None:
    changed = source.replace("useless is None", "True") if code == "trial-failed" else source
    (here / "train.py").write_text(changed)
    line = next(number for number, text in enumerate(changed.splitlines(), 1) if "useless = " in text)
    plan = plan_trial(finding(line), [here], time.time() + 60)
    assert isinstance(plan, Plan)
    trial = measure(plan, program(here), tmp_path / "out", SECONDS)
    assert trial.factor is None
    assert trial.reason is not None
    assert trial.reason.code == code


@allowed
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGKILL))],
)
def test_nothing_is_left_when_a_trial_is_stopped(here: Path, tmp_path: Path, number: int) -> None:
    before = fingerprint(here)
    mark = f"--mark-{os.getpid()}-{time.monotonic_ns()}"
    source = f"""
import sys, time
from pathlib import Path
from tests.knockout import test_trial as t
here = Path({str(here)!r})
program = t.Recorded((sys.executable, "train.py", {mark!r}), here, {{"PYTHONPATH": {str(ROOT)!r}}})
t.measure(t.planned(here, "useless"), program, Path({str(tmp_path / "out")!r}), 120.0)
"""
    temporary = Path(tempfile.mkdtemp(prefix="t-"))  # sockets need a short name
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}

    def programs() -> int:
        return len(subprocess.run(["pgrep", "-f", "--", mark], capture_output=True, check=False).stdout.split())

    with subprocess.Popen([sys.executable, "-c", source], env=environment, cwd=tmp_path) as process:
        # the controller itself names the mark too; each side is three processes
        until(lambda: programs() >= 5 or process.poll() is not None)
        process.send_signal(number)
        process.wait(60)
        until(lambda: programs() == 0)
        until(lambda: not list(temporary.iterdir()))
    temporary.rmdir()
    assert fingerprint(here) == before
