"""`why`: when it answers, and that the program goes on without hooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.commands import why
from profiler.commands.attach import AttachCommand
from tests.diagnose.test_open_question import seen
from tests.fakes.programs import ROOT

PROGRAM = """
import os, sys, time, threading
import torch
from torch import nn
model, run = nn.Linear(4, 1), os.environ["PROFILER_RUN_DIR"]
optimizer = torch.optim.SGD(model.parameters(), 0.1)
end = time.monotonic() + 100
state = sys.modules["_training_profiler.agent.patching"].STATE
for step in range(10**9):
    loss = model(torch.ones(4)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 40:
        open(os.path.join(run, "released"), "w").close()
    if state.recorder is None or time.monotonic() > end:
        break
for _ in range(10):  # steps after the recording work as before
    model(torch.ones(4)).square().sum().backward()
    optimizer.step()
left = [name for name in ("RUN_DIR", "LEVEL") if f"PROFILER_{name}" in os.environ]
print(state.recorder, threading.active_count(), left, f"{loss.item():.6f}")
sys.exit(3)
"""


def test_a_released_program_goes_on_without_being_recorded(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "profiler",
        "run",
        "--out",
        str(tmp_path / "run"),
        "--",
        sys.executable,
        str(script),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert done.stdout.strip().rpartition(" ")[0] == "None 1 []"


class _Looks:
    """Stands in for an analysis beside the program, and for its steps."""

    def __init__(self, *analyses: Any) -> None:
        self._analyses = list(analyses)

    def read(self, *_: Any) -> Any:
        return self._analyses.pop(0) if len(self._analyses) > 1 else self._analyses[0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [100.0]
    monkeypatch.setattr(why.time, "monotonic", lambda: time[0])
    return time


def window(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *analyses: Any, steps: Any = ("step", "")) -> why._Window:
    made = why._Window(tmp_path, 60.0)
    monkeypatch.setattr(made, "_analysing", _Looks(*analyses))
    monkeypatch.setattr(made, "_steps", _Looks(steps))
    return made


def test_it_answers_when_two_looks_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: list[float]) -> None:
    made = window(monkeypatch, tmp_path, seen(), seen(steps=80.0))
    assert not made.is_enough()
    clock[0] += 1.0
    assert not made.is_enough(), "stacks are too few at first"
    clock[0] += 10.0
    assert not made.is_enough()
    assert made.uncertain == "the first cause may change"
    assert made.is_enough()
    assert made.uncertain == ""


def test_it_answers_at_the_latest_after_the_given_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    made = window(monkeypatch, tmp_path, seen(None))
    for passed, is_enough in ((0.0, False), (15.0, False), (44.0, False), (2.0, True)):
        clock[0] += passed
        assert made.is_enough() is is_enough
    assert "40 steps seen in 15 s; no cause stands out" in capsys.readouterr().err


def test_before_the_first_step_no_time_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: list[float]
) -> None:
    made = window(monkeypatch, tmp_path, None, steps=(None, "no step has ended yet"))
    clock[0] += 1000.0
    assert not made.is_enough()
    assert made.uncertain == "no step has ended yet"


def test_a_number_is_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from profiler.__main__ import main

    asked: list[Any] = []
    monkeypatch.setattr(AttachCommand, "run", lambda _, args: asked.append((args.pid, args.seconds)) or 0)
    assert main(["why", "12345"]) == 0
    assert asked == [(12345, 10.0)]


@pytest.mark.slow
def test_the_answer_comes_while_the_program_runs(tmp_path: Path) -> None:
    """The program ends by itself, after the answer, with its own exit code and output."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.replace("if step == 40:", "if False:"))
    command = [sys.executable, "-m", "profiler", "why", "--seconds", "15", "--out", str(tmp_path / "run"), str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "None 1 []" in done.stdout
    assert "What now" in done.stderr
    assert "the program goes on; nothing more of it is recorded" in done.stderr
