"""Records the variant fixed and, one after another, the same without each fix whose lack has a finding.

    python -m tests.reference_trainer.closure.record [NAME ...]

The recordings are cut to their last measured steps and stored in runs/, for test_closure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Final

import numpy as np

from profiler.run import tables
from reference_trainer.fixes import Fix
from reference_trainer.lm import plan as lm
from reference_trainer.ssm import plan as ssm

ROOT: Final = Path(__file__).parents[3]
RUNS: Final = Path(__file__).parent / "runs"
BASE: Final = "fixed"
_TIMES: Final = ("begin", "time")
"""Columns that tell when a record was made: the first of these that a table has."""
_LEFT_OUT: Final = (tables.RESULTS,)
"""Files of a source that findings do not depend on."""
_LEAST_STEPS: Final = 2
_CODES: Final = {"q": "<i8", "i": "<i4", "d": "<f8"}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What it costs on the host to leave a fix, with those that require it, out of the variant fixed."""

    gain: tuple[float, float, float] | None = None
    """How many times as fast the variant fixed is, with the ends of the 95% interval; None: not measured."""
    silent: str = ""
    """Why the rule may be silent; empty: it names the cost."""
    remains: str = ""
    """What the fix leaves of the cost, so that the rule names a part of it in the variant fixed too; empty: nothing."""


_NO_TOKENIZING: Final = "tokenization takes less than 5% of a step at preset tiny"
_NOT_IN_FIXED: Final = LeftOut(silent="it is no part of the variant fixed")
LEFT_OUT: Final = {
    "lm": {  # the gains were measured on 2026-11-23
        "batch-tokenize": LeftOut((0.993, 0.947, 1.04), _NO_TOKENIZING),
        "async": LeftOut((1.30, 1.22, 1.40)),
        "batch-embed": LeftOut((3.51, 3.23, 3.81)),
        "batch-recurrence": LeftOut((5.59, 5.42, 5.77)),
        "batch-decode": LeftOut((9.36, 9.03, 9.70)),
        "device-loss": LeftOut(
            (1.28, 1.02, 1.61),
            "1.16 of it is prefetch, which is left out too; reading the predictions takes 3% to 6% of a step",
        ),
        "pooled": LeftOut((1.03, 0.990, 1.07), "allocations of the host device come from a pool as well"),
        "zero-copy": LeftOut(
            (1.18, 1.09, 1.28),
            "1.16 of it is prefetch, which is left out too; a copy within the host's memory takes 1% of a step",
        ),
        "prefetch": LeftOut((1.16, 1.06, 1.27)),
        "quiet-logging": LeftOut(
            (0.989, 0.951, 1.03), "one read per chunk beside that of the loss costs nothing there"
        ),
        "parallel-tokenize": LeftOut((0.983, 0.948, 1.02), _NO_TOKENIZING),
        "blocking-wait": LeftOut((0.958, 0.914, 1.00), "it frees a core, and a step does not need another one"),
        "cuda-graph": LeftOut(silent="it is for CUDA only"),
        "pretokenize": _NOT_IN_FIXED,
        "learn": _NOT_IN_FIXED,
    },
    "ssm": {
        "device-data": LeftOut(remains="the numbers still have to be drawn"),
        "fused-recurrence": LeftOut(),
        "batched-draws": LeftOut(remains="the Python that starts a batch of guesses"),
        "quiet-logging": LeftOut(remains="six reports per job"),
        "batched-seeds": LeftOut(
            silent="one fit has few and larger operators: no rule judges batches that are too small"
        ),
        "flat-sweep": LeftOut(silent="one process works while others are idle: no rule judges cores that nothing uses"),
    },
}
"""By trainer and fix."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """One of the bundled trainers, and how it is recorded."""

    name: str
    plan: ModuleType
    arguments: tuple[str, ...]
    within: tuple[str, ...] = ()
    """Fixes that are left out of every recording: no rule judges what worker processes do."""
    steps: int = 1_000_000
    """Measured steps that are kept, at most."""
    size: int = 1_000_000_000
    """Bytes of tables that are kept of a process, but two steps at least: token by token, one step takes 0.7 MB."""

    def fixes(self) -> dict[str, Fix]:
        """The fixes of the variant fixed on the host, by name."""
        chosen = self.plan.variant_fixes("fixed", "host")
        return {name: self.plan.fixes()[name] for name in chosen if name not in self.within}

    def left_out(self, name: str) -> LeftOut:
        """What it costs to leave out the fix of that name."""
        return LEFT_OUT[self.name][name]

    def without(self, name: str) -> tuple[str, ...]:
        """The variant fixed without a fix and those that require it."""
        gone = {name}
        for other, fix in self.fixes().items():
            if not gone.isdisjoint(fix.requires):
                gone.add(other)
        return tuple(other for other in self.fixes() if other not in gone)


TRAINERS: Final = (
    Trainer("lm", lm, ("--device", "host", "--seconds", "3"), steps=300, size=1_500_000),
    Trainer("ssm", ssm, ("--num-seeds", "20"), within=("flat-sweep",)),
)


def judged(trainer: Trainer) -> Iterator[str]:
    """The fixes whose lack has a finding."""
    return (name for name, fix in trainer.fixes().items() if rule_of(fix) and not trainer.left_out(name).silent)


def rule_of(fix: Fix) -> str:
    """The rule that names the cost of leaving out the fix; empty: there is none."""
    return fix.rule_left_out or fix.rule


def recorded(trainer: Trainer, fixes: tuple[str, ...], out: Path) -> None:
    """Record the trainer with these fixes."""
    program = [sys.executable, "-m", f"reference_trainer.{trainer.name}", "--fixes", ",".join(fixes)]
    command = [sys.executable, "-m", "profiler", "run", "--out", str(out), "--", *program, *trainer.arguments]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True)


def cut(run: Path, trainer: Trainer) -> None:
    """Leave of each process only what it recorded in its last measured steps, and remove what no finding needs."""
    for source in run.glob("source-*"):
        for name in _LEFT_OUT:
            (source / name).unlink(missing_ok=True)
        kept = _rows(source / "steps.bin", "steps")
        kept = kept[kept["warmup"] == 0]
        size = sum(file.stat().st_size for file in source.glob("*.bin"))
        kept = kept[-max(_LEAST_STEPS, min(trainer.steps, trainer.size * len(kept) // size)) :]
        for table in tables.TABLES:
            file = source / f"{table}.bin"
            if not file.exists():
                continue
            rows = _rows(file, table)
            time = next(column for column in _TIMES if column in (rows.dtype.names or ()))
            chosen = rows[(rows[time] >= kept["begin"][0]) & (rows[time] <= kept["end"][-1])]
            file.write_bytes((kept if table == "steps" else chosen).tobytes())


def _rows(file: Path, table: str) -> np.ndarray:
    dtype = np.dtype([(name, _CODES[code]) for name, code in tables.TABLES[table]])
    content = file.read_bytes()
    return np.frombuffer(content[: len(content) // dtype.itemsize * dtype.itemsize], dtype)


def store(run: Path, name: str) -> None:
    """Write a run as a small archive, without the folder that it was recorded in and the build of the kernel."""
    manifest = json.loads((run / tables.MANIFEST).read_text(encoding="utf-8"))
    manifest["host"].pop("kernel", None)
    (run / tables.MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    texts = {str(ROOT).encode(): b"/project", str(Path(sys.prefix).resolve()).encode(): b"/environment"}
    with zipfile.ZipFile(RUNS / f"{name}.zip", "w", zipfile.ZIP_LZMA) as archive:
        for file in sorted(file for file in run.rglob("*") if file.is_file() and file.suffix != ".txt"):
            content = file.read_bytes()
            if file.suffix in (".json", ".jsonl"):
                for before, after in texts.items():
                    content = content.replace(json.dumps(before.decode())[1:-1].encode(), after)
            entry = zipfile.ZipInfo(str(file.relative_to(run)), (2026, 1, 1, 0, 0, 0))
            archive.writestr(entry, content, zipfile.ZIP_LZMA)


def main() -> None:
    """Record what the command line names, or everything."""
    RUNS.mkdir(exist_ok=True)
    for trainer in TRAINERS:
        programs = {BASE: tuple(trainer.fixes()), **{name: trainer.without(name) for name in judged(trainer)}}
        for name, fixes in programs.items():
            label = f"{trainer.name}-{name}"
            if sys.argv[1:] and label not in sys.argv[1:]:
                continue
            with TemporaryDirectory() as folder:
                recorded(trainer, fixes, Path(folder) / "run")
                cut(Path(folder) / "run", trainer)
                store(Path(folder) / "run", label)
            print(label, flush=True)


if __name__ == "__main__":
    main()
