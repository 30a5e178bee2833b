"""The ledger of every program of the kind `style` against stack samples that another sampler took at the same time.

Nothing of `profiler.analyse` makes these samples: a second py-spy of its own samples the program, and stacks are read
here by the names of their frames alone.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

import psutil
import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.window import measured_window
from profiler.run.load import load
from tests.clinic.case import Case, read_case
from tests.clinic.program import arguments, environment, placed
from tests.fakes.sentences import verdict

PY_SPY: Final = Path(sys.executable).with_name("py-spy")
RATE: Final = 97
PARTS: Final = ("input", "checkpoint", "backward", "optimizer", "rest")
_FRAME: Final = re.compile(r"(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$")
_CALLED: Final = (  # the innermost of these counts
    ("input", re.compile(r"torch/utils/data/dataloader\.py"), re.compile(r"(^|\.)(__next__|__iter__)$")),
    ("input", re.compile(r"agent/hooks/(tokenizers|loader)\.py"), re.compile(r"")),
    ("input", re.compile(r"agent/hooks/regions\.py"), re.compile(r"^dataset")),
    ("rest", re.compile(r"agent/hooks/optimizers\.py"), re.compile(r"(^|\.)(end|closed)$")),
    ("backward", re.compile(r"agent/hooks/regions\.py"), re.compile(r"^backward$")),
    ("checkpoint", re.compile(r"agent/hooks/regions\.py"), re.compile(r"^checkpoint$")),
    ("checkpoint", re.compile(r"torch/serialization\.py"), re.compile(r"(^|\.)save$")),
    ("backward", re.compile(r"torch/autograd/__init__\.py"), re.compile(r"(^|\.)(backward|grad)$")),
    ("optimizer", re.compile(r"torch/optim/optimizer\.py"), re.compile(r"(^|\.)wrapper$")),
)
_LOOP: Final = re.compile(r"/styles/")
_LAUNCHERS: Final = {"torch.distributed.run", "accelerate.commands.launch"}
_IMPORTS: Final = re.compile(r"_load_unlocked \(<frozen importlib")
"""This frame is there while a module is loaded; an import within a function looks names up at every call."""
Z: Final = 1.96


@dataclass(frozen=True, slots=True)
class Seen:
    """Samples of the main thread of one process."""

    parts: Counter[str]
    """Samples in the loop, by PARTS."""

    @property
    def n(self) -> int:
        return sum(self.parts.values())

    def share(self, part: str) -> float:
        return self.parts[part] / self.n

    def error(self, part: str) -> float:
        """Half the width of the 95% interval of `share`; of a share that is 0 or 1 that of one sample more."""
        share = min(max(self.share(part), 1 / self.n), 1 - 1 / self.n)
        return Z * math.sqrt(share * (1 - share) / self.n)


class Sampler(threading.Thread):
    """py-spy on process `pid` until that ends: windows of all threads, and between them windows of the GIL's holder.

    It stops the program for each sample (some 0.3 ms): of threads that it does not stop it loses the samples in which
    frames come and go, which are those of Python. And it goes before other programs: on busy cores it would have its
    turn when the program makes a system call, and of a loop of 2 ms saw the reading of two clocks in 8% of samples.
    """

    def __init__(self, pid: int, output: Path) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._output = output
        self._windows: list[tuple[int, int, bool, Seen]] = []
        self.start()

    def run(self) -> None:
        for gil in cycle((False, False, True)):
            if not psutil.pid_exists(self._pid):
                return
            begin = time.monotonic_ns()
            whole, found = self._window(1, gil=gil)
            if whole:
                self._windows.append((begin, time.monotonic_ns(), gil, found))

    def within(self, begin: int, end: int) -> tuple[Seen, Seen, int]:
        """Of the windows between two moments: all samples, those of a holder, and how often was looked for one."""
        inside = [(gil, seen) for first, last, gil, seen in self._windows if begin <= first and last <= end]
        parts, held = (
            sum((seen.parts for gil, seen in inside if gil == kind), Counter[str]()) for kind in (False, True)
        )
        return Seen(parts), Seen(held), RATE * sum(gil for gil, _ in inside)

    def _window(self, seconds: int, *, gil: bool) -> tuple[bool, Seen]:
        """Whether it lasted as long as it was to."""
        command = [PY_SPY, "record", "--pid", str(self._pid), "--output", self._output, "--format", "raw"]
        command += ["--full-filenames", "--rate", str(RATE), "--duration", str(seconds), "--threads"]
        self._output.unlink(missing_ok=True)
        command.append("--gil" if gil else "--idle")
        done = subprocess.run(command, capture_output=True, check=False, timeout=60, preexec_fn=_first)
        whole = b"Stopped sampling" not in done.stdout + done.stderr and psutil.pid_exists(self._pid)
        return whole, read(self._output.read_text() if self._output.exists() else "", self._pid)


def _first() -> None:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def read(raw: str, pid: int) -> Seen:
    """Of lines `frame;frame;frame count` those of the main thread that are in the script's loop."""
    parts: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if re.match(rf"thread \({pid}\)", thread) and (part := part_of(frames)):
            parts[part] += int(count)
    return Seen(parts)


def part_of(frames: list[str]) -> str:
    """One of PARTS; empty: the program was importing or had not begun."""
    if any(map(_IMPORTS.search, frames)) or not any(map(_LOOP.search, frames)):
        return ""
    for frame in reversed(frames):
        found = _FRAME.match(frame)
        for part, file, function in _CALLED:
            if found and file.search(found["file"]) and function.search(found["function"]):
                return part
    return "rest"


def training(recorder: int, script: str, count: int) -> list[int]:
    """The processes below `recorder` that train with the script; fewer than `count`: they are not there yet."""
    found = {}
    for child in psutil.Process(recorder).children(recursive=True):
        try:
            words, parent = child.cmdline(), child.ppid()
        except psutil.Error:
            continue
        # a process that receives signals for the program has its command too, behind its own code
        if any(word.endswith(script) for word in words) and "-c" not in words and not _LAUNCHERS.intersection(words):
            found[child.pid] = parent
    if count == 1:
        return [pid for pid, parent in found.items() if parent not in found][:1]
    below = [pid for pid, parent in found.items() if parent in found]  # a program that forks them itself
    return below or [pid for pid in found if found[pid] != recorder]


POINTS = 0.03
"""Of wall time: what a share may be off beside the samples' own error."""
UNEXPLAINED = 0.02
STEPS = {
    "plain": 8000, "accumulation": 3000, "gan": 5000, "iterable": 3000, "workers": 2500, "spawned": 2500,
    "compiled": 3000, "log_after": 5000, "evaluation": 12000, "inference": 12000, "scaler": 15000, "lbfgs": 25000,
    "ranks": 2500, "forking": 20000, "lightning": 6000, "hf_trainer": 1600, "accelerate": 6000, "launched": 6000,
    "tokenizing": 4500, "interrupted": 14000, "package": 60000,
}  # fmt: skip
"""Steps of some 10 s, instead of the few of the case."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not PY_SPY.exists() or not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs py-spy, root")
@pytest.mark.parametrize("name", STEPS)
def test_shares_are_those_of_independent_samples(name: str, tmp_path: Path) -> None:
    case, steps = read_case(f"styles/{name}"), STEPS[name]
    style = case.truth.style
    assert style is not None
    few = str(case.truth.steps)
    command = tuple(str(steps) if word == few else word for word in case.command)
    beside = _both(case.model_copy(update={"command": command}), tmp_path)
    run = load(tmp_path / "run")
    analysis = analyse(run)
    window = measured_window(run)
    own, holding, looks = beside[window.pid].within(int(window.begin[0]), int(window.end[-1]))
    assert own.n
    total = sum(measure.value or 0.0 for measure in analysis.breakdown.values())
    unexplained = (analysis.breakdown["unattributed"].value or 0.0) / total
    ours = _parts(analysis)
    expected = (steps - int(few) + style.recorded) * (case.processes or case.ranks)
    rows = [(part, ours[part], own.share(part), own.error(part)) for part in PARTS]
    under = sum(analysis.breakdown[name].value or 0.0 for name in ("python", "framework", "log")) / total
    held = (holding.n - holding.parts["input"] - holding.parts["checkpoint"]) / max(1, looks)
    text = "  ".join(f"{name} {100 * a:.1f}/{100 * b:.1f}±{100 * e:.1f}" for name, a, b, e in rows)
    print(
        f"\nSTYLE {name} | {run.info.state} | steps {len(run.steps)} of {expected} "
        f"| unattributed {100 * unexplained:.2f}% | n {own.n} | {text} "
        f"| Python, log, framework {100 * under:.1f}, GIL held there {100 * held:.1f} in {looks} looks"
    )
    print("VERDICT", verdict(analysis))
    assert run.problems == ()
    assert len(run.steps) == expected
    assert unexplained <= UNEXPLAINED
    for part, share, theirs, error in rows:
        assert abs(share - theirs) <= POINTS + error, (part, share, theirs, error, own)


def _parts(analysis: Analysis) -> dict[str, float]:
    """Our shares by the same names."""
    phase = {phase.name: phase.share for phase in analysis.phases}
    total = sum(measure.value or 0.0 for measure in analysis.breakdown.values())
    told = {name: (analysis.breakdown[name].value or 0.0) / total for name in ("input", "checkpoint")}
    told |= {name: phase.get(name, 0.0) for name in ("backward", "optimizer")}
    # the other sampler cannot tell that a thread in the loader waits for a core
    told["input"] = max(told["input"], phase.get("data", 0.0))
    return told | {"rest": 1.0 - sum(told.values())}


def _both(case: Case, folder: Path) -> dict[int, Sampler]:
    """Record the program, and sample its processes that train beside it."""
    recorder_words = (sys.executable, "-P", "-m", "profiler", "run", "--out", str(folder / "run"), "--")
    script = next((word for word in case.command if word.endswith(".py")), case.command[1])
    processes = case.processes or case.ranks
    with placed(case) as place, open(folder / "said.log", "w", encoding="utf-8") as output:
        recorder = subprocess.Popen(
            [*recorder_words, sys.executable, *arguments(case)], cwd=place, env=environment(case, place),
            stdout=output, stderr=output,
        )  # fmt: skip
        found: list[int] = []
        while len(found) < processes and recorder.poll() is None:
            found = training(recorder.pid, script, processes)
            time.sleep(0.02)
        samplers = {pid: Sampler(pid, folder / f"{pid}.raw") for pid in found}
        assert recorder.wait(400) == case.exit_code, (folder / "said.log").read_text()
        for sampler in samplers.values():
            sampler.join(60)
    return samplers


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        (["<module> (/a/styles/plain.py:3)", "_find_and_load_unlocked (<frozen importlib._bootstrap>:1)"],
         ""),
        (["<module> (/a/styles/plain.py:3)", "_handle_fromlist (<frozen importlib._bootstrap>:1)"], "rest"),
        (["<module> (/a/styles/plain.py:3)"], "rest"),
        (["<module> (/a/styles/plain.py:3)", "X.__next__ (/v/torch/utils/data/dataloader.py:7)", "f (x.py:1)"],
         "input"),
        (["<module> (/a/styles/lbfgs.py:3)", "f.<locals>.wrapper (/v/torch/optim/optimizer.py:5)",
          "backward (/v/torch/autograd/__init__.py:9)"], "backward"),
    ],
)  # fmt: skip
def test_a_stack_is_read_by_its_innermost_stretch(frames: list[str], part: str) -> None:
    assert part_of(frames) == part
