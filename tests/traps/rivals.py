"""Runs the cases of `make accuracy` under other tools, and judges what they tell beside the findings that it recorded.

`python -m tests.traps.rivals --python ENV/bin/python [CASES]`: ENV is a virtual environment outside the project with
torch, traceml-ai and scalene. Results are appended to a file, a line for each case and tool: a second call goes on
where the first one ended.
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
from typing import Any, Final

from tests.traps.__main__ import read_rows, speed, write_rows
from tests.traps.cases import ROOT, SCRIPTS, Case, select
from tests.traps.rival_judge import judge_rival
from tests.traps.rival_table import page
from tests.traps.rival_tools import TOOLS, version

OURS: Final = "ours"
ACCURACY: Final = ROOT / "reports" / "accuracy"
RUN_S, TIMEOUT_S = 4.0, 150
_CALIBRATION: Final = 40
_TOLD_NOTHING: Final = {"has_cause": False, "has_line": False, "has_gain": False}
_ENVIRONMENT: Final = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def main() -> int:
    """Run, judge and write the page of all results."""
    parser = argparse.ArgumentParser(prog="python -m tests.traps.rivals", description=__doc__)
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    parser.add_argument("--python", type=Path, help="an environment's Python; without it, only write the page")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--results", type=Path, default=ACCURACY / "rivals.jsonl")
    arguments = parser.parse_args()
    done = {(row["case"], row["tool"]): row for row in read_rows(arguments.results)}
    for case in select(arguments.cases) if arguments.python else ():
        for tool in arguments.tools:
            state, row = environment(arguments.python, tool, case), done.get((case.name, tool), {})
            if {name: row.get(name) for name in state} != state:
                row = {"case": case.name, "ill": list(case.ill), "tool": tool} | state
                done[case.name, tool] = row | tell(case, tool, arguments.python)
                write_rows(arguments.results, done.values())
            print(json.dumps(done[case.name, tool]), flush=True)
    (arguments.results.with_suffix(".md")).write_text(
        page([*our_rows(ACCURACY / "results.jsonl"), *done.values()]), encoding="utf-8"
    )
    return 0


def environment(python: Path, tool: str, case: Case) -> dict[str, str]:
    """What a result depends on: the version of the tool, and the script."""
    script = (SCRIPTS / case.script).read_bytes()
    return {"version": version(python, tool), "sources": hashlib.sha256(script).hexdigest()[:16]}


def tell(case: Case, tool: str, python: Path) -> dict[str, Any]:
    """What a tool tells about a case, judged."""
    steps = steps_of(case)
    script, *options = case.command(steps)[1:]
    with tempfile.TemporaryDirectory() as folder:
        try:
            telling = TOOLS[tool](python, Path(script), options, Path(folder), run_quietly)
        except subprocess.TimeoutExpired:
            return _TOLD_NOTHING | {"quote": f"nothing after {TIMEOUT_S} s"}
        except subprocess.CalledProcessError as error:
            return _TOLD_NOTHING | {"quote": f"ended with exit code {error.returncode}"}
    return {"quote": telling.quote, "rows": [row.name for row in telling.rows]} | asdict(judge_rival(case, telling))


def our_rows(path: Path) -> list[dict[str, Any]]:
    """Our findings, as `make accuracy` recorded and judged them on a quiet machine."""
    return [
        {
            "case": row["case"],
            "ill": row["ill"],
            "tool": OURS,
            "version": "this project",
            "quote": row["verdict"],
            "has_cause": row["is_right"],
            "has_line": row["has_line"],
            "has_gain": row["gain"] is not None,
        }
        for row in read_rows(path)
        if row["condition"] == "quiet"
    ]


@cache
def steps_of(case: Case) -> int:
    """Steps for RUN_S seconds."""
    return max(60, round(RUN_S * speed(case, _CALIBRATION)))


def run_quietly(words: Sequence[str | Path]) -> str:
    """Run a command outside the project's environment; its standard output."""
    return subprocess.run(
        [str(word) for word in words], check=True, capture_output=True, text=True, timeout=TIMEOUT_S, env=_ENVIRONMENT
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
