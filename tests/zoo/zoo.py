"""The zoo: unmodified training scripts of many styles, how each is started, and what its recording must contain."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from profiler.record.launch import record
from profiler.run.load import load
from profiler.run.model import Run, RunSpec

SCRIPTS: Final = Path(__file__).parent / "scripts"
ALONE: Final = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""One thread for operators: on a busy machine, threads that wait for each other take ten times as long."""
_RUNTIME: Final = re.compile(r"'(train_runtime|train_\w+_per_second)': '?[\d.]+'?")
_PROGRESS: Final = re.compile(r"\d%\||\dit/s|s/it")
_WARNING: Final = re.compile(r"^\S+:#: (\w*Warning: .*)")
"""A warning of torch names the Python line that called it, which is ours where a hook wraps the call."""
_NUMBER: Final = re.compile(r"\b(0x[0-9a-f]+|\d+)")


@dataclass(frozen=True, slots=True)
class Animal:
    """One way of starting one script."""

    name: str
    argv: tuple[str, ...]
    """Behind the interpreter; `{steps}` stands for their number."""
    source: str
    """Part of the description of its steps."""
    few: int = 30
    """Steps of a short run."""
    many: int = 3000
    """Steps of a run of about 10 s."""
    short: int = 1
    """How many steps are not recorded: nothing marks the begin of the first."""
    exit_code: int = 0
    sources: int = 1
    """Processes that take steps."""
    quick: bool = False
    level: str = "standard"
    regions: tuple[str, ...] = ()
    """Names of regions that the run must have."""
    after: str = ""
    """The user's function that must be named for most of the time after the optimizer."""
    threads: Mapping[str, str] = field(default_factory=lambda: ALONE)

    def command(self, steps: int) -> tuple[str, ...]:
        return (sys.executable, *(word.format(steps=steps) for word in self.argv))


_TORCHRUN: Final = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_LAUNCH: Final = ("-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1")
ZOO: Final = (
    Animal("plain", ("plain.py", "{steps}"), "AdamW (plain.py:14)",
           regions=("data", "backward"), many=8000),
    Animal("accumulation", ("accumulation.py", "--steps", "{steps}"), "SGD (accumulation.py:16)", regions=("data",),
           many=3000),
    Animal("gan", ("gan.py", "{steps}"), "Adam (gan.py:12)", many=5000),
    Animal("iterable", ("iterable.py", "{steps}"), "Adam (iterable.py:30)", regions=("data", "dataset"), many=3000),
    Animal("workers", ("workers.py", "--steps", "{steps}"), "SGD (workers.py:39)", regions=("data", "dataset"),
           many=2500),
    Animal("spawned", ("workers.py", "--steps", "{steps}", "--start", "spawn"), "SGD (workers.py:39)",
           regions=("data", "dataset", "worker start"), many=2500),
    Animal("compiled", ("compiled.py", "{steps}"), "AdamW (compiled.py:24)", many=3000),
    Animal("log_after", ("log_after.py", "{steps}"), "AdamW (log_after.py:15)", after="log_metrics", many=5000),
    Animal("evaluation", ("evaluation.py", "{steps}"), "SGD (evaluation.py:18)", few=60,
           regions=("data", "checkpoint"), after="evaluate", many=12000),
    Animal("inference", ("inference.py", "{steps}"), "batches of DataLoader (inference.py:13)", short=0, many=12000),
    Animal("scaler", ("scaler.py", "{steps}"), "SGD (scaler.py:11), of which GradScaler skipped", many=15000),
    Animal("lbfgs", ("lbfgs.py", "{steps}"), "LBFGS (lbfgs.py:11)", many=25000),
    Animal("ranks", (*_TORCHRUN, "ranks.py", "{steps}"), "AdamW (ranks.py:16)", sources=2, many=2500),
    Animal("forking", ("forking.py", "{steps}"), "SGD (forking.py:16)", sources=2, many=20000),
    Animal("lightning", ("lightning_fit.py", "{steps}"), "AdamW (lightning_fit.py:29)", regions=("data",), many=6000),
    Animal("hf_trainer", ("hf_trainer.py", "{steps}"), "AdamW (hf_trainer.py:37)",
           regions=("data", "backward"), many=1600),
    Animal("accelerate", ("accelerate_loop.py", "{steps}"), "AdamW (accelerate_loop.py:15)", regions=("data",),
           many=6000),
    Animal("launched", (*_LAUNCH, "accelerate_loop.py", "{steps}"), "AdamW (accelerate_loop.py:15)", many=6000),
    Animal("tokenizing", ("tokenizing.py", "{steps}"), "SGD (tokenizing.py:16)", regions=("tokenize",), many=4500),
    Animal("interrupted", ("interrupted.py", "{steps}"), "AdamW (interrupted.py:14)", many=14000),
    Animal("package", ("-m", "package", "{steps}"), "SGD (__main__.py:16)", exit_code=7, many=60000),
)  # fmt: skip
_EXACT: Final = ("exact.py", "--steps", "{steps}", "--seed-file", "seed.txt")
EXACT: Final = (
    Animal("exact", _EXACT, "AdamW (exact.py:18)", exit_code=3, quick=True,
           regions=("data", "backward", "optimizer")),
    Animal("exact at level light", _EXACT, "AdamW (exact.py:18)", exit_code=3, level="light"),
)  # fmt: skip
"""They print every digit of their losses."""


@dataclass(frozen=True, slots=True)
class RecordedAnimal:
    """A recorded run and the output of a run of the same script without the profiler."""

    steps: int
    run: Run
    output: tuple[str, ...]
    bare: tuple[str, ...]
    bare_errors: tuple[str, ...]
    bare_exit: int


def record_beside_bare_run(animal: Animal, steps: int, folder: Path) -> RecordedAnimal:
    """Record the script while a second process runs it without the profiler."""
    argv = animal.command(steps)
    with pytest.MonkeyPatch.context() as patch, chdir(SCRIPTS):
        for name, value in animal.threads.items():
            patch.setenv(name, value)
        with open(folder / "bare.log", "wb") as output, open(folder / "bare.err", "wb") as errors:
            bare = subprocess.Popen(argv, stdout=output, stderr=errors)
        info = record(RunSpec(argv=argv, out=folder / "run", level=animal.level, quiet=True))
        bare_exit = bare.wait(timeout=250)
    output_text = (folder / "run" / "output.log").read_text()
    assert info.exit_code == animal.exit_code, output_text
    bare_lines, bare_errors = (_lines((folder / f"bare.{end}").read_text()) for end in ("log", "err"))
    return RecordedAnimal(steps, load(folder / "run"), _lines(output_text), bare_lines, bare_errors, bare_exit)


def shapes(lines: Iterable[str]) -> set[str]:
    """The lines with every number as #, without progress bars; warnings without their location."""
    result, in_warning = set(), False
    for line in lines:
        text = _NUMBER.sub("#", line)
        warning = _WARNING.match(text)
        if not (in_warning and text.startswith("  ")) and not _PROGRESS.search(line):
            result.add(warning[1] if warning else text)
        in_warning = warning is not None or (
            in_warning and not text.startswith("  ")
        )  # a message may have several lines
    return result


def _lines(text: str) -> tuple[str, ...]:
    return tuple(_RUNTIME.sub(r"'\1': ...", line) for line in text.splitlines() if line.strip())
