"""The ledger of every program of the kind `style` against stack samples of another sampler at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model import Analysis
from profiler.analyse.window import measured_window
from profiler.run.load import load
from tests.clinic.case import Case, read_case
from tests.clinic.program import arguments, environment, placed
from tests.clinic.shares import PARTS, PY_SPY, Sampler, part_of, training
from tests.fakes.sentences import verdict

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
