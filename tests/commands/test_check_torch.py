"""`check` on scripts of torch: a wait that was added is named with its line, loader workers stand still too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.check.speed.controlled_process import ControlledProcess, Program
from profiler.core.procfs import process_tree
from tests.check.speed.programs import ROOT, state, until
from tests.commands.check_programs import check_report, make_repository

TRAIN = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1))
loader = DataLoader(data, batch_size=4, num_workers=int(sys.argv[1]))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total = 0.0
while True:
    for features, target in loader:
        loss = (model(features) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pass
"""
LINE = TRAIN[: TRAIN.index("        pass")].count("\n") + 1


@pytest.fixture
def here(here: Path) -> Path:
    (here / "train.py").write_text(TRAIN)
    return here


@pytest.mark.slow
def test_an_added_item_is_named_with_its_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "--baseline", "b.json", "--count", "--set", "steps=5", "--set", "warmup=2"]
    command = ["--", sys.executable, "train.py", "0"]
    assert main([*words, "--update", *command]) == 0
    (here / "train.py").write_text(TRAIN.replace("        pass", "        total += loss.item()"))
    capsys.readouterr()
    assert main([*words, "--out", "out", *command]) == 1
    [cause] = check_report()["causes"]
    assert (cause["rule"], cause["line"], cause["counter"]) == ("hidden-sync", LINE, "syncs")
    output = " ".join(capsys.readouterr().out.split())
    assert f"0 → 1 sync, 0 → 1 operator train.py:{LINE}" in output, output
    assert f"at train.py:{LINE} (hidden-sync)" in output, output


COUNTED = """
import sys
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, int(sys.argv[1]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(64, 8)
while True:
    loss = model(data).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if len(sys.argv) > 2:
        loss.item()
"""


@pytest.mark.slow
def test_exact_counts_against_a_revision_and_in_a_file_of_two_configurations(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "train.py").write_text(COUNTED)
    make_repository("train.py")
    count = ["check", "--count", "--set", "warmup=1"]

    def check(*options: str, width: str = "2") -> int:
        return main([*count, *options, "--", sys.executable, "train.py", width])

    for width, steps in (("2", "5"), ("4", "7")):
        assert check("--baseline", "b.json", "--update", "--set", f"steps={steps}", width=width) == 0
    for width in ("2", "4"):
        words = ["check", "--set", "warmup=1", "--baseline", "b.json", "--out", f"same-{width}"]
        assert main([*words, "--", sys.executable, "train.py", width]) == 0, "each with its own steps and way"
        assert check_report(f"same-{width}")["doubts"] == []
    assert check("--baseline", "b.json", width="8") == 3, "no section is for this"
    budget = ("--baseline", "b.json", "--set", "inconclusive=pass", "--set", "budgets.peak_bytes=1kB", "--out", "other")
    assert check(*budget, width="8") == 1, "a budget needs no section"
    other = check_report("other")
    assert "above its budget of 1.00 kB, most at train.py:10" in other["sentence"]
    assert [line["counter"] for line in other["counters"]["lines"]] == ["peak_bytes"]
    assert other["state"] == "FAIL"
    assert "arguments: 2 in the baseline against 8" in other["counters"]["reason"]
    assert check("--against", "HEAD", "--set", "steps=4", "--out", "unchanged") == 0
    assert check("--against", "HEAD", "--set", "steps=4", "--set", "budgets.peak_bytes=1kB", "--out", "peak") == 1
    assert "above its budget of 1.00 kB" in check_report("peak")["sentence"]
    text = COUNTED.replace("    loss.backward()", "    loss.backward(\n    )")
    (here / "train.py").write_text(f"'''A text.'''\ndef never(x):\n    return x * 2\n{text}")
    assert check("--against", "HEAD", "--set", "steps=4", "--out", "split") == 0
    assert "1 changed statement that did not run, or only calls others (train.py:3)" in " ".join(
        check_report("split")["notes"]
    )
    text = COUNTED.replace("    loss.backward()", "    again = model(data)\n    loss.backward()")
    (here / "train.py").write_text(f"# moved\n{text}")
    capsys.readouterr()
    assert check("--against", "HEAD", "--set", "steps=4", "--out", "changed") == 1
    line = text.splitlines().index("    again = model(data)") + 2
    lines = {each["counter"]: each for each in check_report("changed")["counters"]["lines"]}
    assert [(change["kind"], change["line"]) for change in lines["operators"]["changes"]] == [("appeared", line)]
    assert any("+    again = model(data)" in hunk["lines"] for hunk in check_report("changed")["hunks"])


MODEL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.last = torch.nn.Linear(8, 2)

    def forward(self, x):
        x = self.first(x)
        x = torch.relu(x)
        x = self.last(x)
        return x.square().mean()
"""
TWO_FILES = """
import torch
from model import Net

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = torch.randn(64, 8)
while True:
    loss = net(data)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", [("--against", "HEAD"), ("--baseline", "b.json")])
def test_a_call_in_a_loop_is_named_and_the_lines_that_it_runs_are_one(
    here: Path, capsys: pytest.CaptureFixture[str], way: tuple[str, str]
) -> None:
    (here / "model.py").write_text(MODEL)
    (here / "train.py").write_text(TWO_FILES)
    (here / "test_model.py").write_text("x = 1\n")
    make_repository("train.py", "model.py", "test_model.py")
    command = ["check", "--count", "--set", "warmup=1", "--set", "steps=4", *way]
    if way[0] == "--baseline":
        assert main([*command, "--update", "--out", "made", "--", sys.executable, "train.py"]) == 0
    (here / "test_model.py").write_text("x = f(1)\n")
    twice = "    net(data).backward()\n    loss = net(data)\n"
    (here / "train.py").write_text(TWO_FILES.replace("    loss = net(data)\n", twice))
    capsys.readouterr()
    assert main([*command, "--out", "out", "--", sys.executable, "train.py"]) == 1
    shown = capsys.readouterr().out
    assert "net(data).backward()" in shown
    assert "changed in this diff" in shown
    assert re.search(
        r"^2 times as many operators  model.py:\d+ \(Net.forward\) and 3 more lines ", shown, re.MULTILINE
    ), shown
    assert shown.count("model.py:") <= 2, "four lines are one; the verdict names the first line of another counter"
    files = [hunk["file"] for hunk in check_report()["hunks"]]
    assert files[0] == "train.py", "the program does not run its tests"


@pytest.mark.slow
def test_a_batch_of_another_size_is_not_comparable_to_a_file_or_to_a_revision(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_repository("train.py")
    command = ["--", sys.executable, "train.py", "0"]
    assert main(["check", "--count", "--baseline", "b.json", "--update", "--out", "made", *command]) == 0
    (here / "train.py").write_text(TRAIN.replace("batch_size=4", "batch_size=8"))
    against = ("--against", "HEAD")
    for out, options in {
        "file": ("--count", "--baseline", "b.json"),
        "counts": ("--count", *against),
        "speed": against,
    }.items():
        assert main(["check", *options, "--out", out, *command]) == 3
        report = check_report(out)
        assert (report["state"], report["sentence"]) == ("NOT COMPARABLE", "The batch has 8 samples instead of 4")
        assert report["throughput"] is None
        assert any(note.startswith("Per sample, before and now: ") for note in report["notes"]) == (out != "speed")
        assert "NOT COMPARABLE: the batch has 8 samples instead of 4" in capsys.readouterr().out
    assert [path.name for path in sorted(Path("speed").glob("0*"))] == ["01-base", "01-candidate"], "one round"


@pytest.mark.slow
def test_a_revision_that_ends_early_raises_a_warning(here: Path) -> None:
    (here / "train.py").write_text(COUNTED.replace("while True:", "for _ in range(8):"))
    make_repository("train.py")
    (here / "train.py").write_text(COUNTED)
    command = ["check", "--count", "--set", "warmup=1", "--against", "HEAD", "--set", "steps=20", "--out", "short"]
    main([*command, "--", sys.executable, "train.py", "2"])
    (doubt,) = check_report("short")["doubts"]
    assert doubt.startswith("The program ended after ")
    assert "of 20 steps" in doubt


@pytest.mark.slow
def test_recorded_runs_name_files_as_the_project_does(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = TRAIN.replace("while True:", "for _ in range(1):").replace("randn(4000", "randn(400")
    for out, last in (("a", "pass"), ("b", "total += loss.item()")):
        (here / "train.py").write_text(ends.replace("        pass", f"        {last}"))
        assert main(["run", "--count", "--out", out, "--", sys.executable, "train.py", "0"]) == 0
    capsys.readouterr()
    assert main(["check", "a", "b"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert f"0 → 1 sync, 0 → 1 operator train.py:{LINE}" in output, output


@pytest.mark.slow
def test_loader_workers_stand_still_and_make_turns_long(here: Path) -> None:
    (here / "sockets").mkdir()
    program = Program("base", (sys.executable, "train.py", "2"), here, {"PYTHONPATH": str(ROOT)})
    resident = ControlledProcess(program, here / "run", here / "sockets")
    try:
        until(resident.align)
        resident.freeze()
        resident.run_steps(5)
        pids = process_tree(resident.tree.root)
        assert (len(pids), resident.controller.prefetch) == (3, 4), "two workers, two batches each"
        assert {state(pid) for pid in pids} == {"T"}
    finally:
        resident.end()


@pytest.mark.slow
def test_a_revision_that_imports_the_working_tree_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that points into the checkout does so: both sides would run the same code."""
    (here / "package").mkdir()
    (here / "package" / "shared.py").write_text("")
    (here / "train.py").write_text(f"import sys\nsys.path.insert(0, {str(here / 'package')!r})\nimport shared\n{TRAIN}")
    make_repository("train.py", "package")
    words = [sys.executable, "-m", "profiler", "check", "--against", "HEAD", "--", sys.executable, "train.py", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: the base runs code of the working tree")
    assert "shared.py" in last
