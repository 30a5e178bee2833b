"""`run --virtual-cuda`: what is recorded of a program, and what is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import profiler
from profiler.analyse.site_counts import site_counts
from profiler.core.errors import ProfilerError
from profiler.run.tables import CountKind

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="virtual devices need a machine without a GPU")

ROOT = Path(__file__).parents[2]
PROGRAM = """
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x = torch.randn(8, 4).to(device)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(device, loss.item())
"""
COPY, READ = PROGRAM.splitlines().index("    x = torch.randn(8, 4).to(device)") + 1, len(PROGRAM.splitlines())


def start(folder: Path, *options: str, text: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(text, encoding="utf-8")
    record = [sys.executable, "-m", "profiler", "run", "--out", str(folder / "run"), *options]
    command = [*record, "--", sys.executable, str(folder / "train.py")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("virtual")
    return folder / "run", start(folder, "--virtual-cuda")


def test_the_program_runs_as_on_a_gpu(recorded: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    path, done = recorded
    assert done.returncode == 0, done.stderr
    on_cpu = subprocess.run([sys.executable, path.parent / "train.py"], capture_output=True, text=True, check=True)
    losses = [line.removeprefix("cuda ") for line in done.stdout.splitlines() if line.startswith("cuda ")]
    assert losses == [line.removeprefix("cpu ") for line in on_cpu.stdout.splitlines()]


def test_waits_and_copies_are_counted_by_line(recorded: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    run = profiler.load(recorded[0])
    counts = [(count.kind, count.site and count.site.line, count.mean, count.waits) for count in site_counts(run)]
    assert counts[:2] == [(CountKind.SYNC, READ, 1.0, True), (CountKind.H2D, COPY, 1.0, True)]
    (_, copy, *_) = site_counts(run)
    assert (copy.bytes_per_step, copy.usual) == (8 * 4 * 4, (1, 8 * 4 * 4))
    assert copy.site is not None
    assert copy.site.source == "x = torch.randn(8, 4).to(device)"


def test_counts_are_printed_without_times(recorded: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    path, done = recorded
    assert "exact counts, no times" in done.stdout
    assert "the host waits for the device 2 times in a step" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    diagnosed = subprocess.run(
        [sys.executable, "-m", "profiler", "diagnose", path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert diagnosed.stdout in done.stdout


def test_such_a_run_has_no_report_of_times(recorded: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    with pytest.raises(ProfilerError, match="a run that counts has no times"):
        profiler.read(recorded[0])


def test_two_runs_have_equal_counts(recorded: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    start(tmp_path, "--virtual-cuda")
    first, second = (
        [(count.kind, count.name, count.site and count.site.line, count.per_step, count.before) for count in counts]
        for counts in (site_counts(profiler.load(recorded[0])), site_counts(profiler.load(tmp_path / "run")))
    )
    assert first == second


def test_a_number_of_devices_below_one_is_refused(tmp_path: Path) -> None:
    done = start(tmp_path, "--virtual-cuda", "0")
    assert done.returncode == 2
    assert "--virtual-cuda" in done.stderr
