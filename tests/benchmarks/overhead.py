"""Run a script bare, under our levels and under other tools, in rounds of shuffled order; for bench_overhead."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).parent / "overhead_scripts"
PEERS = os.environ.get("PEERS", "")
"""The Python of an environment that has the other tools: `pip install torch==... scalene traceml-ai`."""
PATIENCE_S = 60
"""Limit of one run; a run that has not ended by then has failed."""
BARE = "bare"

Command = Callable[[str, Path], Sequence[str]]
"""(script, a folder that does not exist yet) -> the command line"""


class FailedError(Exception):
    """A run did not end, or not well."""


@dataclass(frozen=True)
class Configuration:
    """One way of running a script."""

    name: str
    command: Command
    every: int = 1
    """It takes part in every n-th round."""
    module: str = ""
    """A module that PEERS must have."""
    environment: Mapping[str, str] = field(default_factory=dict)


def _ours(level: str) -> Command:
    return lambda script, out: (
        *(sys.executable, "-m", "profiler", "run", "--level", level, "--out", str(out), "--"),
        *(sys.executable, script),
    )


def _py_spy(script: str, out: Path) -> Sequence[str]:
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    options = ("--idle", "--rate", "100", "--format", "raw", "--output", f"{out}.txt")
    return (program or "py-spy", "record", *options, "--", sys.executable, script)


def _traceml(script: str, out: Path) -> Sequence[str]:
    program = str(Path(PEERS).parent / "traceml")
    return (program, "run", "--logs-dir", str(out.parent), "--run-name", out.name, script)


CONFIGURATIONS = (
    Configuration(BARE, lambda script, _: (sys.executable, script)),
    Configuration("ours, light", _ours("light")),
    Configuration("ours, standard", _ours("standard")),
    Configuration("ours, full", _ours("full"), every=2),
    Configuration(
        "torch.profiler",
        lambda script, out: (sys.executable, str(SCRIPTS / "under_torch_profiler.py"), script, f"{out}.json"),
        every=2,
    ),
    Configuration("py-spy", _py_spy, every=2),
    Configuration(
        "Scalene",
        lambda script, out: (PEERS, "-m", "scalene", "run", "--cpu-only", "--outfile", f"{out}.json", script),
        every=2,
        module="scalene",
    ),
    Configuration("TraceML", _traceml, every=2, module="traceml_ai", environment={"OVERHEAD_TRACEML": "1"}),
)


def usable() -> tuple[list[Configuration], list[str]]:
    """The configurations that can run here, and why the others cannot."""
    there, missing = [], []
    for one in CONFIGURATIONS:
        reason = _missing(one.module) if one.module else ""
        if reason:
            missing.append(f"{one.name}: skipped: {reason}")
        else:
            there.append(one)
    return there, missing


def _missing(module: str) -> str:
    if not PEERS:
        return "PEERS names no Python that has it"
    asked = subprocess.run(
        [PEERS, "-c", f"import importlib.metadata as m; import {module}; print(m.version('torch'))"],
        check=False,
        capture_output=True,
        text=True,
    )
    if asked.returncode:
        return f"{PEERS}: {(asked.stderr.strip() or 'failed').splitlines()[-1]}"
    import torch

    theirs = asked.stdout.split()[-1]
    return "" if theirs == torch.__version__ else f"its torch is {theirs}, ours is {torch.__version__}"


def run_once(one: Configuration, script: str, folder: Path, steps: int = 0) -> dict[str, float]:
    """Run it once; returns what the script measured by itself, and begun_at and ended_at of the command."""
    folder.mkdir()
    result = folder / "result.json"
    asked = {"OVERHEAD_RESULT": str(result), "OVERHEAD_STEPS": str(steps)}
    begun = time.perf_counter()
    with subprocess.Popen(
        one.command(str(SCRIPTS / script), folder / "out"),
        env={**os.environ, **one.environment, **asked},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said = process.communicate(timeout=PATIENCE_S)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said = f"still there after {PATIENCE_S} s"
    ended = time.perf_counter()
    if process.returncode or not result.exists():
        raise FailedError(f"{one.name}, {script}: exit code {process.returncode}: {said[-1500:].strip()}")
    measured: dict[str, float] = json.loads(result.read_text())
    shutil.rmtree(folder)
    return {**measured, "begun_at": begun, "ended_at": ended}


def _of_steps(one: Configuration, script: str, folder: Path, steps: int) -> dict[str, float]:
    """Run it once; start_s is the time from the command to the first step, end_s from the last step to the end."""
    seen = run_once(one, script, folder, steps)
    return {
        **seen,
        "start_s": seen["first_step_at"] - seen["begun_at"],
        "end_s": seen["ended_at"] - seen["last_step_at"],
    }


def interleaved(
    script: str, configurations: Iterable[Configuration], folder: Path, *, rounds: int, steps: int
) -> list[dict[str, dict[str, float]]]:
    """The measurements of every configuration, by round. A first run fills the caches and does not count."""
    chosen = list(configurations)
    order = random.Random(script)
    _of_steps(chosen[0], script, folder / f"{script}-warm", steps // 10)
    seen: list[dict[str, dict[str, float]]] = []
    for number in range(rounds):
        turn = [one for one in chosen if number % one.every == 0]
        order.shuffle(turn)
        seen.append({})
        for one in turn:
            try:
                seen[-1][one.name] = _of_steps(one, script, folder / f"{script}-{number}-{one.name}", steps)
            except FailedError as error:
                if one.name == BARE or one.name.startswith("ours"):
                    raise
                print(f"\n{error}")
                chosen.remove(one)  # once is enough
    return seen
