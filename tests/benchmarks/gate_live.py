"""Live gates over programs whose difference is known: real work is added, nothing is simulated. Appends to a raw file.

    python -m tests.benchmarks.gate_live --gates 10 --into reports/gate/gates.jsonl.gz

Each line is a gate: its experiment, its verdict at that time, and every block of its rounds, from which any other rule
can be computed again. Experiments alternate, so that the machine's good and bad hours affect all of them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from profiler.check.model import BASE, CANDIDATE, Limits, Round
from profiler.check.outputs.text import sentence
from profiler.check.speed.controlled_process import Program
from profiler.check.speed.interleave import RoundRunner
from profiler.check.speed.verdict import next_kind, throughput

SCRIPT = Path(__file__).parent / "gate_scripts" / "passes.py"
SCHEMA = "gate-live/1"


@dataclass(frozen=True)
class Experiment:
    name: str
    share: int
    """Gates of it in a cycle."""
    base: Mapping[str, str] = field(default_factory=dict)
    """Settings of the base."""
    candidate: Mapping[str, str] = field(default_factory=dict)
    """Settings in which the candidate differs."""


_STEP = {"PASSES": "160", "OMP_NUM_THREADS": "1"}
"""Some 50 ms where a pass takes 0.3 ms; 5% of it, and of 150 2%, are whole passes."""
_LOADER = {"PASSES": "20", "OMP_NUM_THREADS": "1", "WORKERS": "1"}
EXPERIMENTS = (
    Experiment("same", 8, _STEP),
    Experiment("slower-5", 8, _STEP, {"MORE": "0.05"}),
    Experiment("slower-2", 1, {**_STEP, "PASSES": "150"}, {"MORE": "0.02"}),
    Experiment("stall", 1, _STEP, {"EVERY": "10", "STALL": "0.5"}),
    Experiment("loader-10", 1, {**_LOADER, "LOADING": "300"}, {"LOADING": "330"}),
)


def gate(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """Run one live gate; returns its line of the file."""
    programs = {
        side: Program(side, (sys.executable, str(SCRIPT)), SCRIPT.parent, {**experiment.base, **changes})
        for side, changes in ((BASE, {}), (CANDIDATE, experiment.candidate))
    }
    commit = subprocess.run(
        ["git", "-C", str(SCRIPT.parent), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    begin, at = time.monotonic(), datetime.now(UTC)
    rounds: list[Round] = []
    runner, limits = RoundRunner(programs, folder), Limits()
    while kind := next_kind(rounds, limits):
        rounds.append(runner.run(len(rounds) + 1, kind))
    result = throughput(rounds, limits)
    return {
        "schema": SCHEMA,
        "experiment": experiment.name,
        "at": at.isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "state": result.state,
        "reason": sentence(result.reason) if result.reason else "",
        "seconds": round(time.monotonic() - begin, 2),
        "slowdowns": [line.slowdown for line in result.lines],
        "rounds": [measured.to_json() for measured in rounds],
    }


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Write a gzip member of its own, so that a killed run leaves all lines before it whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(gzip.compress(json.dumps(line, separators=(",", ":")).encode() + b"\n", mtime=0))


def read(path: Path) -> list[dict[str, Any]]:
    """All gates of a file, with `rounds` as Round; the last one is left out while it is being written."""
    data, text = path.read_bytes(), b""
    while data:
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(data)
        except zlib.error as error:
            sys.exit(f"{path}: {len(data)} bytes before its end: {error}")
        text, data = (text + part, member.unused_data) if member.eof else (text, b"")
    lines = [json.loads(line) for line in text.splitlines()]
    return [{**line, "rounds": [read_round(measured) for measured in line["rounds"]]} for line in lines]


def read_round(value: Mapping[str, Any]) -> Round:
    """Return the round of what `Round.to_json` returned."""
    return TypeAdapter(Round).validate_python({**value, "blocks": value.get("turns")})


def _cycle(names: set[str]) -> Iterator[Experiment]:
    """Yield each experiment as often as its share says, spread evenly, without an end."""
    chosen = [experiment for experiment in EXPERIMENTS if experiment.name in names]
    credit = dict.fromkeys((experiment.name for experiment in chosen), 0.0)
    while True:
        for experiment in chosen:
            credit[experiment.name] += experiment.share / sum(experiment.share for experiment in chosen)
        due = max(chosen, key=lambda experiment: credit[experiment.name])
        credit[due.name] -= 1
        yield due


def main() -> None:
    names = [experiment.name for experiment in EXPERIMENTS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gates", type=int, default=15)
    parser.add_argument("--experiments", default=",".join(names), help=f"some of {', '.join(names)}")
    parser.add_argument("--into", type=Path, required=True)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for number, experiment in zip(range(args.gates), _cycle(set(args.experiments.split(","))), strict=False):
        with tempfile.TemporaryDirectory() as folder:
            line = gate(experiment, Path(folder))
        append(args.into, line)
        slowdowns = ", ".join("–" if value is None else f"{100 * value:+.1f}%" for value in line["slowdowns"])
        print(
            f"{number + 1:3} {experiment.name:10} {line['state']:12} {line['seconds']:5.0f} s "
            f"{len(line['rounds']):2} rounds  {slowdowns}  {line['reason'][:70]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
