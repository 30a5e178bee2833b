"""`compare` as people use it: real programs, real recordings, the report on disk. Nothing here asserts a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.__main__ import main
from profiler.analyse.model.measures import HOST_CATEGORIES, WAIT_CATEGORIES
from profiler.record.launch import last_output_line, record
from profiler.run.load import load
from profiler.run.model import Run, RunSpec
from profiler.run.tables import CallKind
from reference_trainer.report.trainers import LM
from tests.fakes.programs import ROOT, script, start, until

MEASURES = {
    "tokens_per_s", "steps", "syncs_per_step", "h2d_per_step", "d2h_per_step", "allocations_per_step",
    "device_utilization", "host_cpu", "peak_memory", "loss", "accuracy",
}  # fmt: skip
TOP_KEYS = {"verdict", "comparable", "device", "ratios", "sides"}

ROUNDS = """
import sys
from profiler import marks

marks.describe(device="cpu", step="round")
marks.open_step()
for round in range(8):
    with marks.region("tokenize"):
        sum(range(int(sys.argv[1])))
    marks.count("syncs", int(sys.argv[2]))
    marks.gauge("loss", 0.5)
    marks.step(tokens=100)
"""
"""Takes the length of a sum and the syncs of a step."""

HANGING = """
import os, signal
from profiler import marks

marks.open_step()
for _ in range(3):
    marks.step(tokens=1)
if os.environ["PROFILER_RUN_DIR"].endswith("02-after"):
    marks.recorder().flush()
    print("hangs", flush=True)
    signal.pause()
"""
"""Ends by itself except in the second round."""

LADDER = """
import argparse, json
from profiler import marks

COSTS = {"first": 2_000_000, "second": 200_000}
parser = argparse.ArgumentParser()
for option in ("variant", "fixes", "seconds", "max-chunks", "warmup-seconds", "device"):
    parser.add_argument("--" + option)
parser.add_argument("--list-fixes", action="store_true")
parser.add_argument("--empty-kernels", action="store_true")
args = parser.parse_args()

def fix(name, kind, requires=()):
    return {"name": name, "removes": "a sum", "rule": "sums", "rule_left_out": "sums", "requires": list(requires),
            "excludes": [], "kind": kind, "available": True, "why_not": ""}

if args.list_fixes:
    fixes = [fix("first", "cure"), fix("second", "cure", ["first"]), fix("learn", "work")]
    print(json.dumps({"device": "cpu", "fixes": fixes, "fixed": ["first", "second"]}))
    raise SystemExit
names = ["first", "second"] if args.variant == "fixed" else (args.fixes or "").split(",")
marks.describe(device="cpu", step="chunk", work="learn" if "learn" in names else "forward")
marks.open_step()
for chunk in range(8):
    for name, cost in COSTS.items():
        sum(range(0 if name in names else cost))
    sum(range(10_000))
    marks.gauge("loss", 0.5)
    marks.step(tokens=100)
"""
"""A trainer that offers fixes: each takes away a sum that a chunk computes, ten times what remains or more."""


def start_compare(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return start("compare", *arguments, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160"})


def compare(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """The JSON report and what was printed."""
    process = start_compare(folder, *arguments, "--out", "out")
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads((folder / "out" / "compare.json").read_text()), out


def check_keys(report: dict[str, Any]) -> None:
    assert report.keys() >= TOP_KEYS
    for number, side in enumerate(report["sides"]):
        assert side["measures"].keys() >= MEASURES
        assert side["detail"]["breakdown"].keys() >= {*HOST_CATEGORIES}.difference(WAIT_CATEGORIES)
        for name in MEASURES:
            missing = side["measures"][name]["value"] is None
            path = f"sides.{number}.measures.{name}.value"
            assert missing == (path in report["not_measured"]), f"{path} needs a value or a reason"


def values(side: dict[str, Any]) -> dict[str, Any]:
    """The measures of a side."""
    return {name: measure["value"] for name, measure in side["measures"].items()}


def speed_ratio(report: dict[str, Any]) -> float:
    """The ratio of the sides' speeds, which the report does not have where one of them waited for a core."""
    before, after = (side["tokens_per_s"] or side["steps_per_s"] for side in map(values, report["sides"]))
    return float(after / before)


def check_bundled_pair(folder: Path, report: dict[str, Any], *runs_as_found: str) -> None:
    """Exact counts of the language model as found and fixed, and what its report must name."""
    check_keys(report)
    assert report["comparable"] is True
    assert report["device"] == "host device (CPU)"
    assert speed_ratio(report) > 5
    before, after = map(values, report["sides"])
    syncs, uploads, downloads, allocations = (
        after[f"{name}_per_step"] for name in ("syncs", "h2d", "d2h", "allocations")
    )
    assert (uploads, allocations) == (1, 0)
    assert 0 < downloads <= 1, "metrics are read every few chunks"
    readings = 1 / 16 + 2 / after["steps"]  # of the metrics: every 16 chunks, and at the end of a run
    assert 1 <= syncs <= 1.001 + readings, "one a chunk, and at most one where the metrics are read"
    for run in runs_as_found:
        syncs, tokens = per_step(load(folder / run), "syncs")
        assert len(tokens) > 0
        assert (syncs == 2 * tokens).all(), f"{run}: {syncs} syncs of {tokens} tokens"
    assert before["syncs_per_step"] > 4000
    for side in (before, after):
        assert 0 < side["device_utilization"] <= 1
        assert side["host_cpu"] > 0
        assert 0 <= side["loss"] <= 1
        assert side["loss"] + side["accuracy"] == pytest.approx(1)
    for side in report["sides"]:
        assert sum(part["value"] or 0.0 for part in side["detail"]["breakdown"].values()) > 0
    html = (folder / "out" / "compare.html").read_text()
    assert "as_found.py" in html, "the report names the lines that leave the device idle"
    assert not any((folder / "out").rglob("*.new")), "nothing half-written is left"


@pytest.mark.usefixtures("importable")
@pytest.mark.slow
def test_recorded_runs_of_the_bundled_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One detailed run a side; `test_the_bundled_pair` makes all seven recordings, with programs of their own."""
    monkeypatch.chdir(tmp_path)
    for side in LM.pair({"preset": "tiny", "device": "host", "seconds": "0.1"}, 1).programs:
        info = record(RunSpec(side.argv, tmp_path / side.label, "standard", side.label, 0.02, hooks=False, quiet=True))
        assert info.exit_code == 0, last_output_line(tmp_path / side.label)
    assert main(["compare", "as-found", "fixed", "--out", "out"]) == 0
    check_bundled_pair(tmp_path, json.loads(Path("out/compare.json").read_text()), "as-found")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_bundled_pair(tmp_path: Path) -> None:
    report, printed = compare(tmp_path, "--pairs", "1", "--seconds", "0.3", "--preset", "tiny", "--device", "host")
    check_bundled_pair(tmp_path, report, "out/01-as-found", "out/detail-as-found")
    assert values(report["floor"])["tokens_per_s"] > 0
    assert "fixed trains " in printed
    assert (tmp_path / "reports" / "runs" / "latest").resolve() == tmp_path / "out"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_pair_of_the_sweep(tmp_path: Path) -> None:
    size = ("--num-seeds", "2", "--teacher-ranks", "1", "--student-dims", "8,16")
    report, printed = compare(tmp_path, "--trainer", "ssm", "--pairs", "1", "--device", "cpu", *size)
    check_keys(report)
    assert report["comparable"] is True, report["mismatches"]
    assert report["device"] == "CPU"
    assert report["floor"] is None
    assert speed_ratio(report) > 1
    assert "the points/s of as-found" in report["verdict"]
    assert "tokens" not in printed
    found, fixed = (load(tmp_path / "out" / f"01-{label}") for label in ("as-found", "fixed"))
    assert found.steps["tokens"].sum() == fixed.steps["tokens"].sum() > 0, "they did other work"
    assert len(found.steps) == len(fixed.steps) == 4, "a combination is a step"
    for run in (found, fixed):
        assert len(np.unique(run.steps["pid"])) == 1, "only the process of the sweep steps"
        counted = {run.names[row["name"]] for row in run.values if row["step"] >= 0}
        assert {"might_sync", "readouts"} <= counted, "what workers count belongs to its steps"
    detail = load(tmp_path / "out" / "detail-as-found")
    reads = detail.calls[detail.calls["kind"] == CallKind.MIGHT_SYNC]
    files = {Path(detail.sites[site].file).name for site in reads["site"].tolist()}
    assert {"gradient_descent.py", "guess_and_check.py", "report_log.py"} <= files, files


def per_step(run: Run, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The counter `name` and the tokens of every measured step."""
    measured = run.steps[run.steps["warmup"] == 0]
    rows = run.values[run.values["name"] == run.names.index(name)]
    by_step = dict(zip(rows["step"].tolist(), rows["value"].tolist(), strict=True))
    return np.array([by_step[index] for index in measured["index"].tolist()]), measured["tokens"]


def test_two_programs_of_ones_own(tmp_path: Path) -> None:
    script(tmp_path, ROUNDS, "rounds.py")
    before, after = (f"{sys.executable} rounds.py {size} {syncs}" for size, syncs in ((500_000, 12), (20_000, 3)))
    report, printed = compare(tmp_path, "--before", before, "--after", after, "--pairs", "1")
    check_keys(report)
    before, after = map(values, report["sides"])
    assert (before["syncs_per_step"], after["syncs_per_step"]) == (12, 3)
    assert (before["steps"], after["steps"]) == (8, 8)
    assert speed_ratio(report) > 1
    assert before["device_utilization"] is None, "plain Python has no device that could be busy"
    assert report["sides"][0]["detail"]["breakdown"]["input"]["value"] > 0
    assert report["floor"] is None
    assert "syncs from 12 to 3" in report["verdict"]
    assert "after trains" in printed


ENDLESS = """
import sys
from profiler import marks

marks.open_step()
while True:
    sum(range(int(sys.argv[1])))
    marks.step(tokens=100)
"""


def test_programs_without_an_end_are_compared_by_a_part_of_each(tmp_path: Path) -> None:
    script(tmp_path, ENDLESS, "endless.py")
    before, after = (f"{sys.executable} endless.py {size}" for size in (200_000, 20_000))
    report, _ = compare(tmp_path, "--before", before, "--after", after, "--minutes", "0.05")
    assert speed_ratio(report) > 1
    runs = [load(path) for path in sorted((tmp_path / "out").glob("*-*"))]
    assert {run.path.name for run in runs} >= {"01-after", "01-before", "detail-after", "detail-before"}
    assert {run.info.state for run in runs} == {"complete"}
    assert all(len(run.steps) > 0 for run in runs)
    assert report["method"][1].startswith("Both programs were started ")


@pytest.mark.slow
def test_a_ladder_of_fixes(tmp_path: Path) -> None:
    package = tmp_path / "reference_trainer" / "lm"
    package.mkdir(parents=True)
    for name in ("../__init__.py", "__init__.py"):  # the other modules are the real ones
        (package / name).write_text("from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n")
    script(package, LADDER, "__main__.py")  # it lies before the real one in the path of `python -m`
    report, printed = compare(tmp_path, "--ladder", "--pairs", "2", "--seconds", "0.1", "--device", "cpu")
    check_keys(report)
    assert [side["label"] for side in report["sides"]] == ["as-found", "fixed"]
    assert report["comparable"] is True
    rows = {row["label"]: row for row in report["ladder"]["rows"]}
    assert list(rows) == [
        "as-found", "+ first", "+ second", "without first (and second)", "without second", "alone first",
        "alone second (with first)", "learn",
    ]  # fmt: skip
    for label in ("+ first", "+ second", "without first (and second)", "without second", "alone first"):
        gain = rows[label]["gain"]
        assert gain["value"] > 1, f"{label}: {gain}"
        assert gain["n"] == 2
    assert rows["without second"]["measures"] == rows["+ first"]["measures"], "the same runs"
    assert rows["learn"]["gain"]["value"] is None
    assert rows["learn"]["fixes"] == ["first", "second", "learn"]
    runs = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert len(runs) == 3 + 2 * 5 + 2 + 3, runs
    assert "Of the fixes" in report["verdict"]
    assert "fixed trains " in printed
    assert "## The ladder of fixes" in (tmp_path / "out" / "compare.md").read_text()


def test_ctrl_c_in_the_second_round(tmp_path: Path) -> None:
    script(tmp_path, HANGING, "hanging.py")
    command = f"{sys.executable} hanging.py"
    process = start_compare(tmp_path, "--before", command, "--after", command, "--pairs", "3", "--out", "out")
    log = tmp_path / "out" / "02-after" / "output.log"
    until(lambda: process.poll() is not None or (log.exists() and "hangs" in log.read_text()))
    process.send_signal(signal.SIGINT)
    printed, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert json.loads((tmp_path / "out" / "compare.json").read_text())["pairs"] == 1
    assert "report: out/compare.html" in printed
    torn = load(tmp_path / "out" / "02-after")
    assert (torn.info.state, len(torn.steps)) == ("interrupted", 3), "the run that was cut off loads too"


COUNTED = """
import sys
import torch

model = torch.nn.Linear(8, 2)
for _ in range(4):
    loss = model(torch.ones(4, 8)).sum()
    for _ in range(int(sys.argv[1])):
        loss.item()
    loss.backward()
"""
"""Takes how often a step reads its loss. It has no optimizer: the first one of a process imports torch's compiler."""


def test_two_commands_are_counted_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(COUNTED)
    command = f"{sys.executable} train.py"
    assert main(["compare", "--count", "--before", f"{command} 3", "--after", f"{command} 1", "--out", "both"]) == 0
    assert "3.00 times fewer" in capsys.readouterr().out
    assert waits("both") == {"before": 3, "after": 1}


@pytest.mark.slow
def test_two_commands_are_counted_on_virtual_devices_and_their_runs_are_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(COUNTED)
    command = f"{sys.executable} train.py"
    assert (
        main(["compare", "--virtual-cuda", "--before", f"{command} 2", "--after", command + " 1", "--out", "cuda"]) == 0
    )
    for out, number in (("one", "1"), ("two", "2")):
        assert main(["run", "--count", "--out", out, "--", sys.executable, "train.py", number]) == 0
    assert main(["compare", "one", "two", "--out", "again"]) == 0
    assert waits("again") == {"one": 1, "two": 2}, "both runs are labelled train"
    assert Path("reports/runs/latest").resolve() == Path("again").resolve()


def test_programs_without_virtual_devices_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "--virtual-cuda", "--before", "true", "--after", "true", "--out", "here"]) == 2
    assert "error: before saw no virtual device: " in capsys.readouterr().err


def waits(out: str) -> dict[str, float]:
    sides = json.loads(Path(out, "compare.json").read_text())["sides"]
    return {side["label"]: side["waits_per_step"] for side in sides}
