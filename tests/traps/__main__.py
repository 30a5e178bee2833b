"""`make accuracy`: records programs whose illness is switched on, judges their findings, and measures the real gain.

The real gain of the cure of a single illness is the ratio of the times of unrecorded steps with and without it, in
blocks that alternate. Results are kept in a file, a line for each case and condition with the hashes of the tool and of
the program: a second call goes on where the first one ended. A new version of the tool does not measure the real gains
again, and judges the kept recordings anew where only the analysis has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from profiler import read
from profiler.report.render.json import analysis_json
from tests.traps.cases import ROOT, SCRIPTS, Case, select
from tests.traps.judge import Judgement, judge, judge_throttled
from tests.traps.real import RealCure
from tests.traps.table import page
from tests.wild.conditions import make_conditions

_ROOMS: Final = ("agent", "analyse", "diagnose", "record", "run")
TOOL: Final = tuple(f"profiler/{room}" for room in _ROOMS)
_RECORDER: Final = ("profiler/agent", "profiler/record")
RECORDED_S: Final = 10.0
REAL: Final = ("real", "real_low", "real_high")
OF_RUN: Final = ("memory-creep", "long-startup")
"""Illnesses that leave the steps as fast as they are."""
_CALIBRATION: Final = 40
_ENVIRONMENT: Final = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def main() -> int:
    """Record, judge and measure the chosen cases, and write the page of all results."""
    parser = argparse.ArgumentParser(prog="python -m tests.traps", description=__doc__)
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    parser.add_argument("--conditions", nargs="+", choices=("quiet", "busy", "quota"), default=["quiet"])
    parser.add_argument("--results", type=Path, default=ROOT / "reports" / "accuracy" / "results.jsonl")
    parser.add_argument("--runs", type=Path, default=ROOT / "build" / "accuracy", help="where recordings are kept")
    parser.add_argument("--no-gain", action="store_true", help="do not measure the real gain")
    arguments = parser.parse_args()
    done = {(row["case"], row["condition"]): row for row in read_rows(arguments.results)}
    tool, recorder = hash_of(TOOL), hash_of(_RECORDER)
    for case in select(arguments.cases):
        program = hash_of_case(case)
        for condition in arguments.conditions:
            row = done.get((case.name, condition), {})
            real = {name: row.get(name) if row.get("program") == program else None for name in REAL}
            wants_gain = has_real_gain(case, condition) and not arguments.no_gain
            if (row.get("tool"), row.get("program")) != (tool, program) or (wants_gain and real["real"] is None):
                run = arguments.runs / f"{case.name}-{condition}-{recorder}-{program}"
                row = try_case(case, condition, run) | {"tool": tool, "program": program} | real
                if wants_gain and real["real"] is None:
                    row |= real_gain(case)
                done[case.name, condition] = row
                write_rows(arguments.results, done.values())
            print(f"{case.name} {condition}: {describe(row)}", flush=True)
    (arguments.results.parent / "README.md").write_text(page(list(done.values())), encoding="utf-8")
    return 0


def try_case(case: Case, condition: str, run: Path) -> dict[str, Any]:
    """Judge the recording of a case in the folder `run`, and make it where there is none."""
    if not run.exists():
        with tempfile.TemporaryDirectory() as folder:
            new = record(case, condition, Path(folder) / "run")
            run.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(new, run)
    report = json.loads(json.dumps(analysis_json(read(run))))
    judgement: Judgement = (judge_throttled if condition == "quota" else judge)(case, report["findings"])
    row = {"case": case.name, "ill": list(case.ill), "condition": condition, **asdict(judgement)}
    row["verdict"] = report["verdict"]
    row["findings"] = [
        {
            "rule": each["rule"],
            "share": each["share"] * (1.0 - each["left_out"]),  # of the step as it was recorded
            "gains": each["gains"],
            "overlaps": each["overlaps"],
        }
        for each in report["findings"]
    ]
    return row


def has_real_gain(case: Case, condition: str) -> bool:
    """Whether the gain of curing the case is measured under this condition."""
    return condition == "quiet" and len(case.ill) == 1 and case.ill[0] not in OF_RUN


def record(case: Case, condition: str, run: Path) -> Path:
    """Record a case; under the condition `busy` beside a busy loop on every core, under `quota` with fewer cores than
    one."""
    steps = max(60, round(RECORDED_S * speed(case, _CALIBRATION)))
    recording = [sys.executable, "-m", "profiler", "run", "--out", str(run), "--", *case.command(steps)]
    loops = start_loops() if condition == "busy" else []
    try:
        with make_conditions("quota" if condition == "quota" else "quiet") as conditions:
            subprocess.run(conditions.in_group(recording), check=True, cwd=ROOT, env=_ENVIRONMENT, capture_output=True)
    finally:
        for loop in loops:
            loop.kill()
    return run


def real_gain(case: Case) -> dict[str, float]:
    """How many times as fast steps are without the illness, and the interval of 95%."""
    with tempfile.TemporaryDirectory() as folder:
        cure = RealCure(case, Path(folder))
        cure.measure()
        return {name: value for name, value in cure.result().items() if name in REAL}


def speed(case: Case, steps: int) -> float:
    """Steps per second by the program's own clock."""
    done = subprocess.run(case.command(steps), check=True, cwd=ROOT, env=_ENVIRONMENT, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["steps_per_s"])


def start_loops() -> list[subprocess.Popen[bytes]]:
    """A busy loop on each core."""
    cores = sorted(os.sched_getaffinity(0))
    return [subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]) for core in cores]


def hash_of(folders: Sequence[str]) -> str:
    """A hash of the source files below these folders of the project."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def hash_of_case(case: Case) -> str:
    """A hash of the program of a case and of how it is judged."""
    return hashlib.sha256((SCRIPTS / case.script).read_bytes() + repr(case).encode()).hexdigest()[:16]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The results so far; empty where there are none."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write all results, in the order of the cases."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def describe(row: dict[str, Any]) -> str:
    """A line about a result."""
    gain = f", at most {row['gain']:.2f}" if row["gain"] else ""
    real = f", really {row['real']:.2f}" if row["real"] else ""
    right = "right" if row["is_right"] else "WRONG"
    return f"{right}, first {row['first'] or 'none'}{gain}{real}{', line missing' if row['has_line'] is False else ''}"


if __name__ == "__main__":
    sys.exit(main())
