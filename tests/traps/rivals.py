"""Runs the cases of `make accuracy` under other tools, and judges what they tell beside our own findings.

`python -m tests.traps.rivals --python ENV/bin/python [CASES]`: ENV is a virtual environment outside the project with
torch, traceml-ai and scalene. Results are appended to a file, a line for each case and tool: a second call goes on
where the first one ended. `--overhead` measures steps per second under each tool instead, in interleaved pairs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.traps.__main__ import ROOT, TOOL, command, hash_of, read_rows, speed, try_case, write_rows
from tests.traps.cases import SCRIPTS, Case, select
from tests.traps.rival_judge import judge_rival
from tests.traps.rival_table import page
from tests.traps.rival_tools import TOOLS, version

OURS: Final = "ours"
OVERHEAD_CASES: Final = ("healthy", "model-attention", "model-loader")
RUN_S, PAIRS, TIMEOUT_S = 5.0, 3, 150
_CALIBRATION: Final = 40
_ENVIRONMENT: Final = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def main() -> int:
    """Run, judge and write the page of all results."""
    parser = argparse.ArgumentParser(prog="python -m tests.traps.rivals", description=__doc__)
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    parser.add_argument("--python", type=Path, help="the Python of an environment with the other tools")
    parser.add_argument("--tools", nargs="+", choices=(OURS, *TOOLS), default=[OURS, *TOOLS])
    parser.add_argument("--results", type=Path, default=ROOT / "reports" / "accuracy" / "rivals.jsonl")
    parser.add_argument("--overhead", action="store_true", help="measure steps per second under each tool instead")
    arguments = parser.parse_args()
    if arguments.python is None and arguments.tools != [OURS]:
        parser.error("other tools need --python, the Python of an environment that has them")
    names = arguments.cases or (list(OVERHEAD_CASES) if arguments.overhead else [])
    done = {(row["case"], row["tool"], row["measure"]): row for row in read_rows(arguments.results)}
    measure = "overhead" if arguments.overhead else "telling"
    for case in select(names):
        for tool in arguments.tools:
            key = case.name, tool, measure
            state = environment(arguments.python, tool, case)
            if {name: done.get(key, {}).get(name) for name in state} != state:
                make = overhead if arguments.overhead else tell
                facts = make(case, tool, arguments.python)
                done[key] = {"case": case.name, "ill": list(case.ill), "tool": tool, "measure": measure} | state | facts
                write_rows(arguments.results, done.values())
            print(json.dumps(done[key]), flush=True)
    (arguments.results.with_suffix(".md")).write_text(page(list(done.values())), encoding="utf-8")
    return 0


def environment(python: Path, tool: str, case: Case) -> dict[str, str]:
    """What a result depends on: the version of the tool, and the sources."""
    if tool == OURS:
        return {"version": "this revision", "sources": hash_of(TOOL)}
    script = (SCRIPTS / case.script).read_bytes()
    return {"version": version(python, tool), "sources": hashlib.sha256(script).hexdigest()[:16]}


def tell(case: Case, tool: str, python: Path) -> dict[str, Any]:
    """What a tool tells about a case, judged."""
    if tool == OURS:
        row = try_case(case, "quiet")
        judged = {"has_cause": row["is_right"], "has_line": row["has_line"], "has_gain": row["gain"] is not None}
        return {"quote": row["verdict"]} | judged
    steps = steps_of(case)
    script, *options = command(case, steps)[1:]
    with tempfile.TemporaryDirectory() as folder:
        try:
            telling = TOOLS[tool](python, Path(script), options, Path(folder), run_quietly)
        except subprocess.TimeoutExpired:
            return {"quote": f"nothing after {TIMEOUT_S} s", "has_cause": False, "has_line": False, "has_gain": False}
    return {"quote": telling.quote, "rows": [row.name for row in telling.rows]} | asdict(judge_rival(case, telling))


@cache
def steps_of(case: Case) -> int:
    """Steps for RUN_S seconds."""
    return max(60, round(RUN_S * speed(case, _CALIBRATION)))


def run_quietly(words: Sequence[str | Path]) -> str:
    """Run a command outside the project's environment; its standard output."""
    return subprocess.run(
        [str(word) for word in words], check=True, capture_output=True, text=True, timeout=TIMEOUT_S, env=_ENVIRONMENT
    ).stdout


def overhead(case: Case, tool: str, python: Path) -> dict[str, Any]:
    """Steps per second under a tool relative to none, in interleaved pairs on the same Python."""
    base = Path(sys.executable) if tool == OURS else python
    steps = steps_of(case)
    script, *options = command(case, steps)[1:]
    ratios = []
    for _ in range(PAIRS):
        bare = _rate(run_quietly([base, script, *options]))
        ratios.append(_rate_under(tool, base, Path(script), options) / bare)
    return {"ratios": ratios, "ratio": median(ratios)}


def _rate_under(tool: str, python: Path, script: Path, options: Sequence[str]) -> float:
    """Steps per second of a script under a tool, by the script's own clock."""
    outputs: list[str] = []

    def run(words: Sequence[str | Path]) -> str:
        outputs.append(run_quietly(words))
        return outputs[-1]

    with tempfile.TemporaryDirectory() as folder:
        if tool == OURS:
            run([python, "-m", "profiler", "run", "--out", Path(folder) / "run", "--", python, script, *options])
        else:
            TOOLS[tool](python, script, options, Path(folder), run)
    return _rate(outputs[-1])


def _rate(output: str) -> float:
    line = next(line for line in output.splitlines() if line.startswith('{"steps_per_s"'))
    return float(json.loads(line)["steps_per_s"])


if __name__ == "__main__":
    sys.exit(main())
